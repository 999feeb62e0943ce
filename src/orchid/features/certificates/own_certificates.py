"""Inventory records of the certificates that the server issued to itself, and their renewal.

These are its serving certificate and that of admin.kubeconfig, which no request led to. At each
start and after each renewal they are read from their files and recorded, unless they are recorded
or another authority issued them. So they can be found, revoked and put on a revocation list like
any other. Their signer is the platform's legacy-unknown, so that the revocation of all client
certificates leaves the administrator a way in. When one is due: kernel/settings/data_directory.py.
"""

import asyncio
import base64
import binascii
import contextlib
import logging
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from orchid.features.certificates.kinds.issued_certificate import (
    OWN_CERTIFICATE,
    Approval,
    IssuedCertificate,
    Requester,
    issuance,
    record_of,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.authorities.validity import BACKDATE
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Store, StoreError
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 60.0
_find_certificate = re.compile(rb"client-certificate-data: ([A-Za-z0-9+/=]+)").search


class OwnFiles(NamedTuple):
    """The files with the server's own certificates, and the authority that issued them."""

    authority: Path
    serving: Path
    kubeconfig: Path


class OwnCertificates:
    """The certificates in the files of one server."""

    def __init__(
        self,
        files: OwnFiles,
        feed: Feed,
        store: Store,
        *,
        naming: Naming,
        randomness: Randomness,
        user: UserInfo,
        renewal: Callable[[], Callable[[datetime], bool]],
    ) -> None:
        """`renewal` returns a function for a thread, which issues the certificates again where that
        is due, and returns whether it did.
        """
        self._files = files
        self._feed = feed
        self._store = store
        self._naming = naming
        self._random = randomness
        self._user = user
        self._renewal = renewal
        self._problem = ""
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Renew soon: other keys of the authority are in use."""
        self._changed.set()

    async def run(self, clock: Clock) -> None:
        """Renew the certificates while the server runs; open connections keep the old one."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            await self.renew(clock)

    async def renew(self, clock: Clock) -> None:
        """Renew what is due, and record it; a failure is logged, and tried again."""
        if await self.renew_files(clock):
            with contextlib.suppress(StoreError):  # the next round records it
                await self.record(clock)

    async def renew_files(self, clock: Clock) -> bool:
        """Renew what is due; a failure is logged. Returns whether there was none."""
        try:
            if await asyncio.to_thread(self._renewal(), clock.now()):
                log.info("own_certificates.renewed")
        except (Refusal, OSError) as problem:
            if str(problem) != self._problem:
                log.error("own_certificates.not_renewed: %s", problem)
            self._problem = str(problem)
            return False
        self._problem = ""
        return True

    async def record(self, clock: Clock) -> None:
        """Store a record of each certificate that has none."""
        records = self._feed.of(IssuedCertificate)
        for file, facts in await asyncio.to_thread(self._found):
            if records.get("", facts.serial) is None and facts.not_after > clock.now():
                await self._store_record(self._record(facts, file), clock.now())
        await self._feed.fresh()

    async def _store_record(self, record: IssuedCertificate, now: datetime) -> None:
        kind = self._feed.of(IssuedCertificate).kind
        request = Request(Target(verb="create"), self._user, now)
        entries = store_keys.pending(issuance(record, None, request), record.metadata.uid, now)
        change = Change(kind.key("", record.name), stored_form(record), ABSENT)
        try:
            await self._store.commit([change, *entries])
        except RevisionConflict:
            return  # another process was faster

    def _found(self) -> list[tuple[str, IssuedFacts]]:
        """Each file with the certificate in it, if the server's own authority issued it."""
        files, entries = self._files, []
        try:
            authorities = certificates.parse_blocks(read_bounded(files.authority))
        except Refusal:
            return []
        for path, read in ((files.serving, _chain), (files.kubeconfig, _client_certificate)):
            try:
                facts = read_issued(read(read_bounded(path)))
            except (Refusal, StopIteration):
                continue  # there is none, or it is not ours to judge
            if any(has_issued(authority, facts.certificate) for authority in authorities):
                entries.append((path.name, facts))
        return entries

    def _record(self, facts: IssuedFacts, file: str) -> IssuedCertificate:
        return record_of(
            self._feed.of(IssuedCertificate).kind,
            facts,
            uid=self._random.uid(),
            issued=facts.not_before + BACKDATE,
            signer_name=self._naming.legacy_signer,
            requester=Requester(username=self._user.username),
            approval=Approval(reason=OWN_CERTIFICATE, message=f"The server made {file}."),
        )


def _chain(data: bytes) -> bytes:
    return data


def _client_certificate(data: bytes) -> bytes:
    """The certificate chain in a kubeconfig as the server writes it."""
    match = _find_certificate(data)
    try:
        return base64.b64decode(match[1], validate=True) if match else b""
    except binascii.Error:
        return b""
