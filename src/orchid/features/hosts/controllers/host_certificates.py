"""Index of the certificates that hosts have, for the rule: one live certificate per host.

Reads   issuedcertificates of the signer for node clients; certificatesigningrequests for it

A host joins with a token. A copy of that token must be worthless once the host has joined, so a
request by token is not approved while a certificate of the same user with another key is valid.
An approved request counts as a certificate until its record is here. Start with
`HostCertificates.claim`, which checks and reserves in one step. All of this is computed from
objects: another leader reaches the same result.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.request_conditions import FAILED

HOLD = "certificateHold"  # can be lifted, so the certificate counts as valid
MOST_RENEWALS = 20  # of a host in PERIOD: the holder of a stolen key cannot collect certificates
PERIOD = timedelta(hours=1)


class Claim(msgspec.Struct, frozen=True):
    """A certificate, or a request that will lead to one."""

    key: str  # SHA-256 of the public key, in hex
    text: str  # for messages
    ends: datetime | None = None  # None: not issued yet
    issued: datetime | None = None
    is_revoked: bool = False

    def is_live(self, now: datetime) -> bool:
        return not self.is_revoked and (self.ends is None or self.ends > now)

    def is_recent(self, now: datetime) -> bool:
        return self.issued is None or self.issued > now - PERIOD


class HostCertificates:
    """Certificates and approved requests, by the user that they name."""

    def __init__(self, client: Client, signer: str) -> None:
        self._client = client
        self._signer = signer
        self._records = ListSelection(IssuedCertificate, fields=f"spec.signerName={signer}")
        self.all_loaded = asyncio.Event()
        self.forget()

    def forget(self) -> None:
        """Start over: no request is approved until all records are loaded again."""
        self.all_loaded.clear()
        self._by_user: dict[str, dict[str, Claim]] = {}  # by serial number, or by request uid
        self._recorded: dict[str, str] = {}  # serial numbers, by the uid of their request
        self._waiting: dict[str, dict[str, str]] = {}  # names of refused requests, by user and uid

    def claim(self, user: str, csr: CertificateSigningRequest, now: datetime) -> str:
        """Reserve the user for a request, or return the certificate that prevents it."""
        if not self.all_loaded.is_set():
            raise TryAgain("not every certificate is loaded yet")
        own = _key(csr)
        claims = self._by_user.get(user, {})
        for holder, claim in claims.items():
            if holder != csr.metadata.uid and claim.key != own and claim.is_live(now):
                self._waiting.setdefault(user, {})[csr.metadata.uid] = csr.name
                return claim.text
        self._put(user, csr.metadata.uid, Claim(own, f"the request {csr.name}"))
        return ""

    def renew(self, user: str, csr: CertificateSigningRequest, now: datetime) -> bool:
        """Reserve the user for a renewal by its own certificate, unless there were too many."""
        if not self.all_loaded.is_set():
            raise TryAgain("not every certificate is loaded yet")
        claims = self._by_user.get(user, {})
        others = [claim for uid, claim in claims.items() if uid != csr.metadata.uid]
        if sum(claim.is_recent(now) for claim in others) >= MOST_RENEWALS:
            return False
        self._put(user, csr.metadata.uid, Claim(_key(csr), f"the request {csr.name}"))
        return True

    def release(self, user: str, csr: CertificateSigningRequest) -> None:
        """Undo `claim` or `renew`: the request was not approved."""
        self._drop(user, csr.metadata.uid)

    def waiting(self, user: str) -> list[str]:
        """The names of the requests that `claim` refused and that are still undecided."""
        return list(self._waiting.get(user, {}).values())

    def take_request(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        """Apply one event about a request for the signer."""
        csr = event.object
        if csr.spec.signer_name != self._signer:
            return
        uid = csr.metadata.uid
        try:
            user = signing_request.parse_once(csr.spec.request or b"").subject.common_name
        except Refusal:
            return
        counts = csr.is_approved and not csr.has(FAILED) and uid not in self._recorded
        if event.type == DELETED or not counts:
            if csr.is_decided or event.type == DELETED:
                self._drop(user, uid)
                self._settle(user, uid)
        else:
            self._settle(user, uid)
            self._put(user, uid, Claim(_key(csr), f"the request {csr.name}"))

    async def follow(self, changed: Callable[[str], None]) -> None:
        """Follow all records; `changed` is called with the user of each that changes."""
        async with contextlib.aclosing(self._client.follow(self._records)) as batches:
            async for batch in batches:
                for event in batch:
                    self._take_record(event)
                    if self.all_loaded.is_set():
                        changed(event.object.username)
                if not batch:
                    self.all_loaded.set()

    def _take_record(self, event: WatchedChange[IssuedCertificate]) -> None:
        record, user = event.object, event.object.username
        serial, request = record.name, record.spec.request.uid
        if record.spec.cluster:
            return  # its API server reports whatever signer and user it wants
        if event.type == DELETED:
            self._recorded.pop(request, None)
            self._drop(user, serial)
            return
        self._recorded[request] = serial
        self._drop(user, request)  # the record replaces its request
        revoked = record.status.revoked
        claim = Claim(
            record.spec.key.sha256,
            f"the certificate {serial}, valid until {record.spec.not_after}",
            record.spec.not_after,
            record.metadata.creation_timestamp,
            is_revoked=revoked is not None and revoked.reason != HOLD,
        )
        self._put(user, serial, claim)

    def _settle(self, user: str, uid: str) -> None:
        waiting = self._waiting.get(user, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(user, None)

    def _put(self, user: str, holder: str, claim: Claim) -> None:
        self._by_user.setdefault(user, {})[holder] = claim

    def _drop(self, user: str, holder: str) -> None:
        claims = self._by_user.get(user, {})
        claims.pop(holder, None)
        if not claims:
            self._by_user.pop(user, None)


def _key(csr: CertificateSigningRequest) -> str:
    key = signing_request.parse_once(csr.spec.request or b"").spki
    return hashlib.sha256(key).hexdigest()
