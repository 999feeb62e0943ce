"""POST /oauth2/revoke: who revokes as the holder, what is revoked, and what leaves nothing."""

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
from orchid.kernel.credentials.token_claims import AccountClaims, AccountToken, Claims, Reference
from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.wire.errors import AlreadyExists, ErrorSubject, Forbidden
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedToken
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.server.request_states import state_of

API = ("https://orchid.test",)
SERVER = UserInfo(username="the server")
END = 1_800_000_000
SUBJECT = ErrorSubject("credentialrevocations", ORCH.identity)


def token_of(account: str = "ci:robot", **claims: Any) -> str:
    """A token of an account, as `Tokens` reads it; `signed=False` for one of somebody else."""
    return json.dumps({"account": account, "jti": "7", "exp": END, **claims})


class Tokens:
    """Every token is signed by this server and valid, unless it says otherwise."""

    async def signed(self, token: str) -> AccountToken | None:
        try:
            claims = json.loads(token)
        except ValueError:
            return None
        namespace, _, name = claims["account"].partition(":")
        if not claims.get("signed", True):
            return None
        return AccountToken(
            Claims(jti=claims["jti"], exp=claims["exp"]),
            AccountClaims(namespace=namespace, serviceaccount=Reference(name)),
        )

    async def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated:
        account = json.loads(token)["account"]
        return Authenticated(UserInfo(username=f"system:serviceaccount:{account}"), audiences)


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
        acting=acting,
        server=SERVER,
        monotonic=(clock or FakeClock()).monotonic,
    )


async def revoked(
    api: Api, token: str, pages: TokenRevocation | None = None, **options: Any
) -> dict[str, str]:
    """Send it; the annotations of the audit record."""
    sent = {"token": token, **options.pop("form", {})}
    exchange = state_of(
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
        token_of(signed=False),
        token_of(""),
        token_of("ci"),
        token_of(":robot"),
        token_of(jti=""),
        token_of(exp=None),
        "nonsense",
    ],
)
async def test_what_is_no_token_of_ours_with_an_id_leaves_nothing(token: str) -> None:
    """RFC 7009, section 2.2: the answer is the same."""
    api = Api()

    assert await revoked(api, token) == {}
    assert api.made == []


async def test_a_time_that_cannot_be_written_is_the_last_that_can() -> None:
    """Somebody who shares the key file may sign any number."""
    api = Api()

    await revoked(api, token_of(exp=1 << 62))

    assert api.made[0][1].spec.token.expires == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


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
