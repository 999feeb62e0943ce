"""Publish a revocation list for each key of an authority, for verifiers that do not use the API.

Reads   credentialrevocations; issuedcertificates (`spec` only) of signers that were revoked as a
        whole; certificateauthorities that are Ready, their SigningKeys and Secrets
Writes  ConfigMaps in the system namespace that hold the lists (list_maps.py);
        the number of the newest list into /status of its SigningKey
Never   reads issuedcertificates/status; lists a certificate of an authority that is not ours

A list has all revoked certificates that its key signed, for whichever signer: two authorities with
one key publish the same entries. The leader signs lists after each revocation and once a day, in a
thread; all servers publish the stored lists. The first list of a key that the server creates is
stored together with the key (features/token_keys/policies/material.py). An entry stays for a week
after its certificate has expired.

Other users may write ConfigMaps, too: if one of a list is changed or deleted, a new list is
published immediately. Servers serve none with a lower number than the SigningKey has.
"""

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from orchid.features.authorities.controllers.follow_authorities import (
    AuthorityFollower,
    AuthorityKeys,
)
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.revoking.controllers.list_maps import (
    ListMaps,
    StoredEdition,
    digest_of,
    head_data,
    number_in,
)
from orchid.features.revoking.controllers.revoked_serials import (
    ListEntry,
    RevokedSerials,
    SerialOfKey,
    group_of,
    named_certificate,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.issuer_chain import spki_of
from orchid.kernel.credentials.refusals import NotPermittedToSign, Refusal
from orchid.kernel.credentials.x509 import pem, stored_list
from orchid.kernel.credentials.x509.revocation_list import (
    UNSPECIFIED,
    Edition,
    RevokedCertificates,
    next_edition,
)
from orchid.kernel.runtime.context import ControllerContext, Signer
from orchid.kernel.runtime.corrections import Corrections
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running, Start, TryAgain, Worker
from orchid.kernel.wire.errors import Expired
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, rule
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

RENEWED_AFTER: Final = timedelta(days=1)
REVOCATIONS: Final = ListSelection(CredentialRevocation)
CANNOT_AGAIN: Final = 3600.0  # seconds until an authority without cRLSign is checked again
KEY_AGAIN: Final = 30.0  # seconds until the key of an authority is read again


class PublishedList(msgspec.Struct):
    """A list: its authority, and the signers whose certificates may be in it."""

    authority: Callable[[], Authority]
    signers: frozenset[str]
    owner: str  # the name of the CertificateAuthority
    key: str = ""  # the name of its SigningKey; empty if it is a file

    def groups(self) -> list[str]:
        """The groups of certificates in this list: those signed with the authority's key."""
        key = self.authority().key_id.hex()
        unnamed = [group_of("", signer) for signer in sorted(self.signers)]
        return [key, *unnamed] if key else unnamed


class AuthorityWide(NamedTuple):
    """A revocation of all certificates of a signer that were issued up to some time."""

    name: str
    until: datetime
    when: datetime
    reason: str


class PublishRevocationLists(Worker[str, None]):
    name = "revocation-list-publisher"
    workers = 1

    def __init__(
        self,
        client: Client,
        signers: Mapping[str, Signer],
        naming: Naming,
        clock: Clock,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        """`signers`: those of the platform; CertificateAuthorities are followed."""
        super().__init__()
        self._client = client
        self._signers = signers
        self._authorities = AuthorityFollower(client)
        self._own = AuthorityKeys(client, naming, self._authorities, hsm=hsm)
        self._home = naming.system_namespace
        self._maps = ListMaps(client, self._home)
        self._clock = clock
        self._corrections: Corrections[str] = Corrections(clock)
        self._clear()

    def _clear(self) -> None:
        self._lists: dict[str, PublishedList] = {}
        self._own_names: dict[str, list[str]] = {}  # lists of CertificateAuthorities, by group
        self._revoked = RevokedSerials()
        self._wide: dict[str, dict[str, AuthorityWide]] = {}  # by signer and name
        self._loading: set[str] = set()  # selections that have not been listed completely
        self._loaded = False
        self._versions: Counter[str] = Counter()  # of the entries of each list
        self._stored: dict[str, StoredEdition] = {}

    async def follow(self, start: Start) -> None:
        self._clear()
        self._authorities.forget()
        changed = asyncio.Event()
        start(self._authorities.follow(lambda _authority: changed.set()))
        await self._authorities.all_loaded.wait()
        keys = self._known_keys()
        own = await self._own_lists()
        self._lists = {**own, **platform_lists(self._signers)}
        for name, list_ in own.items():
            for group in list_.groups():
                self._own_names.setdefault(group, []).append(name)
        start(self._follow_maps())
        start(self._follow_revocations(start))
        ready = self._authorities.ready
        signing = {key.name for authority in ready for key in authority.status.keys[:1]}
        loaded = {list_.key for list_ in own.values()}
        if signing <= loaded and len(loaded) == len(keys):
            await self._another(keys, changed)
        else:
            # A key that only signs its list may be lost for good.
            again = CANNOT_AGAIN if signing <= loaded else KEY_AGAIN
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._another(keys, changed), again)
        raise Expired("other keys sign now")

    async def _another(self, known: dict[str, str], changed: asyncio.Event) -> None:
        """Wait until other authorities are Ready, or have other keys or certificates."""
        while self._known_keys() == known:
            await changed.wait()
            changed.clear()

    def _known_keys(self) -> dict[str, str]:
        """The certificate of the signer for each key in use, by its list."""
        return {
            key.name: authority.status.certificate
            for authority in self._authorities.ready
            for key in authority.status.keys
        }

    async def _own_lists(self) -> dict[str, PublishedList]:
        """The lists of keys that can sign; the last list of any other stays."""
        lists = {}
        for owner in self._authorities.ready:
            for key in owner.status.keys:
                try:
                    loaded = await self._own.load(owner, key)
                except (Refusal, TryAgain) as problem:
                    extra = {"authority": owner.name, "key": key.name, "why": str(problem)}
                    log.warning("crl.not_published", extra=extra)
                    continue
                signers = frozenset(owner.signers)
                lists[loaded.list_name] = PublishedList(
                    functools.partial(_identity, loaded.authority), signers, owner.name, key.name
                )
        return lists

    async def _follow_maps(self) -> None:
        """Check a list when one of its ConfigMaps changes."""
        selection = ListSelection(ConfigMap, self._home, read_as=Object)
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                for event in batch:
                    whole = event.object.name.removeprefix(stored_list.head_name(""))
                    for name in {whole, whole.rsplit(".", 2)[0]} & self._lists.keys():
                        self.queue.add(name)

    # -- revocations -------------------------------------------------------------------------

    async def _follow_revocations(self, start: Start) -> None:
        """Load all revocations, then the records of signers that were revoked as a whole."""
        async with contextlib.aclosing(self._client.follow(REVOCATIONS)) as batches:
            async for batch in batches:
                self._publish({group for event in batch for group in self._take(event)})
                if batch or self._loaded or self._loading:
                    continue
                self._loading = set(self._wide)
                for signer in self._wide:
                    start(self._follow_issued(signer))
                self._finish_loading()

    async def _follow_issued(self, signer: str) -> None:
        """Add every certificate of a signer with an authority-wide revocation to the lists."""
        selection = ListSelection(IssuedCertificate, fields=f"spec.signerName={signer}")
        async with contextlib.aclosing(self._client.follow(selection)) as batches:
            async for batch in batches:
                self._publish({group for event in batch for group in self._take_issued(event)})
                if not batch and signer in self._loading:
                    self._loading.discard(signer)
                    self._finish_loading()

    def _finish_loading(self) -> None:
        if not self._loading:
            self._loaded = True
            for name in self._lists:
                self.queue.add(name)

    def _publish(self, groups: set[str]) -> None:
        """Queue the lists with some groups."""
        if self._loaded and groups:
            names = {name for group in groups for name in self._own_names.get(group, ())}
            # The key of a platform authority is a file, which may change at any time.
            platform = platform_lists(self._signers).items()
            names |= {name for name, crl in platform if not groups.isdisjoint(crl.groups())}
            for name in names:
                self._versions[name] += 1
                self.queue.add(name)

    def _take(self, event: WatchedChange[CredentialRevocation]) -> list[str]:
        """Apply a change of one revocation; return the groups that changed."""
        revocation, deleted = event.object, event.type == DELETED
        expires = revocation.status.expires
        if deleted and expires is not None and expires <= self._clock.now():
            return []  # deleted because it expired; entries stay for a while
        if revocation.spec.authority:
            self._take_wide(revocation, deleted=deleted)
            return []
        named = named_certificate(revocation)
        if named is None:
            return []
        which, entry = named
        if deleted:
            self._revoked.drop(revocation.name, which)
        elif not self._revoked.put(revocation.name, which, entry):
            return []  # another part of the revocation changed
        return [which.group]

    def _take_wide(self, revocation: CredentialRevocation, *, deleted: bool) -> None:
        target, when = revocation.spec.authority, revocation.metadata.creation_timestamp
        if target is None or target.issued_before is None or when is None:
            return
        revocations = self._wide.setdefault(target.signer_name, {})
        if (self._loaded or self._loading) and deleted == (revocation.name in revocations):
            raise Expired("the certificates of a signer have to be read again")
        if not deleted:
            reason = revocation.spec.reason or UNSPECIFIED
            revocations[revocation.name] = AuthorityWide(
                revocation.name, target.issued_before, when, reason
            )

    def _take_issued(self, event: WatchedChange[IssuedCertificate]) -> list[str]:
        """Apply one record of a signer that was revoked as a whole."""
        record = event.object
        spec, issued = record.spec, record.metadata.creation_timestamp
        if event.type == DELETED or issued is None or spec.cluster:
            return []  # it expired, and its entry stays for a while; or it is not of our signers
        group = group_of(spec.authority_key, spec.signer_name)
        which = SerialOfKey(group, int(spec.serial_number, 16))
        hit = [
            revocation
            for revocation in self._wide.get(spec.signer_name, {}).values()
            if issued <= revocation.until
        ]
        entries = [
            (revocation.name, ListEntry(revocation.when, revocation.reason, spec.not_after))
            for revocation in hit
        ]
        changed = [self._revoked.put(name, which, entry) for name, entry in entries]
        return [group] if any(changed) else []

    # -- publishing --------------------------------------------------------------------------

    async def attend(self, key: str, value: None) -> float | None:
        if not self._loaded:
            return None  # every list is queued when all revocations are loaded
        crl, now = self._lists.get(key), self._clock.now()
        if crl is None:
            return None  # its authority is gone; the last list stays until it expires
        signing_keys, stored = await self._keys_of(key, crl), self._stored.get(key)
        is_due = (
            stored is None
            or stored.version != self._versions[key]
            or stored.public_key != _public_key(crl.authority())
            or stored.renewal <= now
        )
        if stored is None or is_due or not await self._maps.hold(stored):
            # Others may change its ConfigMaps in a loop; a revocation never waits.
            if not is_due and (pause := self._corrections.wait_for(key)):
                return pause
            try:
                stored = await self._publish_next(key, crl, signing_keys)
            except NotPermittedToSign as refusal:
                log.warning("crl.not_published", extra={"authority": key, "why": str(refusal)})
                return CANNOT_AGAIN
        is_counted = await self._count(stored, signing_keys)
        left = (stored.renewal - now).total_seconds()
        # The key of a platform authority is a file, which may change at any time.
        is_file = key in platform_lists(self._signers)
        return left if is_counted and not is_file else min(left, KEY_AGAIN)

    async def _keys_of(self, name: str, crl: PublishedList) -> list[SigningKey]:
        """The keys with a list of this name: one, or those of servers' files."""
        owner = await self._client.find(CertificateAuthority, crl.owner)
        if owner is None:
            return []
        named = [crl.key] if crl.key else [reference.name for reference in owner.status.keys]
        keys = [await self._client.find(SigningKey, reference) for reference in named]
        return [
            key
            for key in keys
            if key is not None and belongs_to(key, owner) and key.status.revocation_list == name
        ]

    async def _publish_next(
        self, name: str, crl: PublishedList, signing_keys: Sequence[SigningKey]
    ) -> StoredEdition:
        """Sign and store the next edition of a list."""
        now, authority, version = self._clock.now(), crl.authority(), self._versions[name]
        self._revoked.forget_ended(now)
        entries = self._revoked.of(crl.groups())
        before = await self._maps.head(name)
        last = max((key.status.revocation_list_number for key in signing_keys), default=0)
        if not last and before:  # of an earlier version
            last = number_in(before, stored_list.NUMBER)
        edition, data = await asyncio.to_thread(_signed, authority, entries, now, last)
        parts = stored_list.split(data)
        await self._maps.store(name, edition, parts, before)
        if earlier := self._stored.get(name):
            await self._maps.remove_parts(earlier)
        names = stored_list.names(name, edition.number, len(parts))
        digests = dict(zip(names, map(digest_of, parts), strict=True))
        self._stored[name] = stored = StoredEdition(
            edition.number,
            version,
            _public_key(authority),
            now + RENEWED_AFTER,
            head_data(edition, len(parts)),
            digests,
        )
        return stored

    async def _count(self, stored: StoredEdition, signing_keys: Sequence[SigningKey]) -> bool:
        """Write the number of an edition to the key that signed it; False without such a key."""
        for key in signing_keys:
            if key.status.public_key == stored.public_key:
                if key.status.revocation_list_number < stored.number:
                    status = replace(key.status, revocation_list_number=stored.number)
                    await self._client.update_status(replace(key, status=status))
                return True
        return False


def _public_key(authority: Authority) -> str:
    return pem.encode(pem.PUBLIC_KEY, spki_of(authority.certificate)).decode("ascii")


def _identity(authority: Authority) -> Authority:
    return authority


def _signed(
    authority: Authority, entries: RevokedCertificates, now: datetime, last: int
) -> tuple[Edition, bytes]:
    """Sign a list; `last`: the number of the one that it replaces."""
    edition = next_edition(entries, now, last)
    return edition, authority.sign_revocation_list(entries, edition)


def platform_lists(signers: Mapping[str, Signer]) -> dict[str, PublishedList]:
    """One list for each authority of the platform signers, by the name of the authority."""
    lists: dict[str, PublishedList] = {}
    for name, signer in signers.items():
        before = lists.get(signer.list_name)
        names = before.signers if before else frozenset[str]()
        signers_of_it = names | {name}
        lists[signer.list_name] = PublishedList(signer.authority, signers_of_it, signer.list_name)
    return lists


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return PublishRevocationLists(
        client, context.signers, context.naming, context.clock, context.hsm
    )


CONTROLLER = ControllerDeclaration(
    name="revocation-list-publisher",
    long_name="revocation-list-publisher-controller",
    account="revocation-list-publisher",
    rights=lambda naming: (
        rule(
            READ,
            naming.identity,
            ("certificateauthorities", "credentialrevocations", "issuedcertificates"),
        ),
        rule(("get",), naming.identity, ("signingkeys",)),
        rule(("update",), naming.identity, ("signingkeys/status",)),
    ),
    rights_at_home=lambda names: (
        rule(("create", "delete", "update", *READ), CORE, ("configmaps",)),
    ),
    reads_authority_keys=True,
    build=build,
)
