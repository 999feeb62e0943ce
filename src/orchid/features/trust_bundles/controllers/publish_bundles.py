"""Store an edition of every PublishedBundle whenever its certificates change.

Reads   publishedbundles; clustertrustbundles; certificateauthorities
Writes  editions as ConfigMaps in the system namespace (features/trust_bundles/stored_edition.py);
        /status; a
        PublishedBundle for the platform's authorities and for each CertificateAuthority
Never   changes the spec of a bundle that exists; publishes an empty or too large one

The certificates are computed from the trust bundles each time, and compared with the current
edition. The sequence of an edition is the time in seconds, and at least one more than the last. An
edition whose ConfigMap is gone is not written again: its content gets a new sequence. So a restore,
which drops the editions, never brings back a sequence that clients have passed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Final

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.controllers.trust_bundle_index import (
    IndexKey,
    KnownBundle,
    TrustBundleIndex,
    source_key,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.features.trust_bundles.kinds.published_bundle import (
    MOST_EDITIONS,
    BundleEdition,
    BundleSource,
    PublishedBundle,
    PublishedBundleSpec,
    PublishedBundleStatus,
    name_problems,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.x509.trust import anchor_set
from orchid.kernel.credentials.x509.trust.anchor_set import AnchorSet
from orchid.kernel.runtime.context import ControllerContext, Signer
from orchid.kernel.runtime.corrections import Corrections
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import NORMAL, WARNING, EventRecorder
from orchid.kernel.runtime.loop import Controller, Gone, Key, Start, Trigger, TryAgain
from orchid.kernel.wire.conditions import FALSE, READY, TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.references import belongs_to, controller_of, owner_reference
from orchid.kernel.wire.struct import replace

LARGEST: Final = 1 << 20  # bytes of PEM
MOST_CERTIFICATES: Final = 4096
LONGEST_PAUSE_SECONDS: Final = 3600.0  # in case the clock steps, or a consumer missed an event
PUBLISHED, EMPTY, TOO_LARGE = "Published", "Empty", "TooLarge"


class PublishBundles(Controller[PublishedBundle]):
    name = "bundle-publisher"
    workers = 2
    minds_deletions = True

    def __init__(
        self,
        client: Client,
        signers: Mapping[str, Signer],
        naming: Naming,
        clock: Clock,
        events: EventRecorder,
    ) -> None:
        """`signers`: those of the platform; a bundle is created for each of their authorities."""
        super().__init__(client, ListSelection(PublishedBundle))
        self._naming = naming
        self._home = naming.system_namespace
        self._clock = clock
        self._events = events
        self._corrections: Corrections[str] = Corrections(
            clock
        )  # by uid of a bundle, or name of a list
        self.index = TrustBundleIndex()  # without bundles of authorities that were deleted
        self._authorities: set[str] = set()  # uids
        self._of_authority: dict[str, dict[str, KnownBundle]] = {}  # by uid, and name of the bundle
        self._owners: dict[str, str] = {}  # uids of authorities, by the name of the bundle
        self._sources: dict[str, frozenset[IndexKey]] = {}  # by the name of the bundle
        self._readers: dict[IndexKey, set[str]] = {}  # names of bundles by index key
        self._platform = platform_bundles(signers)
        self._made: dict[str, PublishedBundle] = {}  # bundles that the server creates
        # set when everything that determines the content of bundles is indexed
        self.all_indexed = asyncio.Event()
        mine = ListSelection(
            ConfigMap,
            self._home,
            labels=stored_edition.label(naming),
            existing=False,
            read_as=Object,
        )
        self.triggers = (
            Trigger(ListSelection(ClusterTrustBundle), self._trust_bundle_changed),
            Trigger(ListSelection(CertificateAuthority), self._authority_changed),
            Trigger(mine, self._owner_of),
        )

    # -- events ------------------------------------------------------------------------------

    async def follow(self, start: Start) -> None:
        self.all_indexed.clear()
        self.index.clear()
        self._authorities.clear()
        self._of_authority.clear()
        self._owners.clear()
        self._made = dict(self._platform)
        self._sources.clear()
        self._readers.clear()
        await super().follow(start)

    async def all_listed(self) -> None:
        if self.all_indexed.is_set():  # a bookmark
            return
        self.all_indexed.set()
        for name in self._made.keys() | self._sources.keys():
            self.queue.add(("", name))

    def take(self, event: WatchedChange[PublishedBundle]) -> None:
        bundle = event.object
        for key in self._sources.pop(bundle.name, ()):
            self._readers[key].discard(bundle.name)
            if not self._readers[key]:
                del self._readers[key]
        if event.type != DELETED:
            keys = self._sources[bundle.name] = frozenset(map(source_key, bundle.spec.sources))
            for key in keys:
                self._readers.setdefault(key, set()).add(bundle.name)
        if self.all_indexed.is_set():
            super().take(event)

    async def _trust_bundle_changed(
        self, event: WatchedChange[ClusterTrustBundle]
    ) -> AsyncIterator[Key]:
        bundle = event.object
        keys = set(self.index.keys_of(bundle.name))
        known_bundle = None
        if event.type != DELETED:
            # Up to four thousand certificates take a while.
            anchors = await asyncio.to_thread(anchor_set.read, bundle.spec.trust_bundle)
            known_bundle = KnownBundle(
                bundle.name, bundle.spec.signer_name, bundle.metadata.labels or {}, anchors
            )
        owner = self._note_owner(bundle, known_bundle)
        if known_bundle is not None and (not owner or owner in self._authorities):
            self.index.put(known_bundle)
            keys.update(known_bundle.keys)
        else:
            self.index.drop(bundle.name)
        for name in self._reading(keys):
            yield "", name

    def _note_owner(self, bundle: ClusterTrustBundle, indexed: KnownBundle | None) -> str:
        """The uid of the authority that owns a trust bundle; empty for any other."""
        if before := self._owners.pop(bundle.name, ""):
            del self._of_authority[before][bundle.name]
            if not self._of_authority[before]:
                del self._of_authority[before]
        owner = controller_of(bundle.metadata)
        if indexed is None or owner is None or owner.kind != CertificateAuthority.__name__:
            return ""
        self._owners[bundle.name] = owner.uid
        self._of_authority.setdefault(owner.uid, {})[bundle.name] = indexed
        return owner.uid

    def _reading(self, keys: Iterable[IndexKey]) -> set[str]:
        """The names of the published bundles that read from some index keys."""
        return {name for key in keys for name in self._readers.get(key, ())}

    def _count_authority(self, uid: str, *, exists: bool) -> set[str]:
        """Index the trust bundles of an authority while it exists; return who reads them.

        When it was deleted, they are collected only later. Meanwhile another authority may have the
        signer, and its clients must not get these roots.
        """
        if exists == (uid in self._authorities):
            return set()
        (self._authorities.add if exists else self._authorities.discard)(uid)
        bundles = self._of_authority.get(uid, {})
        for bundle in bundles.values():
            if exists:
                self.index.put(bundle)
            else:
                self.index.drop(bundle.name)
        return self._reading(key for bundle in bundles.values() for key in bundle.keys)

    async def _authority_changed(
        self, event: WatchedChange[CertificateAuthority]
    ) -> AsyncIterator[Key]:
        authority = event.object
        for name in self._count_authority(authority.metadata.uid, exists=event.type != DELETED):
            yield "", name
        if authority.is_file:
            return  # its bundle is one of the platform's
        if event.type == DELETED or authority.metadata.deletion_timestamp is not None:
            self._made.pop(authority.name, None)
        elif authority.name not in self._platform and not any(name_problems(authority.name)):
            version = self._client.catalog.of(CertificateAuthority).api_version
            owner = owner_reference(authority, version)
            bundle = self._made.get(authority.name)
            if bundle is not None and belongs_to(bundle, authority):
                return
            self._made[authority.name] = bundle_of_signers(
                authority.name,
                sorted(authority.signers),
                owner,
                trust_domain=authority.spec.trust_domain,
            )
            yield "", authority.name

    async def _owner_of(self, event: WatchedChange[ConfigMap]) -> AsyncIterator[Key]:
        for owner in event.object.metadata.owner_references:
            if owner.kind == PublishedBundle.__name__:
                yield "", owner.name

    # -- one bundle --------------------------------------------------------------------------

    async def attend(
        self, key: Key, value: PublishedBundle | Gone[PublishedBundle] | None
    ) -> float | None:
        if isinstance(value, PublishedBundle):
            return await self.reconcile(value)
        bundle = await self._client.find(PublishedBundle, key[1])
        if bundle is None and key[1] in self._made:
            bundle = await self._create(self._made[key[1]])
        return await self.reconcile(bundle) if bundle is not None else None

    async def _create(self, new: PublishedBundle) -> PublishedBundle:
        try:
            return await self._client.create(new)
        except AlreadyExists:
            existing = await self._client.get(PublishedBundle, new.name)
            owner, sources = controller_of(existing.metadata), existing.spec.sources
            if (owner, sources) == (controller_of(new.metadata), new.spec.sources):
                return existing  # the previous leader created it
            # Another bundle is published as any other;
            # features/authorities/controllers/keep_authorities.py reports it.
            raise TryAgain(f"there is another PublishedBundle {new.name}") from None

    async def reconcile(self, published: PublishedBundle) -> float | None:
        if published.metadata.deletion_timestamp is not None:
            return None
        if not self.all_indexed.is_set():
            raise TryAgain("not every trust bundle is indexed")
        now = self._clock.now()
        selections = [list(self.index.selected(source)) for source in published.spec.sources]
        anchors = [
            edition
            for selection in selections
            for bundle in selection
            for edition in bundle.anchors
        ]
        content = await asyncio.to_thread(anchor_set.join, anchors, now)
        ready = condition_of(content, published.status, selections)
        status = published.status
        if ready.status == TRUE and not await self._has_edition(status, published.name, content):
            is_correction = status.sha256 == content.sha256
            # Others may delete its ConfigMaps in a loop; other certificates never wait.
            if is_correction and (wait := self._corrections.wait_for(published.metadata.uid)):
                return wait
            status = await self._with_edition(published, content, now)
        status = await self._with_consumers(published, status, now)
        await self._write(
            published, with_conditions(replace(published, status=status), [ready], now)
        )
        if status.sequence != published.status.sequence:
            named = {edition.sequence for edition in status.editions}
            await self._remove(
                [edition for edition in await self._editions(published) if edition[0] not in named]
            )
        return pause(content, now)

    async def _has_edition(
        self, status: PublishedBundleStatus, bundle: str, content: AnchorSet
    ) -> bool:
        """Whether the current edition has this content, and is stored."""
        if not status.sequence or status.sha256 != content.sha256:
            return False
        name = stored_edition.edition_name(bundle, status.sequence)
        stored = await self._client.find(ConfigMap, name, self._home)
        return stored is not None and stored.data.get(stored_edition.PEM) == content.pem.decode()

    async def _with_edition(
        self, bundle: PublishedBundle, content: AnchorSet, now: datetime
    ) -> PublishedBundleStatus:
        """Store an edition for this content; the status with it."""
        status = bundle.status
        sequence = max(int(now.timestamp()), status.sequence + 1)
        await self._store(bundle, content, sequence)
        stored = {number for number, _ in await self._editions(bundle)}
        earlier = [previous for previous in status.editions if previous.sequence in stored]
        edition = BundleEdition(
            sequence=sequence, sha256=content.sha256, certificates=len(content.anchors)
        )
        return replace(
            status,
            sequence=sequence,
            sha256=content.sha256,
            certificates=len(content.anchors),
            editions=(edition, *earlier)[:MOST_EDITIONS],
        )

    async def _store(self, bundle: PublishedBundle, content: AnchorSet, sequence: int) -> None:
        kind = self._client.catalog.of(PublishedBundle)
        name = stored_edition.edition_name(bundle.name, sequence)
        data = {stored_edition.PEM: content.pem.decode()}
        new = stored_edition.owned_map(
            bundle, kind.api_version, self._naming, name, data=data, immutable=True
        )
        try:
            await self._client.create(new)
        except AlreadyExists:
            # Of this second: stored before a crash, or by the previous leader.
            existing = await self._client.find(ConfigMap, name, self._home)
            if existing is None or existing.data != data or not belongs_to(existing, bundle):
                raise TryAgain(f"there is another ConfigMap {name}") from None

    async def _with_consumers(
        self, bundle: PublishedBundle, status: PublishedBundleStatus, now: datetime
    ) -> PublishedBundleStatus:
        name = stored_edition.consumers_name(bundle.name)
        stored = await self._client.find(ConfigMap, name, self._home)
        if stored is not None and not belongs_to(stored, bundle):  # that of an earlier bundle
            if not self._corrections.wait_for(name):
                await self._client.delete_gone(ConfigMap, stored)
            stored = None
        if stored is None:
            return replace(status, consumers=None)
        seen = stored_edition.read_consumers(stored)
        return replace(status, consumers=seen.summary(status.sequence, now))

    async def _editions(self, bundle: PublishedBundle) -> list[tuple[int, Object]]:
        """The ConfigMaps with editions of a bundle, by sequence."""
        labels = f"{stored_edition.label(self._naming)}={bundle.metadata.uid}"
        selection = ListSelection(ConfigMap, self._home, labels=labels, read_as=Object)
        return [
            (number, config_map)
            async for config_map in self._client.scan(selection)
            if (number := stored_edition.sequence_of(bundle.name, config_map.name))
        ]

    async def _remove(self, editions: Iterable[tuple[int, Object]]) -> None:
        for _, one in editions:
            await self._client.delete_gone(ConfigMap, one)

    async def _write(self, before: PublishedBundle, after: PublishedBundle) -> None:
        if after.status == before.status:
            return
        await self._client.update_status(after)
        old = next(
            (condition for condition in before.status.conditions if condition.type == READY), None
        )
        new = next(condition for condition in after.status.conditions if condition.type == READY)
        is_good = new.status == TRUE
        if (
            before.status.sequence != after.status.sequence
            or old is None
            or old.reason != new.reason
        ):
            type_ = NORMAL if is_good else WARNING
            self._events.record(self.name, after, new.reason, new.message, type_=type_)


def platform_bundles(signers: Mapping[str, Signer]) -> dict[str, PublishedBundle]:
    """One bundle for each CA of the platform signers, named like its CRL."""
    grouped: dict[str, list[str]] = {}
    for name, signer in signers.items():
        grouped.setdefault(signer.list_name, []).append(name)
    return {name: bundle_of_signers(name, sorted(names)) for name, names in grouped.items()}


def bundle_of_signers(
    name: str, signers: Iterable[str], *owners: OwnerReference, trust_domain: str = ""
) -> PublishedBundle:
    sources = tuple(BundleSource(signer_name=signer) for signer in signers)
    meta = ObjectMeta(name=name, owner_references=owners)
    spec = PublishedBundleSpec(sources=sources, trust_domain=trust_domain)
    return PublishedBundle(metadata=meta, spec=spec)


def condition_of(
    content: AnchorSet, status: PublishedBundleStatus, selections: list[list[KnownBundle]]
) -> Condition:
    """Whether the content can be published, and which sources add nothing to it."""
    count, size = len(content.anchors), len(content.pem)
    remains = f"; edition {status.sequence} remains" if status.sequence else ""
    if not count:
        text = f"the sources have no valid certificate{remains}"
        return Condition(type=READY, status=FALSE, reason=EMPTY, message=text)
    if count > MOST_CERTIFICATES or size > LARGEST:
        text = (
            f"{count} certificates in {size} bytes of PEM; {MOST_CERTIFICATES} and {LARGEST} are "
            f"the limits{remains}"
        )
        return Condition(type=READY, status=FALSE, reason=TOO_LARGE, message=text)
    text = "1 certificate" if count == 1 else f"{count} certificates"
    none = [f"sources[{index}]" for index, selection in enumerate(selections) if not selection]
    if none:
        text += f"; no trust bundle for {', '.join(none)}"
    return Condition(type=READY, status=TRUE, reason=PUBLISHED, message=text)


def pause(content: AnchorSet, now: datetime) -> float:
    """Seconds until the bundle is computed again without an event."""
    if content.next_end is None:
        return LONGEST_PAUSE_SECONDS
    return min(LONGEST_PAUSE_SECONDS, max((content.next_end - now).total_seconds(), 1.0))


def build(client: Client, context: ControllerContext, events: EventRecorder) -> PublishBundles:
    return PublishBundles(client, context.signers, context.naming, context.clock, events)


CONTROLLER = ControllerDeclaration(
    name="bundle-publisher",
    long_name="publishedbundle-controller",
    account="published-bundle-controller",
    rights=lambda naming: (
        rule(("create", *READ), naming.identity, ("publishedbundles",)),
        rule(("update",), naming.identity, ("publishedbundles/status",)),
        rule(READ, naming.identity, ("certificateauthorities",)),
        rule(READ, naming.certificates, ("clustertrustbundles",)),
        may_record_events(naming),
    ),
    rights_at_home=lambda names: (rule(("create", "delete", *READ), CORE, ("configmaps",)),),
    build=build,
)
