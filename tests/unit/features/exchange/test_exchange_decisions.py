"""Each condition of an exchange with the configuration, the policies and the rules of now."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.exchange import judging
from orchid.features.exchange.configuration import ExchangeIssuer
from orchid.features.exchange.exchanger import ExchangeRefused, TokenExchanger, WantedToken
from orchid.features.exchange.judging import PolicyJudge
from orchid.features.exchange.kinds.token_exchange_policy import (
    ExchangeRule,
    TokenExchangePolicy,
    TokenExchangePolicySpec,
)
from orchid.features.exchange.policy_index import IndexedPolicy
from orchid.features.exchange.subject_tokens import (
    Configuration,
    InvalidSubject,
    SubjectToken,
    SubjectTokens,
)
from orchid.features.exchange.uses import PolicyUses
from orchid.kernel.credentials.keys import TokenKey, b64url_encode, generate
from orchid.kernel.expressions.cel import CLAIMS, NOW, Compiler, ExpressionInput
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.access.presenting import START, FakeClock

ISSUER = "https://one.example"
AUDIENCE = "https://orchid.test"
MOMENT = datetime(2026, 11, 19, 12, tzinfo=UTC)
SUBJECT = {"sub": "job"}
LONG = "claims.sub.matches('^(a|b|j).*$')"


def policy(
    *rules: str, generation: int = 1, account: str = "deployer", namespace: str = "ci"
) -> IndexedPolicy:
    spec = TokenExchangePolicySpec(
        issuer=ISSUER,
        claims=SUBJECT,
        account=account,
        audiences=(AUDIENCE,),
        rules=tuple(ExchangeRule(expression=one) for one in rules),
    )
    return IndexedPolicy(
        namespace=namespace,
        name="p",
        uid="u1",
        revision="1",
        generation=generation,
        spec=spec,
        is_ready=True,
        lifetime=600,
        last_used=0.0,
    )


def judge() -> PolicyJudge:
    async def offload(_: Any, work: Callable[[], Any]) -> Any:
        return work()

    anything: Any = offload
    return PolicyJudge(anything)


# -- rules -----------------------------------------------------------------------------------


async def test_changed_rules_count_from_the_next_exchange_on() -> None:
    """The compiled rules of an earlier generation are not those of the policy."""
    one = judge()

    before = await one.refusal(policy("true"), SUBJECT, MOMENT)
    after = await one.refusal(policy("false", generation=2), SUBJECT, MOMENT)

    assert (before, after) == ("", "ci/p: rules[0]")


async def test_all_rules_of_a_policy_share_the_limit_of_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many rules, each within the limit, would hold the event loop together."""
    given = ExpressionInput({CLAIMS: SUBJECT, NOW: MOMENT})
    cost = Compiler().exchange_condition(LONG).cost(given)

    monkeypatch.setattr(judging, "MOST_COST", 2 * cost)
    both = await judge().refusal(policy(LONG, LONG), SUBJECT, MOMENT)
    monkeypatch.setattr(judging, "MOST_COST", 2 * cost - 1)
    over = await judge().judge(policy(LONG, LONG), SUBJECT, MOMENT)

    assert both == ""
    assert over.checks[-1].message == judging.TOO_EXPENSIVE


# -- keys ------------------------------------------------------------------------------------


class Published:
    """The keys of an issuer, which others fetch."""

    ready = is_current = True
    problem = ""

    def __init__(self, *keys: TokenKey) -> None:
        self.keys = tuple(key.public for key in keys)
        self.fetched: Any = None

    def is_for(self, issuer: ExchangeIssuer) -> bool:
        return issuer.url == ISSUER

    def follow(self, changed: Any) -> None:
        self.fetched = changed
        changed(ISSUER, self.keys)

    async def newer(self) -> None:
        self.fetched(ISSUER, self.keys)


def outside_token(key: TokenKey) -> str:
    now = int(START.timestamp())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 300, **SUBJECT}
    head = {"alg": key.algorithm, "kid": key.public.kid, "typ": "JWT"}
    text = b".".join(b64url_encode(json.dumps(one).encode()) for one in (head, claims))
    return b".".join((text, b64url_encode(key.sign(text)))).decode()


async def test_an_algorithm_that_the_file_withdrew_stays_out_after_the_next_fetch(
    tmp_path: Path,
) -> None:
    """The issuer publishes keys for it as before, and the API may accept them."""
    kept, withdrawn = generate("ES256"), generate("ES384")
    source = Published(kept, withdrawn)
    file = tmp_path / "exchange.yaml"
    file.write_text("ES256,ES384")

    def read(data: bytes) -> Configuration:
        return (ExchangeIssuer(ISSUER, (AUDIENCE,), algorithms=tuple(data.decode().split(","))),)

    shared: Any = {ISSUER: source}
    subjects = SubjectTokens(file, read, FakeClock(), shared=shared)
    for key in (kept, withdrawn):
        assert (await subjects.verify(outside_token(key))).subject == "job"
    file.write_text("ES256")
    await subjects.reload()

    for _ in range(2):
        assert (await subjects.verify(outside_token(kept))).subject == "job"
        with pytest.raises(InvalidSubject, match="'ES384' is not accepted"):
            await subjects.verify(outside_token(withdrawn))
        await source.newer()


# -- policies --------------------------------------------------------------------------------


class Server:
    """The parts of a server that an exchange uses: policies, accounts, and an issuer of tokens."""

    def __init__(self, *policies: IndexedPolicy, deleted_elsewhere: bool = False) -> None:
        self._policies, self._deleted = policies, deleted_elsewhere
        self.signed: list[tuple[str, str]] = []
        self.longest_seconds = 0

    async def verify(self, token: str) -> SubjectToken:
        return SubjectToken(ISSUER, "job", SUBJECT, int(MOMENT.timestamp()) + 300, 0, token)

    def issuer_of(self, _: str) -> str:
        return ISSUER

    async def fresh(self) -> None:
        if self._deleted:
            self._policies = ()

    def candidates(self, _: str, claims: Any, account: tuple[str, str] | None) -> Any:
        return [one for one in self._policies if account in (None, one.account)]

    def some_of_account(self, *_: Any) -> Any:
        return []

    def of(self, _: Any) -> Any:
        meta = SimpleNamespace(annotations={f"{ORCH.identity}/token-exchange": "outside"})
        identity = SimpleNamespace(uid="a1", deletion_timestamp=None)
        return SimpleNamespace(get=lambda *_: SimpleNamespace(meta=meta, identity=identity))

    def refuse_outside_token(self, *_: Any) -> None:
        pass

    async def sign(self, request: Any, *_: Any) -> Any:
        self.signed.append((request.metadata.namespace, request.metadata.name))
        return SimpleNamespace(token="t", credential_id="JTI=1")

    async def exchanged(self, account: tuple[str, str] | None = None) -> str:
        here: Any = self
        exchanger = TokenExchanger(
            ORCH,
            here,
            here,
            here,
            policies=here,
            judge=judge(),
            revocations=here,
            username_of=lambda *_: "",
            clock=FakeClock(),
        )
        try:
            await exchanger.exchange(WantedToken("1", account))
        except ExchangeRefused as refusal:
            return refusal.text
        return ""


async def test_accounts_of_one_name_in_two_namespaces_are_two_accounts() -> None:
    """Which of them the token is for is never a matter of the order of policies."""
    server = Server(policy(), policy(namespace="prod"))

    undecided = await server.exchanged()
    decided = await server.exchanged(("prod", "deployer"))

    assert "policies allow several accounts" in undecided
    assert (decided, server.signed) == ("", [("prod", "deployer")])


async def test_a_policy_that_another_server_has_deleted_exchanges_nothing() -> None:
    """The change is in the store, and not yet in the index."""
    there, gone = Server(policy()), Server(policy(), deleted_elsewhere=True)

    assert await there.exchanged() == ""
    assert "no policy lets the subject" in await gone.exchanged()
    assert gone.signed == []


@pytest.mark.parametrize(("uid", "written"), [("u1", 1), ("u2", 0)])
async def test_a_use_is_not_that_of_the_next_policy_with_its_name(uid: str, written: int) -> None:
    """The next policy was never used."""
    meta = ObjectMeta(name="p", namespace="ci", uid=uid)
    updates: list[Any] = []

    async def find(*_: Any) -> TokenExchangePolicy:
        return TokenExchangePolicy(metadata=meta)

    async def update_status(new: TokenExchangePolicy) -> None:
        updates.append(new.status.last_used)

    client: Any = SimpleNamespace(find=find, update_status=update_status)
    uses = PolicyUses(client, lambda *_: None)
    uses.used(policy(), MOMENT)

    await uses.write()

    assert updates == [MOMENT] * written
