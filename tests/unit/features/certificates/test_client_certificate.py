"""Authentication by client certificate, and when it ends."""

import datetime
from collections.abc import Sequence

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.features.certificates.authenticators.client_certificate import (
    REFUSE_FOR,
    ClientCertificateAuthenticator,
)
from orchid.kernel.credentials.x509.certificates import credential_id
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.access.presenting import Authority, FakeClock, presented

AUTHORITY = Authority()


def authenticator(clock: FakeClock | None = None) -> ClientCertificateAuthenticator:
    return ClientCertificateAuthenticator(lambda: AUTHORITY.pool, clock or FakeClock(), ORCH)


async def test_common_name_organizations_and_uid_make_the_user() -> None:
    """A verified certificate gives name, groups in order, uid and credential id."""
    leaf = AUTHORITY.issue("jane", ["devs", "ops"], uids=["u-1"])

    found = await authenticator().authenticate(presented(peer=Peer("", leaf)))

    assert found is not None
    assert found.user.username == "jane"
    assert found.user.groups == ("devs", "ops", "system:authenticated")
    assert found.user.uid == "u-1"
    assert found.user.extra == {"authentication.orch.io/credential-id": (credential_id(leaf),)}


async def test_no_certificate_is_no_opinion() -> None:
    """A connection without a certificate leaves the question to others."""
    assert await authenticator().authenticate(presented()) is None


async def test_empty_common_name_is_no_opinion() -> None:
    """A certificate that names nobody leaves the question to others."""
    leaf = AUTHORITY.issue("", ["devs"])

    assert await authenticator().authenticate(presented(peer=Peer("", leaf))) is None


async def test_certificate_of_an_unknown_authority_is_refused() -> None:
    """Only the configured pool counts, whatever the name of the authority."""
    leaf = Authority().issue("jane")

    with pytest.raises(Rejected, match="unknown authority"):
        await authenticator().authenticate(presented(peer=Peer("", leaf)))


async def test_what_tls_verified_elsewhere_is_still_verified_here() -> None:
    """The listener's word that TLS verified a chain does not replace our pool."""
    leaf = Authority().issue("jane")

    with pytest.raises(Rejected):
        await authenticator().authenticate(presented(peer=Peer("", leaf, verified_by_tls=True)))


async def test_serving_certificate_proves_no_client() -> None:
    """A certificate for servers only is refused, though its chain is good."""
    leaf = AUTHORITY.issue("jane", usage=ExtendedKeyUsageOID.SERVER_AUTH)

    with pytest.raises(Rejected, match="incompatible key usage"):
        await authenticator().authenticate(presented(peer=Peer("", leaf)))


async def test_two_uids_are_refused() -> None:
    """A certificate with two uids is not guessed at."""
    leaf = AUTHORITY.issue("jane", uids=["u-1", "u-2"])

    with pytest.raises(Rejected, match="multiple"):
        await authenticator().authenticate(presented(peer=Peer("", leaf)))


async def test_garbage_in_place_of_a_certificate_is_refused() -> None:
    """Bytes that are no certificate end in a refusal, not in an error of ours."""
    with pytest.raises(Rejected):
        await authenticator().authenticate(presented(peer=Peer("", b"\x30\x03\x02\x01\x01")))


async def test_expiry_is_looked_at_in_every_request_of_a_connection() -> None:
    """A connection outlives its certificate, but the identity does not."""
    clock = FakeClock()
    peer = Peer("", AUTHORITY.issue("jane", lasts=datetime.timedelta(minutes=2)))
    guard = authenticator(clock)
    assert await guard.authenticate(presented(peer=peer)) is not None

    clock.advance(121)

    with pytest.raises(Rejected, match="expired"):
        await guard.authenticate(presented(peer=peer))
    with pytest.raises(Rejected, match="expired"):
        await guard.authenticate(presented(peer=peer))


async def test_proof_is_kept_for_the_connection_and_dropped_with_the_pool() -> None:
    """The chain is proven once per connection, and again once the authorities change."""
    pools = [AUTHORITY.pool]
    guard = ClientCertificateAuthenticator(lambda: pools[-1], FakeClock(), ORCH)
    peer = Peer("", AUTHORITY.issue("jane"))

    first = await guard.authenticate(presented(peer=peer))
    again = await guard.authenticate(presented(peer=peer))
    pools.append(Authority().pool)

    assert first is again
    with pytest.raises(Rejected):
        await guard.authenticate(presented(peer=peer))


async def test_a_refusal_is_kept_for_the_connection_for_a_moment() -> None:
    """A chain is verified again after a while and with new authorities, not for each request."""
    clock, pools = FakeClock(), [CountingPool()]
    guard = ClientCertificateAuthenticator(lambda: pools[-1], clock, ORCH)
    peer = Peer("", Authority().issue("jane"))

    async def refused() -> None:
        with pytest.raises(Rejected, match="unknown authority"):
            await guard.authenticate(presented(peer=peer))

    for _ in range(100):
        await refused()
    assert pools[0].judged == 1
    clock.advance(REFUSE_FOR.total_seconds() + 1)
    await refused()
    assert pools[0].judged == 2
    pools.append(CountingPool())
    await refused()
    assert pools[1].judged == 1


async def test_a_certificate_may_begin_to_be_valid_on_an_open_connection() -> None:
    """A refusal for coming too early does not outlive its reason by much."""
    clock = FakeClock()
    peer = Peer("", AUTHORITY.issue("jane"))
    clock.advance(-3600)
    guard = authenticator(clock)
    with pytest.raises(Rejected):
        await guard.authenticate(presented(peer=peer))

    clock.advance(3600)

    assert await guard.authenticate(presented(peer=peer)) is not None


@pytest.mark.parametrize(("seconds", "judged"), [(299, 1), (301, 2), (-1, 2)])
async def test_a_chain_is_verified_again_after_five_minutes_or_when_the_clock_steps_back(
    seconds: float, judged: int
) -> None:
    """A cached proof has a stated end, and it does not begin before it was made."""
    clock, pool = FakeClock(), CountingPool()
    guard = ClientCertificateAuthenticator(lambda: pool, clock, ORCH)
    peer = Peer("", AUTHORITY.issue("jane"))
    await guard.authenticate(presented(peer=peer))

    clock.advance(seconds)
    await guard.authenticate(presented(peer=peer))

    assert pool.judged == judged


@pytest.mark.parametrize(("seconds", "judged"), [(4, 1), (6, 2), (-1, 2)])
async def test_a_refusal_is_cached_for_five_seconds(seconds: float, judged: int) -> None:
    """The reason may be gone soon: a certificate begins, or a clock is corrected."""
    clock, pool = FakeClock(), CountingPool()
    guard = ClientCertificateAuthenticator(lambda: pool, clock, ORCH)
    peer = Peer("", Authority().issue("jane"))
    with pytest.raises(Rejected):
        await guard.authenticate(presented(peer=peer))

    clock.advance(seconds)
    with pytest.raises(Rejected):
        await guard.authenticate(presented(peer=peer))

    assert pool.judged == judged


class CountingPool(ClientVerifier):
    """A pool of AUTHORITY that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(AUTHORITY.pool.authorities)
        self.judged = 0

    def verify(
        self, leaf: bytes, intermediates: Sequence[bytes], now: datetime.datetime
    ) -> VerifiedChain:
        self.judged += 1
        return super().verify(leaf, intermediates, now)
