"""Objects that show the CAs of the platform signers, if those are files.

The files decide: a CertificateAuthority of source File and its SigningKeys only show them, so that
`kubectl get ca`, metrics and notices work everywhere. Each server creates objects for its own files
and keeps them current (`run`). It reports the ids of its keys in its Lease (`key_ids`), so that any
server can delete the objects of files that no live server has. Clients cannot change them
(features/authorities/policies/own_signers.py, features/token_keys/policies/steps.py).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.controllers.authority_conditions import of_certificate
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.objects.kinds.lease import ServerKeys
from orchid.features.token_keys.files.file_keys import OF_FILES
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    FILE,
    SigningKey,
    authority_key_id,
    by_name,
)
from orchid.features.token_keys.policies.key_companions import owner_of
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.credentials.authorities.issuer_chain import refuse_out_of_time, spki_of
from orchid.kernel.credentials.files import Reloading, read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.issued_facts import algorithm_of
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Store, StoreError
from orchid.kernel.wire.authority_status import AuthorityKeyReference, CertificateAuthorityStatus
from orchid.kernel.wire.conditions import FALSE, READY, TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.signing_key_status import SigningKeyStatus, SigningKeyTimes
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 10.0


class FileAuthority(msgspec.Struct, frozen=True):
    """A CA of platform signers in the files of a server."""

    name: str  # of the object, and of the revocation list
    signers: tuple[str, ...]
    certificate: Path


class FileAuthorityObjects:
    """Shows the CAs of one server's files."""

    def __init__(
        self,
        authorities: Sequence[FileAuthority],
        feed: Feed,
        store: Store,
        *,
        clock: Clock,
        randomness: Randomness,
        keys: AuthorityKeyIndex,
        shown: SignerAuthorities,
        servers: Callable[[], Mapping[str, ServerKeys]],
    ) -> None:
        """`servers`: the live servers and their keys."""
        self._files = {authority: _Followed(authority.certificate) for authority in authorities}
        self._feed = feed
        self._store = store
        self._clock = clock
        self._random = randomness
        self._index = keys
        self._shown = shown
        self._servers = servers
        self._keys = feed.of(SigningKey)
        self._authorities = feed.of(CertificateAuthority)

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys in the files of this server."""
        return sorted(
            {authority_key_id(chain) for one in self._files.values() if (chain := one.current())}
        )

    async def run(self) -> None:
        """Keep the objects current until cancelled."""
        while True:
            try:
                await self.update()
            except (StoreError, Unavailable) as failure:  # next time
                log.debug("authority.files_not_shown: %s", failure)
            await asyncio.sleep(EVERY_SECONDS)

    async def update(self) -> None:
        """Write the objects that differ from the files."""
        for file, followed in self._files.items():
            if chain := followed.current():
                await self._show(file, chain)
        await self._feed.fresh()
        await self._remove_keys()
        await self._feed.fresh()
        for authority in self._shown.of_files():
            await self._refresh(authority)

    async def _show(self, authority: FileAuthority, chain: str) -> None:
        await self._feed.fresh()
        if self._authorities.get("", authority.name) is None:
            await self._write(self._authority(authority))
            await self._feed.fresh()
        key_id = authority_key_id(chain)
        entries = [entry.object for entry in self._keys.entries.values()]
        own = [key for key in entries if key.spec.authority == authority.name]
        existing = next((key for key in own if key.key_id == key_id), None)
        if existing is None:
            await self._write(self._key(authority, chain, entries))
        elif existing.is_file and existing.status.certificate != chain:
            renewed = replace(existing.status, certificate=chain)
            await self._write(replace(existing, status=renewed))

    async def _remove_keys(self) -> None:
        """Delete the keys that no live server has in its files."""
        live, own = self._servers().values(), set(self.key_ids)
        for key in self._index.of_files():
            if (
                live
                and key.key_id not in own
                and not any(key.key_id in server.keys for server in live)
            ):
                await self._delete(key)

    async def _refresh(self, authority: CertificateAuthority) -> None:
        """Bring an authority in line with its keys; without one it is deleted."""
        keys = [key for key in self._index.of_files() if key.spec.authority == authority.name]
        if not keys:
            if not any(file.name == authority.name for file in self._files):
                await self._delete(authority)
            return
        newest = max(keys, key=lambda key: key.number)
        chain, now = newest.status.certificate, self._clock.now()
        links = certificates.parse_blocks(chain)
        status = replace(
            authority.status,
            certificate=chain,
            not_after=min(link.not_valid_after_utc for link in links),
            keys=tuple(map(_reference, sorted(keys, key=lambda key: -key.number))),
        )
        conditions = _ready(chain, now), *of_certificate(chain, now)
        current = with_conditions(replace(authority, status=status), conditions, now)
        if current.status != authority.status:
            await self._write(current)

    # -- the objects -------------------------------------------------------------------------

    def _authority(self, authority: FileAuthority) -> CertificateAuthority:
        kind = self._authorities.kind
        return CertificateAuthority(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=self._meta(authority.name),
            spec=CertificateAuthoritySpec(signer_names=authority.signers),
            status=CertificateAuthorityStatus(),
        )

    def _key(
        self, authority: FileAuthority, chain: str, stored: Sequence[SigningKey]
    ) -> SigningKey:
        kind, issuing = self._keys.kind, certificates.parse_blocks(chain)[0]
        owner = self._authorities.get("", authority.name)
        owners = (owner_of(self._authorities.kind, owner.object),) if owner else ()
        now = whole_seconds(self._clock.now())
        authorities = {entry.object.name for entry in self._authorities.entries.values()}
        name = next_name(by_name(stored), authority.name, authorities)
        new = SigningKey(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=replace(self._meta(name), owner_references=owners),
            spec=SigningKeySpec(authority=authority.name, state=ACTIVE),
            status=SigningKeyStatus(
                key_id=authority_key_id(chain),
                source=FILE,
                public_key=pem.encode(pem.PUBLIC_KEY, spki_of(issuing)).decode("ascii"),
                algorithm=algorithm_of(issuing),
                times=SigningKeyTimes(active=now),
                certificate=chain,
                revocation_list=authority.name,
            ),
        )
        return with_conditions(new, (OF_FILES,), now)

    def _meta(self, name: str) -> ObjectMeta:
        now = whole_seconds(self._clock.now())
        return ObjectMeta(name=name, uid=self._random.uid(), creation_timestamp=now, generation=1)

    async def _write(self, new: Object) -> None:
        await self._commit(new, stored_form(new))

    async def _delete(self, old: Object) -> None:
        await self._commit(old, None)

    async def _commit(self, object_: Object, value: bytes | None) -> None:
        cache = self._feed.of(type(object_))
        entry = cache.get("", object_.name)
        if value is None and entry is None:
            return
        revision = entry.revision if entry else ABSENT
        try:
            await self._store.commit([Change(cache.kind.key("", object_.name), value, revision)])
        except RevisionConflict:
            log.debug("authority.files_shown_elsewhere")  # another server was faster: next time


class _Followed:
    """The certificates of one file, followed as it changes; empty while it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Reloading[str] | None = None

    def current(self) -> str:
        try:
            self._file = self._file or Reloading([self._path], self._load)
        except Refusal:
            return ""  # the controller that would sign with it reports the problem
        return self._file.current()

    def _load(self) -> str:
        found = certificates.parse_blocks(read_bounded(self._path))
        blocks = (pem.encode(pem.CERTIFICATE, certificates.encode(one)) for one in found)
        return b"".join(blocks).decode("ascii")


def _ready(chain: str, now: datetime) -> Condition:
    try:
        refuse_out_of_time(certificates.parse_blocks(chain), now)
    except Refusal as refusal:
        reason, text = type(refusal).__name__, str(refusal)
        return Condition(type=READY, status=FALSE, reason=reason, message=text)
    text = "It is in files of the servers, which issue with it."
    return Condition(type=READY, status=TRUE, reason=FILE, message=text)


def _reference(key: SigningKey) -> AuthorityKeyReference:
    return AuthorityKeyReference(
        name=key.name, state=key.state, revocation_list=key.status.revocation_list
    )
