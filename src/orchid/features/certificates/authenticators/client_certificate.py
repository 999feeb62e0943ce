"""Client certificates: authentication by the certificate of the TLS connection.

Start with `ClientCertificateAuthenticator`. `CertificateProof` is shared with request_header.py: it
verifies a peer's certificate against a pool of CAs, once per connection and pool, because the
handshake has proven possession of the key. A result ends with the first certificate of the chain,
and after a few minutes. A refusal is cached too, for seconds: verifying a long chain takes
milliseconds, and a client may repeat its request.

Revocations (features/revocation/revocations.py) of every certificate in the chain are checked in
every request, after the verification, by properties that the holder cannot change
(kernel/credentials/x509/trust/verified_chain.py). The check is as fresh as a read: no server
accepts a certificate that was revoked before the request. Only health endpoints must respond while
the store does not; they use the revocations that have arrived.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

import msgspec

from orchid.features.certificates.authenticators.pod_certificate import PodCertificates
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.access.authenticators.audiences import with_group
from orchid.kernel.access.cross_site import refuse_cross_site
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.certificates import Identity, identify
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain
from orchid.kernel.engine.interfaces import Authenticated, Presented, PresentedPeer, Rejected
from orchid.kernel.engine.request import HEALTH_PAGES, OwnCertificate
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

Warned = Callable[[VerifiedChain], str]
RECHECK_AFTER = timedelta(minutes=5)
REFUSE_FOR = timedelta(seconds=5)  # a certificate may become valid on an open connection


class Proven(msgspec.Struct, frozen=True):
    """A verified certificate of a connection: its user, the pool, and the time of validity."""

    pool: ClientVerifier
    identity: Identity
    authenticated: Authenticated
    begins: datetime
    ends: datetime
    chain: VerifiedChain


class Disproven(msgspec.Struct, frozen=True):
    """A refused certificate of a connection: the reason, the pool, and the end of the entry."""

    pool: ClientVerifier
    reason: str
    begins: datetime
    ends: datetime


class CertificateProof:
    """Verify certificates against the current pool."""

    def __init__(
        self,
        pool: Callable[[], ClientVerifier],
        clock: Clock,
        extra: str,
        revocations: Revocations | None = None,
        warning: Warned = lambda chain: "",
    ) -> None:
        """`warning`: a text for the holder of a certificate, or nothing."""
        self._warning = warning
        # By connection; an entry ends with it.
        self._results: WeakKeyDictionary[PresentedPeer, Proven | Disproven] = WeakKeyDictionary()
        self._pool = pool
        self._clock = clock
        self._extra = extra
        self._revocations = revocations

    async def prove(self, presented: Presented) -> Proven | None:
        """The verified certificate, None if there is no certificate; raises Rejected."""
        peer: PresentedPeer = presented.peer
        if peer.certificate is None:
            return None
        pool, now = self._pool(), self._clock.now()
        result = self._results.get(peer)
        if result is None or result.pool is not pool or not result.begins <= now <= result.ends:
            result = self._results[peer] = self._checked(peer, pool, now)
        if isinstance(result, Disproven):
            raise Rejected(result.reason)
        if self._revocations is not None:
            if not presented.path.startswith(HEALTH_PAGES):
                await self._revocations.fresh()
            self._revocations.refuse_certificate(result.chain, result.identity.user)
        return result

    def _checked(
        self, peer: PresentedPeer, pool: ClientVerifier, now: datetime
    ) -> Proven | Disproven:
        assert peer.certificate is not None
        try:
            chain = pool.verify(peer.certificate, peer.chain, now)
            identity = identify(peer.certificate)
        except Refusal as refusal:
            return Disproven(pool, str(refusal), now, now + REFUSE_FOR)
        user = UserInfo(
            username=identity.user,
            uid=identity.uid,
            groups=identity.groups,
            extra={self._extra: (identity.credential_id,)},
        )
        return Proven(
            pool=pool,
            identity=identity,
            authenticated=Authenticated(
                with_group(user),
                certificate=OwnCertificate(chain.sha256, chain.serial),
                warnings=tuple(filter(None, (self._warning(chain),))),
            ),
            begins=now,  # if the clock steps back, the chain is verified again
            ends=min(chain.end, now + RECHECK_AFTER),
            chain=chain,
        )


class ClientCertificateAuthenticator:
    """Authenticate by common name and organizations of a client certificate."""

    def __init__(
        self,
        pool: Callable[[], ClientVerifier],
        clock: Clock,
        naming: Naming,
        revocations: Revocations | None = None,
        pods: PodCertificates | None = None,
        *,
        warning: Warned = lambda chain: "",
    ) -> None:
        """`pods`: the accounts and Pods that certificates of Pods depend on. `warning`: a text for
        the holder of a certificate, or nothing.
        """
        self._proof = CertificateProof(pool, clock, naming.credential_id, revocations, warning)
        self._pods = pods

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        proven = await self._proof.prove(presented)
        if proven is None or not proven.identity.user:
            return None
        if self._pods is not None and proven.identity.uid:
            self._pods.refuse_ended(proven.identity, proven.chain)
        refuse_cross_site(presented)
        return proven.authenticated
