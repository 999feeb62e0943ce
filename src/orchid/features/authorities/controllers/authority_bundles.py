"""The trust bundles of authorities: an index, and how they are published and deleted.

Reads   clustertrustbundles that an authority owns
Writes  a bundle for each signer and each key in use; deletes those of Retired or revoked keys, and
        expired ones
Never   decides which keys are in use: see stored_authority_keys.py

Part of the controller in keep_authorities.py, which passes events to `changed`.
"""

from collections.abc import Iterator

from orchid.features.authorities.controllers.stored_authority_keys import StoredAuthorityKeys
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.trust_bundles.controllers.publish_trust_bundles import (
    bundle_name,
    is_past,
    top_of_chain,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, WatchedChange
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.references import belongs_to, owner_reference
from orchid.kernel.wire.struct import replace


class AuthorityBundles:
    """The bundles of all authorities, and what changes them."""

    def __init__(self, client: Client, keys: StoredAuthorityKeys, clock: Clock) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._owned: dict[str, set[str]] = {}  # names of bundles by the uid of their owner

    def changed(self, event: WatchedChange[ClusterTrustBundle]) -> Iterator[str]:
        """Index a bundle; return the names of its authorities."""
        kind = self._client.catalog.of(CertificateAuthority).name
        for owner in event.object.metadata.owner_references:
            if owner.kind == kind:
                self._index(owner.uid, event)
                yield owner.name

    def _index(self, owner: str, event: WatchedChange[ClusterTrustBundle]) -> None:
        if event.type != DELETED:
            self._owned.setdefault(owner, set()).add(event.object.name)
        elif owner in self._owned:
            self._owned[owner].discard(event.object.name)
            if not self._owned[owner]:
                del self._owned[owner]

    async def publish(self, authority: CertificateAuthority, selection: KeySelection) -> str:
        """Create or correct the bundle of each key in use; return the name of the signer's."""
        first, *others = (top_of_chain(key.status.certificate) for key in selection.verifying)
        texts = [first, *(text for text in others if not is_past(text, self._clock.now()))]
        specs = {
            bundle_name(signer, text): ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
            for signer in authority.signers
            for text in texts
        }
        for name, spec in specs.items():
            bundle = await self._client.find(ClusterTrustBundle, name)
            if bundle is None:
                meta = ObjectMeta(name=name, owner_references=(self._owner(authority),))
                await self._client.create(ClusterTrustBundle(metadata=meta, spec=spec))
            elif bundle.spec != spec or not belongs_to(bundle, authority):
                # An earlier version published those of the platform without an owner.
                owned = bundle.with_meta(owner_references=(self._owner(authority),))
                await self._client.update(replace(owned, spec=spec))
        await self._remove_past(authority, frozenset(specs))
        return next(iter(specs))

    async def _remove_past(self, authority: CertificateAuthority, current: frozenset[str]) -> None:
        """Delete the bundles of keys that nobody trusts any more, or that have expired."""
        unused = {top_of_chain(key.status.certificate) for key in self._keys.out_of_use(authority)}
        for name in self._owned.get(authority.metadata.uid, set()) - current:
            bundle = await self._client.find(ClusterTrustBundle, name)
            if bundle is None or not belongs_to(bundle, authority):
                continue
            text = bundle.spec.trust_bundle
            if text in unused or is_past(text, self._clock.now()):
                await self._client.delete_gone(ClusterTrustBundle, bundle)

    def _owner(self, authority: CertificateAuthority) -> OwnerReference:
        api_version = self._client.catalog.of(CertificateAuthority).api_version
        return owner_reference(authority, api_version)
