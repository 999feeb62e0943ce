"""POST /oauth2/revoke: who revokes as the holder, what is revoked, and what leaves nothing."""

import base64
import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.features.introspection.callers import Callers
from orchid.features.introspection.forms import FORM, OAuthRefusal
from orchid.features.introspection.revocation import BY_HOLDER, TokenRevocation
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.wire.errors import AlreadyExists, ErrorSubject, Forbidden
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedToken
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.server.exchanges import exchange_of

OURS, THEIRS = "https://ours.example", "https://theirs.example"
API = ("https://orchid.test",)
SERVER = UserInfo(username="the server")
END = 1_800_000_000
SUBJECT = ErrorSubject("credentialrevocations", ORCH.identity)


def token_of(account: str = "ci:robot", *, issuer: str = OURS, **claims: Any) -> str:
    """A token whose header names its user, as the authenticator below reads it."""
    claims = {"iss": issuer, "jti": "7", "exp": END, "aud": "vault", **claims}
    head = base64.urlsafe_b64encode(f"system:serviceaccount:{account}".encode()).decode()
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
    return f"{head}.{payload}.e30".replace("=", "")


class Tokens:
    """Every token is valid for its audience, but those of the accounts `gone` and `held`."""

    async def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated:
        head = token.partition(".")[0]
        name = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).decode()
        assert audiences in (("vault",), API)
        if name.endswith(":gone"):
            raise Rejected("the account does not exist")
        if name.endswith(":held"):
            raise Rejected("under a hold")
        return Authenticated(UserInfo(username=name.removesuffix(":person")), audiences)


class Api:
    """Records who creates what; refuses with one error if there is one."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.made: list[tuple[str, Any]] = []
        self._problem = problem

    @contextlib.contextmanager
    def acting(self, user: UserInfo, address: str) -> Iterator[Any]:
        assert address == "10.0.0.9:1"
        self._user = user.username
        yield self

    async def create(self, new: Any) -> Any:
        if self._problem:
            raise self._problem
        self.made.append((self._user, new))


def page(api: Api, clock: FakeClock | None = None) -> TokenRevocation:
    tokens: Any = Tokens()
    acting: Any = api.acting
    return TokenRevocation(
        ORCH,
        Callers(tokens, API),
        tokens,
        issuers=(OURS,),
        api_audiences=API,
        acting=acting,
        server=SERVER,
        revoked=("under a hold",),
        monotonic=(clock or FakeClock()).monotonic,
    )


async def revoked(
    api: Api, token: str, pages: TokenRevocation | None = None, **options: Any
) -> dict[str, str]:
    """Send it; the annotations of the audit record."""
    sent = {"token": token, **options.pop("form", {})}
    exchange = exchange_of(
        "POST", "/oauth2/revoke", urlencode(sent).encode(), content_type=FORM, **options
    )
    answer = await (pages or page(api))(exchange)
    assert (answer.status, answer.body) == (200, b"")
    assert b"no-store" in answer.headers
    assert exchange.request is not None
    return exchange.request.audit_annotations


async def test_the_holder_revokes_without_another_credential() -> None:
    """Also with the token itself as credential; the server creates the revocation."""
    token, api = token_of(), Api()

    notes = await revoked(api, token)
    await revoked(
        api, token, authorization=f"Bearer {token}", user="system:serviceaccount:ci:robot"
    )
    as_secret = {"client_id": "system:serviceaccount:ci:robot", "client_secret": token}
    await revoked(api, token, form=as_secret)

    assert [user for user, _ in api.made] == ["the server"] * 3
    made = api.made[0][1]
    end = datetime.fromtimestamp(END, UTC)
    assert made.spec.token == RevokedToken(jti="7", namespace="ci", name="robot", expires=end)
    assert made.spec.message == "revoked by its holder"
    assert notes == {ORCH.own("revoked-by-holder"): "JTI=7"}


@pytest.mark.parametrize(
    "credential",
    [
        {"authorization": "Bearer other", "user": "jane"},
        {"user": "jane"},
        {
            "form": {
                "client_id": "system:serviceaccount:x:jane",
                "client_secret": token_of("x:jane"),
            }
        },
    ],
)
async def test_another_caller_revokes_with_rights_of_its_own(credential: dict[str, Any]) -> None:
    """A certificate is another credential, too; nothing says that the holder has asked."""
    api = Api()

    notes = await revoked(api, token_of(), **credential)

    assert [user for user, _ in api.made] != ["the server"]
    assert api.made[0][0].endswith("jane")
    assert api.made[0][1].spec.message == ""
    assert notes == {}


@pytest.mark.parametrize(
    "token",
    [
        token_of("ci:gone"),
        token_of(issuer=THEIRS),
        token_of(iss=None),
        token_of(iss=[OURS]),
        token_of(jti=None),
        token_of(jti=7),
        token_of(exp=None),
        "e30.e30",
        "nonsense",
    ],
)
async def test_what_is_no_valid_token_of_ours_leaves_nothing(token: str) -> None:
    """RFC 7009, section 2.2: the answer is the same."""
    api = Api()

    assert await revoked(api, token) == {}
    assert api.made == []


async def test_a_token_under_a_hold_is_revoked_for_good() -> None:
    """A hold can be lifted; of another issuer it is not looked at."""
    api = Api()
    sub = "system:serviceaccount:ci:held"

    await revoked(api, token_of("ci:held", sub=sub))
    await revoked(api, token_of("ci:held", sub=sub, iss=THEIRS))
    await revoked(api, token_of("ci:held", sub="jane"))

    assert [(user, new.spec.token.name) for user, new in api.made] == [("the server", "held")]


async def test_a_token_is_judged_for_its_own_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, for the API."""
    asked: list[tuple[str, ...]] = []
    judge = Tokens.authenticate_token

    async def recorded(self: Tokens, token: str, audiences: tuple[str, ...]) -> Authenticated:
        asked.append(audiences)
        return await judge(self, token, audiences)

    monkeypatch.setattr(Tokens, "authenticate_token", recorded)
    await revoked(Api(), token_of())
    await revoked(Api(), token_of(aud=None))

    assert asked == [("vault",), API]


async def test_the_token_of_a_person_leaves_nothing() -> None:
    """Only those of accounts are ours."""
    api = Api()
    person = base64.urlsafe_b64encode(b"jane").decode().rstrip("=")

    await revoked(api, f"{person}.{token_of().split('.', 1)[1]}")

    assert api.made == []


async def test_a_second_revocation_is_one_success() -> None:
    await revoked(Api(AlreadyExists(SUBJECT)), token_of())


async def test_a_caller_without_the_right_is_refused() -> None:
    with pytest.raises(OAuthRefusal) as refusal:
        await revoked(Api(Forbidden(SUBJECT, "no")), token_of(), user="jane")

    assert (refusal.value.status, refusal.value.code) == (403, "access_denied")


async def test_a_request_without_a_token_is_refused() -> None:
    with pytest.raises(OAuthRefusal, match="400") as refusal:
        await revoked(Api(), " ")

    assert refusal.value.text == "the parameter token is missing"


async def test_holders_revoke_so_many_tokens_of_an_account_in_an_hour() -> None:
    """Each makes an object; another account and another caller have their own allowance."""
    api, clock = Api(), FakeClock()
    pages = page(api, clock)
    for number in range(BY_HOLDER):
        await revoked(api, token_of(jti=str(number)), pages)

    with pytest.raises(OAuthRefusal) as refusal:
        await revoked(api, token_of(jti="more"), pages)
    await revoked(api, token_of("test:robot"), pages)
    await revoked(api, token_of(jti="more"), pages, user="jane")
    assert len(api.made) == BY_HOLDER + 2

    assert (refusal.value.status, refusal.value.code) == (503, "temporarily_unavailable")
    assert b"Retry-After: 180\r\n" in refusal.value.headers
    clock.advance(180.0)
    await revoked(api, token_of(jti="more"), pages)
