"""Front-proxy headers count only after the proxy has proven itself."""

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.certificates.authenticators.request_header import (
    InvalidRequestHeaderSettings,
    RequestHeaderAuthenticator,
    RequestHeaderSettings,
    extra_key,
    refuse_shared_authorities,
)
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedToken, RevokedUser
from tests.unit.kernel.access.presenting import START, Authority, FakeClock, presented
from tests.unit.kernel.access.world import REVOCABLE, revocation, world_of

PROXIES = Authority("proxies")
CLIENTS = Authority("clients")
PROXY = PROXIES.issue("front-proxy")
CLIENT_LEAF = CLIENTS.issue("jane")
USUAL = RequestHeaderSettings(
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
    allowed_names=("front-proxy",),
)
NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=3, max_size=12)


def authenticator(settings: RequestHeaderSettings = USUAL) -> RequestHeaderAuthenticator:
    return RequestHeaderAuthenticator(settings, lambda: PROXIES.pool, FakeClock(), ORCH)


async def test_proven_proxy_names_user_uid_groups_and_extra() -> None:
    """All configured headers of a proxy with its certificate make the user."""
    request = presented(
        ("X-Remote-User", "jane"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "devs,not-split"),
        ("X-Remote-Group", ""),
        ("X-Remote-Group", "ops"),
        ("X-Remote-Extra-Scopes", "view"),
        ("X-Remote-Extra-Scopes", "edit"),
        ("X-Remote-Extra-ACME.com%2Fproject", "p1"),
        peer=Peer("", PROXY),
    )

    found = await authenticator().authenticate(request)

    assert found is not None
    assert found.user.username == "jane"
    assert found.user.uid == "u-1"
    assert found.user.groups == ("devs,not-split", "ops")
    assert found.user.extra == {"scopes": ("view", "edit"), "acme.com/project": ("p1",)}


async def test_headers_without_a_certificate_have_no_effect() -> None:
    """Anybody can write headers; without the proxy's certificate they are not read."""
    request = presented(("X-Remote-User", "root"), ("X-Remote-Group", "system:masters"))

    assert await authenticator().authenticate(request) is None


async def test_headers_with_a_certificate_of_another_authority_are_refused() -> None:
    """A client's certificate does not make it a proxy."""
    leaf = CLIENTS.issue("front-proxy")
    request = presented(("X-Remote-User", "root"), peer=Peer("", leaf))

    with pytest.raises(Rejected):
        await authenticator().authenticate(request)


async def test_headers_with_the_right_authority_and_a_wrong_common_name_are_refused() -> None:
    """The proxies' authority may issue for others too; only listed names may speak."""
    leaf = PROXIES.issue("somebody")
    request = presented(("X-Remote-User", "root"), peer=Peer("", leaf))

    with pytest.raises(Rejected, match="subject with cn=somebody is not in the allowed list"):
        await authenticator().authenticate(request)


async def test_no_listed_names_means_any_name_of_that_authority() -> None:
    """Without a list every certificate of the proxies' authority is a proxy's."""
    settings = RequestHeaderSettings(username_headers=("X-Remote-User",))
    request = presented(("X-Remote-User", "jane"), peer=Peer("", PROXIES.issue("any")))

    found = await authenticator(settings).authenticate(request)

    assert found is not None
    assert found.user.username == "jane"


async def test_missing_user_is_no_opinion() -> None:
    """A proxy that names nobody leaves the question to others."""
    request = presented(("X-Remote-Group", "system:masters"), peer=Peer("", PROXY))

    assert await authenticator().authenticate(request) is None


async def test_empty_first_value_counts_as_missing() -> None:
    """Of a repeated user header the first value counts, even if it is empty."""
    request = presented(("X-Remote-User", ""), ("X-Remote-User", "jane"), peer=Peer("", PROXY))

    assert await authenticator().authenticate(request) is None


@given(user=NAMES, group=NAMES, prefix=NAMES, value=st.text(string.ascii_letters, min_size=1))
async def test_renamed_headers_cannot_be_forged_by_any_name(
    user: str, group: str, prefix: str, value: str
) -> None:
    """For any configured names, nobody gets in by them without the proxy's certificate."""
    settings = RequestHeaderSettings(
        username_headers=(f"x-u-{user}",),
        group_headers=(f"x-g-{group}",),
        extra_prefixes=(f"x-e-{prefix}-",),
    )
    headers = [
        (f"X-U-{user}", value),
        (f"X-G-{group}", "system:masters"),
        (f"X-E-{prefix}-a", value),
        ("X-Remote-User", value),
        ("X-Remote-Group", "system:masters"),
    ]

    assert await authenticator(settings).authenticate(presented(*headers)) is None
    request = presented(*headers, peer=Peer("", CLIENT_LEAF))
    with pytest.raises(Rejected):
        await authenticator(settings).authenticate(request)


async def test_usual_names_mean_nothing_when_others_are_configured() -> None:
    """A proxy's headers are read by their configured names, not by the usual ones."""
    settings = RequestHeaderSettings(username_headers=("X-Who",))
    request = presented(
        ("X-Who", "jane"), ("X-Remote-Group", "system:masters"), peer=Peer("", PROXY)
    )

    found = await authenticator(settings).authenticate(request)

    assert found is not None
    assert found.user.groups == ()


@pytest.mark.parametrize(
    ("text", "key"),
    [("Scopes", "scopes"), ("A%2Fb", "a/b"), ("a%zz", "a%zz"), ("a%ff", "a%ff"), ("100%", "100%")],
)
def test_extra_keys_are_lowered_then_decoded(text: str, key: str) -> None:
    """An invalid escape sequence, or one that decodes to invalid UTF-8, stays unchanged."""
    assert extra_key(text) == key


def test_settings_that_cannot_work_are_refused_at_start() -> None:
    """No user header, an empty name, and a uid header that others would not know."""
    with pytest.raises(InvalidRequestHeaderSettings):
        RequestHeaderSettings(username_headers=())
    with pytest.raises(InvalidRequestHeaderSettings):
        RequestHeaderSettings(username_headers=("X-Remote-User",), group_headers=("",))
    with pytest.raises(InvalidRequestHeaderSettings):
        RequestHeaderSettings(username_headers=("X-Remote-User",), uid_headers=("X-Uid",))


def test_one_authority_for_clients_and_proxies_needs_listed_names() -> None:
    """Or every client could name itself anybody; also with a new certificate of the same key."""
    with pytest.raises(InvalidRequestHeaderSettings, match="overlapping certificates"):
        refuse_shared_authorities(CLIENTS.pool, CLIENTS.pool, ())

    with pytest.raises(InvalidRequestHeaderSettings, match="overlapping certificates"):
        refuse_shared_authorities(CLIENTS.renewed().pool, CLIENTS.pool, ())
    refuse_shared_authorities(CLIENTS.pool, CLIENTS.pool, ("front-proxy",))
    refuse_shared_authorities(PROXIES.pool, CLIENTS.pool, ())


async def test_a_revoked_credential_that_the_proxy_reports_is_refused() -> None:
    """The proxy accepted a token whose id it passes on; its revocation counts here."""
    head = (
        ("X-Remote-User", "jane"),
        (f"X-Remote-Extra-{quote(ORCH.credential_id, safe='')}", "JTI=j-1"),
    )
    async with world_of(*REVOCABLE) as here:
        proxied = RequestHeaderAuthenticator(
            USUAL, lambda: PROXIES.pool, FakeClock(), ORCH, Revocations(here.feed)
        )
        request = presented(*head, peer=Peer("", PROXY))
        assert await proxied.authenticate(request) is not None

        await here.put(revocation("r", RevokedToken(jti="j-1")))

        with pytest.raises(Rejected, match="has been revoked"):
            await proxied.authenticate(request)


async def test_a_revoked_user_is_refused_whatever_the_proxy_accepted() -> None:
    """The headers have no time of issue."""
    async with world_of(*REVOCABLE) as here:
        proxied = RequestHeaderAuthenticator(
            USUAL, lambda: PROXIES.pool, FakeClock(), ORCH, Revocations(here.feed)
        )
        await here.put(revocation("r", RevokedUser(username="jane", issued_before=START)))
        jane, joe = (
            presented(("X-Remote-User", name), peer=Peer("", PROXY)) for name in ("jane", "joe")
        )

        assert await proxied.authenticate(joe) is not None
        with pytest.raises(Rejected, match="credentials of this user have been revoked"):
            await proxied.authenticate(jane)
