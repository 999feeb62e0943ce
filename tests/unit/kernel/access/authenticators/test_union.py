"""The order of the authenticators, and what becomes of their refusals."""

import asyncio

import pytest

from orchid.features.certificates.authenticators.client_certificate import (
    ClientCertificateAuthenticator,
)
from orchid.features.certificates.authenticators.request_header import (
    RequestHeaderAuthenticator,
    RequestHeaderSettings,
)
from orchid.kernel.access.authenticators.anonymous import (
    AnonymousAuthenticator,
    InvalidAnonymousPath,
)
from orchid.kernel.access.authenticators.bearer import BearerAuthenticator, WebSocketAuthenticator
from orchid.kernel.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.kernel.engine.interfaces import Authenticated, Presented, Rejected
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import API, Authority, FakeClock, TokensOf, presented

CLIENTS, PROXIES = Authority("clients"), Authority("proxies")
TOKENS = TokensOf({"good": "jane"}, {"stale": "service account token has expired"})


def front_door() -> UnionAuthenticator:
    clock = FakeClock()
    settings = RequestHeaderSettings(username_headers=("X-Remote-User",))
    tokens = UnionTokenAuthenticator([TOKENS])
    return UnionAuthenticator(
        [
            RequestHeaderAuthenticator(settings, lambda: PROXIES.pool, clock, ORCH),
            ClientCertificateAuthenticator(lambda: CLIENTS.pool, clock, ORCH),
            BearerAuthenticator(tokens, API),
            WebSocketAuthenticator(tokens, API, ORCH),
        ],
        API,
        AnonymousAuthenticator(["/livez", "/static/*"]),
    )


async def name(request: Presented) -> str | None:
    found = await front_door().authenticate(request)
    return found.user.username if found else None


async def test_good_token_gets_the_group_of_all_authenticated() -> None:
    """An authenticated user is in system:authenticated, after the user's other groups."""
    found = await front_door().authenticate(presented(("Authorization", "Bearer good")))

    assert found is not None
    assert found.user.username == "jane"
    assert found.user.groups == ("system:authenticated",)


@pytest.mark.parametrize(
    "header", ["bearer good", "BEARER good", "Bearer good ignored", " Bearer good "]
)
async def test_bearer_scheme_is_read_in_any_case_and_only_its_first_word(header: str) -> None:
    """The scheme's case does not matter, nor does what follows the token."""
    assert await name(presented(("Authorization", header))) == "jane"


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer  good", "", "good"])
async def test_other_headers_are_no_credential(header: str) -> None:
    """Nothing that we know was presented: nobody, except where anonymous may come in."""
    assert await name(presented(("Authorization", header))) is None
    assert await name(presented(("Authorization", header), path="/livez")) == "system:anonymous"


@pytest.mark.parametrize("path", ["/livez", "/static/app.js", "/api/v1/secrets"])
async def test_wrong_token_is_refused_everywhere_and_never_anonymous(path: str) -> None:
    """A wrong credential is worth less than none, even on anonymous paths."""
    with pytest.raises(Rejected, match="invalid bearer token"):
        await front_door().authenticate(presented(("Authorization", "Bearer bad"), path=path))


async def test_unknown_certificate_is_refused_on_anonymous_paths_too() -> None:
    """The same holds for a certificate nobody knows."""
    peer = Peer("", Authority().issue("jane"))

    with pytest.raises(Rejected):
        await front_door().authenticate(presented(path="/livez", peer=peer))


async def test_bad_certificate_beside_a_good_token_is_the_tokens_owner() -> None:
    """A refusal does not end the search."""
    peer = Peer("", Authority().issue("mallory"))

    assert await name(presented(("Authorization", "Bearer good"), peer=peer)) == "jane"


async def test_good_certificate_wins_over_a_bad_token() -> None:
    """The first yes wins; the token is not even looked at."""
    peer = Peer("", CLIENTS.issue("carl"))

    assert await name(presented(("Authorization", "Bearer bad"), peer=peer)) == "carl"


async def test_proxy_headers_win_over_a_token() -> None:
    """The front proxy comes first in the order."""
    peer = Peer("", PROXIES.issue("proxy"))
    headers = [("X-Remote-User", "rita"), ("Authorization", "Bearer good")]

    assert await name(presented(*headers, peer=peer)) == "rita"


async def test_proxy_certificate_without_a_user_is_refused() -> None:
    """It is no client's certificate, and it names nobody: 401, not anonymous."""
    peer = Peer("", PROXIES.issue("proxy"))

    with pytest.raises(Rejected):
        await front_door().authenticate(presented(path="/livez", peer=peer))


async def test_every_request_of_a_connection_is_authenticated() -> None:
    """One keep-alive connection, three callers: none inherits from the one before."""
    peer = Peer("127.0.0.1:1")

    assert await name(presented(("Authorization", "Bearer good"), peer=peer)) == "jane"
    assert await name(presented(peer=peer)) is None
    with pytest.raises(Rejected):
        await front_door().authenticate(presented(("Authorization", "Bearer bad"), peer=peer))


async def test_all_refusals_of_the_token_authenticators_are_collected_once() -> None:
    """Two reasons are in brackets, equal ones once."""
    refusing = TokensOf({}, {"x": "too old"})
    union = UnionTokenAuthenticator([refusing, refusing, TokensOf({}, {"x": "too odd"})])

    with pytest.raises(Rejected) as refusal:
        await union.authenticate_token("x", API)

    assert str(refusal.value) == "[too old, too odd]"


async def test_later_token_authenticator_may_know_what_an_earlier_refused() -> None:
    """Within the union of tokens, too, a later yes wins."""
    union = UnionTokenAuthenticator([TokensOf({}, {"x": "no"}), TokensOf({"x": "xena"})])

    found = await union.authenticate_token("x", API)

    assert found is not None
    assert found.user.username == "xena"


async def test_credential_for_other_audiences_is_refused() -> None:
    """A credential that says for whom it is must be for this server."""

    class Elsewhere:
        async def authenticate(self, presented: Presented) -> Authenticated | None:
            return Authenticated(UserInfo("jane"), ("elsewhere",))

    with pytest.raises(Rejected):
        await UnionAuthenticator([Elsewhere()], API).authenticate(presented())


@pytest.mark.parametrize(
    ("path", "who"),
    [
        ("/livez", "system:anonymous"),
        ("/static/a/b.js", "system:anonymous"),
        ("/livez/", None),
        ("/static", None),
        ("/static/../api", None),
        ("/static/%2e%2e/api", None),
        ("/static//x", None),
        ("/livezz", None),
        ("/", None),
    ],
)
async def test_anonymous_comes_in_by_listed_paths_only(path: str, who: str | None) -> None:
    """Exact paths exactly, and below a listed one only what cannot mean anything else."""
    assert await name(presented(path=path)) == who


async def test_anonymous_is_in_the_group_of_the_unauthenticated_alone() -> None:
    """Its one group is system:unauthenticated."""
    found = await front_door().authenticate(presented(path="/livez"))

    assert found is not None
    assert found.user.groups == ("system:unauthenticated",)


@pytest.mark.parametrize("path", ["livez", "/*", "/a*", "/a/*/b", ""])
def test_unfit_anonymous_path_is_refused_at_start(path: str) -> None:
    """A pattern that would open everything, or nothing, is a mistake."""
    with pytest.raises(InvalidAnonymousPath):
        AnonymousAuthenticator([path])


PREFIX = "base64url.bearer.authorization.orch.io."
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))


async def test_websocket_subprotocol_carries_a_token() -> None:
    """A browser sends the token as a subprotocol, because it cannot set the header."""
    offered = ("Sec-WebSocket-Protocol", f"v4.channel, {PREFIX}Z29vZA")

    assert await name(presented(*UPGRADE, offered)) == "jane"
    assert await name(presented(offered)) is None


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        (f"{PREFIX}Z29vZA", "missing additional subprotocol"),
        (f"x, {PREFIX}Z29vZA, {PREFIX}Z29vZA", "multiple"),
        (f"x, {PREFIX}Z29vZA==", "encoding"),
        (f"x, {PREFIX}_w", "invalid base64.bearer.authorization token"),
        (f"x, {PREFIX}YmFk", "invalid bearer token"),
    ],
)
async def test_bad_websocket_token_is_refused(offered: str, reason: str) -> None:
    """Every malformed entry is a refusal."""
    request = presented(*UPGRADE, ("Sec-WebSocket-Protocol", offered))

    with pytest.raises(Rejected, match=reason):
        await front_door().authenticate(request)


async def test_two_requests_that_find_a_caller_gone_are_both_refused() -> None:
    """They share the cache of their headers, and may use it concurrently."""

    async def gone() -> bool:
        await asyncio.sleep(0)
        return False

    kept = Authenticated(UserInfo(username="jane"), still_valid=gone)
    requests = [presented(("Authorization", "Bearer bad")) for _ in range(2)]
    requests[0].memo.caller = kept
    requests[1].memo = requests[0].memo

    found = await asyncio.gather(*map(name, requests), return_exceptions=True)

    assert [type(each) for each in found] == [Rejected, Rejected]
    assert requests[0].memo.caller is None
