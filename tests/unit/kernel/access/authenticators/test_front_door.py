"""Whatever is sent to the front door, it answers who it is or refuses: it never breaks."""

import asyncio
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.accounts.authenticators.secret_token import SecretTokens
from orchid.features.accounts.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
    account_verifier,
)
from orchid.features.certificates.authenticators.client_certificate import (
    ClientCertificateAuthenticator,
)
from orchid.features.certificates.authenticators.request_header import (
    RequestHeaderAuthenticator,
    RequestHeaderSettings,
)
from orchid.features.sign_in.authenticators.bootstrap_token import BootstrapTokenAuthenticator
from orchid.features.sign_in.authenticators.static_token import StaticTokenAuthenticator
from orchid.features.sign_in.authenticators.webhook_token import WebhookTokenAuthenticator
from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator
from orchid.features.sign_in.oidc.configuration import ClaimMapping, IssuerSettings
from orchid.kernel.access.authenticators.anonymous import AnonymousAuthenticator
from orchid.kernel.access.authenticators.bearer import BearerAuthenticator, WebSocketAuthenticator
from orchid.kernel.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.kernel.credentials.keys import b64url_encode, generate
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.engine.interfaces import Presented, Rejected
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import API, Authority, presented
from tests.unit.kernel.access.world import World, world

CLIENTS, PROXIES = Authority("clients"), Authority("proxies")
CANARY = "canary-token-4711"

PARTS = st.one_of(
    st.text(string.ascii_letters + string.digits + "-_=.", max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(API),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["iss", "sub", "aud", "exp", "kid", "alg", "orch.io", "x"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=8,
    ).map(lambda value: b64url_encode(repr(value).replace("'", '"').encode()).decode()),
)
TOKENS = st.one_of(st.text(max_size=60), st.lists(PARTS, min_size=1, max_size=4).map(".".join))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "Authorization",
                "X-Remote-User",
                "X-Remote-Group",
                "X-Remote-Extra-%zz",
                "Sec-WebSocket-Protocol",
                "Upgrade",
                "Connection",
            ]
        ),
        st.one_of(
            TOKENS.map(lambda token: f"Bearer {token}"),
            TOKENS.map(lambda token: f"x, {ORCH.websocket_bearer}{token}"),
            st.sampled_from(["websocket", "Upgrade", "Basic YTpi", ""]),
            st.text(max_size=20),
        ),
    ),
    max_size=5,
)


async def no_answer(_: bytes) -> bytes:
    return b"{}"


def front_door(here: World) -> UnionAuthenticator:
    """Every authenticator there is, joined as the assembly joins them."""
    settings = IssuerSettings("https://a.example", ("x",), ClaimMapping("sub"))
    verifier = account_verifier(API, KeySet([generate().public]), ORCH)
    tokens = UnionTokenAuthenticator(
        [
            StaticTokenAuthenticator({CANARY: UserInfo("canary")}, API),
            ServiceAccountTokenAuthenticator(
                verifier,
                here.feed,
                here.clock,
                api_audiences=API,
                naming=ORCH,
                legacy=SecretTokens(here.feed, here.clock, ORCH),
            ),
            BootstrapTokenAuthenticator(here.feed, here.clock, API, ORCH),
            OidcAuthenticator([settings], here.clock, API, ORCH),
            WebhookTokenAuthenticator(no_answer, here.clock, API, ORCH),
        ]
    )
    names = RequestHeaderSettings(("X-Remote-User",), (), ("X-Remote-Group",), ("X-Remote-Extra-",))
    return UnionAuthenticator(
        [
            RequestHeaderAuthenticator(names, lambda: PROXIES.pool, here.clock, ORCH),
            ClientCertificateAuthenticator(lambda: CLIENTS.pool, here.clock, ORCH),
            BearerAuthenticator(tokens, API),
            WebSocketAuthenticator(tokens, API, ORCH),
        ],
        API,
        AnonymousAuthenticator(["/livez"]),
    )


async def who(request: Presented) -> str | None:
    async with world() as here:
        found = await front_door(here).authenticate(request)
        return found.user.username if found else None


@given(headers=HEADERS, certificate=st.none() | st.binary(max_size=30))
def test_no_header_or_certificate_breaks_the_door(
    headers: list[tuple[str, str]], certificate: bytes | None
) -> None:
    """Strange headers and certificates are refused or mean nothing; nothing else happens."""
    request = presented(*headers, peer=Peer("", certificate))
    try:
        found = asyncio.run(who(request))
    except Rejected:
        return
    assert found is None


@pytest.mark.parametrize(
    "token",
    [
        f"{CANARY}x",
        f"{CANARY}.{CANARY}.{CANARY}",
        f"abcdef.{CANARY[:16]}",
        f"eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL29yY2hpZC50ZXN0In0.{CANARY}",
    ],
)
async def test_refusal_never_quotes_the_token(here: World, token: str) -> None:
    """The text goes to logs and reviews; the credential does not."""
    request: Any = presented(("Authorization", f"Bearer {token}"))

    with pytest.raises(Rejected) as refusal:
        await front_door(here).authenticate(request)

    assert "anary" not in str(refusal.value) + repr(refusal.value)
