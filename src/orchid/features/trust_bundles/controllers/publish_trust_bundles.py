"""Publish the CAs of the server and of the platform signers as ClusterTrustBundles.

Reads   clustertrustbundles of these signers
Writes  one bundle for each of them; its name has a digest of its text
Never   touches the bundles of other signers, or of one whose CA is unknown

The server's own serving signer has exactly one bundle: all others of that signer are deleted.
Bundles of the other signers stay after a change of the CA, until they expire: its certificates are
still in use.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime

from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
    name_prefix,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.runtime.context import ControllerContext, Signer
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Controller, Running
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.policy_rules import READ, may_record_events, rule
from orchid.kernel.wire.struct import replace

DIGEST_BYTES = 12


class PublishTrustBundles(Controller[ClusterTrustBundle]):
    name = "trust-bundle-publisher"
    workers = 1  # the bundles of a signer are written by one worker at a time
    minds_deletions = True

    def __init__(
        self,
        client: Client,
        anchors: Mapping[str, Callable[[], str]],
        clock: Clock,
        *,
        alone: str,
    ) -> None:
        """`anchors` returns the current text of each signer; `alone` is the one with one bundle."""
        super().__init__(client, ListSelection(ClusterTrustBundle))
        self._anchors = anchors
        self._clock = clock
        self._alone = alone

    def rests_on(self) -> object:
        return [read() for read in self._anchors.values()]

    async def all_listed(self) -> None:
        for signer in self._anchors:
            await self.publish(signer)

    async def reconcile(self, bundle: ClusterTrustBundle) -> None:
        signer = bundle.spec.signer_name
        text = self._anchors[signer]() if signer in self._anchors else ""
        if not text:
            return  # of another signer, or its CA is unknown now
        if bundle.name == bundle_name(signer, text):
            await self.publish(signer)
        elif signer == self._alone or is_past(bundle.spec.trust_bundle, self._clock.now()):
            await self._client.delete_gone(ClusterTrustBundle, bundle)

    async def gone(self, last: ClusterTrustBundle) -> None:
        if last.spec.signer_name in self._anchors:
            await self.publish(last.spec.signer_name)

    async def publish(self, signer: str) -> None:
        """Create or correct the signer's bundle."""
        text = self._anchors[signer]()
        if not text:
            return
        name = bundle_name(signer, text)
        spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
        bundle = await self._client.find(ClusterTrustBundle, name)
        if bundle is None:
            new = ClusterTrustBundle(metadata=ObjectMeta(name=name), spec=spec)
            try:
                await self._client.create(new)
            except AlreadyExists:
                return  # another server was faster; its event triggers this again
        elif bundle.spec.trust_bundle != text:
            await self._client.update(replace(bundle, spec=spec))


def bundle_name(signer: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]
    return name_prefix(signer) + digest.hex()


def top_of(authority: Authority) -> str:
    """The certificate at the top of an authority's chain, a verifier's trust anchor."""
    top = certificates.encode(authority.chain[-1])
    return pem.encode(pem.CERTIFICATE, top).decode("ascii")


def top_of_chain(chain: str) -> str:
    """The last certificate of a chain in PEM."""
    top = certificates.encode(certificates.parse_blocks(chain)[-1])
    return pem.encode(pem.CERTIFICATE, top).decode("ascii")


def is_past(text: str, now: datetime) -> bool:
    """Whether every certificate of a bundle has expired."""
    try:
        anchors = certificates.parse_blocks(text)
    except (Refusal, ValueError):
        return False
    return all(anchor.not_valid_after_utc < now for anchor in anchors)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    anchors = {name: _anchor(signer) for name, signer in context.signers.items()}
    alone = context.naming.server_serving_signer
    if context.root_ca():
        anchors[alone] = context.root_ca
    return PublishTrustBundles(client, anchors, context.clock, alone=alone) if anchors else None


def _anchor(signer: Signer) -> Callable[[], str]:
    """The current text to publish for a signer."""
    return lambda: top_of(signer.authority())


CONTROLLER = ControllerDeclaration(
    name="trust-bundle-publisher",
    long_name="clustertrustbundle-publisher-controller",
    account="{component}-apiserver-serving-clustertrustbundle-publisher",
    rights=lambda naming: (
        rule(
            ("attest",),
            naming.certificates,
            ("signers",),
            naming.server_serving_signer,
            *naming.issuing_signers,
        ),
        rule(("create", "delete", "update", *READ), naming.certificates, ("clustertrustbundles",)),
        may_record_events(naming),
    ),
    build=build,
)
