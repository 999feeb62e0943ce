"""A node only writes its own objects.

These are its Node, the status of its Pods, its lease and its certificate requests; it gets tokens
only for Pods that run on it.

Other users are not affected. Start with `NodeRestriction.admit`; each kind has one method. A
compromised node gains nothing about other nodes, whatever roles it has.
"""

from collections.abc import Iterator
from typing import Any

from orchid.features.accounts.kinds.token_request import TokenRequest
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.features.nodes.policies.node_labels import NodeLabels
from orchid.features.nodes.policies.node_pod_certificates import NodePodCertificates
from orchid.features.objects.kinds.lease import Lease
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.pod.references import projected_sources, reference_of
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import ErrorSubject, Forbidden, NotFound
from orchid.kernel.wire.meta import Object, OwnerReference
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import NODE_PREFIX, NODES, node_name


class NodeRestriction(AdmissionPolicy):
    admits = (TokenRequest, Node, Pod, Lease, CertificateSigningRequest, PodCertificateRequest)
    reviews = (Node, Pod, Lease, PodCertificateRequest)

    def __init__(self, naming: Naming, feed: Feed, authorizer: Authorizer) -> None:
        self._feed = feed
        self._authorizer = authorizer
        self._mirror = naming.mirror_annotation
        self._labels = NodeLabels(naming)
        self._certificates = NodePodCertificates(naming, feed, authorizer)
        self._lease_namespace = naming.node_lease_namespace
        self._node_signers = (naming.node_serving_signer, naming.node_client_signer)

    async def admit(
        self, request: Request, kind: Kind[Any], new: Object, old: Object | None
    ) -> Object:
        if NODES not in request.user.groups:
            return new
        node = self._caller(request, kind, new)
        if node is None:
            return new
        match new:
            case TokenRequest():
                await self._token(node, request, new)
            case Node():
                self._node(node, kind, new, old)
            case Pod():
                await self._feed.fresh()
                self._pod(node, request, kind, new, old)
            case Lease():
                self._lease(node, kind, new)
            case CertificateSigningRequest():
                self._signing_request(node, kind, new, old)
            case PodCertificateRequest():
                await self._certificates.refuse(node, request, kind, new, is_create=old is None)
        return new

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        """Check deletions; `admit` has checked everything else."""
        if new is not None or old is None:
            return
        node = self._caller(request, kind, old)
        if node is None:
            return
        match old:
            case Pod() if old.node != node:
                text = f"node {quote(node)} can only delete pods with spec.nodeName set to itself"
                raise Forbidden(kind.about(old.name), text)
            case Node() if old.name != node:
                raise not_its_own(node, kind, old)
            case Lease():
                self._lease(node, kind, old)
            case PodCertificateRequest():
                await self._certificates.refuse(node, request, kind, old, is_create=False)

    def _caller(self, request: Request, kind: Kind[Any], thing: Object) -> str | None:
        node = node_name(request.user)
        if node == "":
            text = f"could not determine node from user {quote(request.user.username)}"
            raise Forbidden(kind.about(thing.name), text)
        return node

    async def _token(self, node: str, request: Request, new: TokenRequest) -> None:
        about = ErrorSubject("", "serviceaccounts", request.name)
        pod = await self._bound_pod(about, request, new)
        if pod.node != node:
            text = "node requested token bound to a pod scheduled on a different node"
            raise Forbidden(about, text)
        await self._audience(about, request, new, pod)

    async def _bound_pod(self, about: ErrorSubject, request: Request, new: TokenRequest) -> Pod:
        bound = new.spec.bound_object_ref
        if bound is None or (bound.api_version, bound.kind) != ("v1", "Pod") or not bound.name:
            raise Forbidden(about, "node requested token not bound to a pod")
        if not bound.uid:
            raise Forbidden(about, "node requested token with a pod binding without a uid")
        await self._feed.fresh()
        entry = self._feed.of(Pod).get(request.namespace, bound.name)
        if entry is None:
            raise NotFound(ErrorSubject("", "pod", bound.name))
        if entry.meta.uid != bound.uid:
            text = (
                f"the UID in the bound object reference ({bound.uid}) does not match the UID in "
                "record. The object might have been deleted and then recreated"
            )
            raise Forbidden(about, text)
        return entry.object

    async def _audience(
        self, about: ErrorSubject, request: Request, new: TokenRequest, pod: Pod
    ) -> None:
        audiences = new.spec.audiences or ("",)
        if len(audiences) > 1:
            raise Forbidden(about, "node may only request 0 or 1 audiences")
        audience = audiences[0]
        if audience in projected_audiences(pod):
            return
        target = Target(
            verb="request-serviceaccounts-token-audience",
            is_resource=True,
            resource=audience,
            namespace=request.namespace,
            name=request.name,
        )
        if not (await self._authorizer.authorize(request.user, target)).allowed:
            text = (
                f"audience {quote(audience)} not found in pod spec volume, "
                f"{request.user.username} is not authorized to request tokens for this audience"
            )
            raise Forbidden(about, text)

    def _node(self, node: str, kind: Kind[Any], new: Node, old: Object | None) -> None:
        if new.name != node:
            raise not_its_own(node, kind, new)
        before = old if isinstance(old, Node) else None
        refusal = (
            self._new_node_refusal(node, new)
            if before is None
            else self._changed_node_refusal(node, new, before)
        )
        if refusal:
            raise Forbidden(kind.about(new.name), refusal)

    def _new_node_refusal(self, node: str, new: Node) -> str:
        who = f"node {quote(node)}"
        if new.spec.get("configSource") is not None:
            return f"{who} is not allowed to create pods with a non-nil configSource"
        if labels := self._labels.forbidden(new.metadata.labels, {}):
            return f"{who} is not allowed to set the following labels: {', '.join(labels)}"
        return ""

    def _changed_node_refusal(self, node: str, new: Node, old: Node) -> str:
        who = f"node {quote(node)}"
        source = new.spec.get("configSource")
        if source is not None and source != old.spec.get("configSource"):
            return f"{who} is not allowed to update configSource to a new non-nil configSource"
        # A taint keeps workloads away; deleting an owner would delete the Node.
        if new.spec.get("taints") != old.spec.get("taints"):
            return f"{who} is not allowed to modify taints"
        if new.metadata.owner_references != old.metadata.owner_references:
            return f"{who} is not allowed to modify ownerReferences"
        if labels := self._labels.forbidden(new.metadata.labels, old.metadata.labels):
            return f"is not allowed to modify labels: {', '.join(labels)}"
        return ""

    def _pod(
        self, node: str, request: Request, kind: Kind[Any], new: Pod, old: Object | None
    ) -> None:
        refusal = (
            self._new_pod_refusal(node, new)
            if old is None
            else self._changed_pod_refusal(node, request, new, old)
        )
        if refusal:
            raise Forbidden(kind.about(new.name), refusal)

    def _new_pod_refusal(self, node: str, new: Pod) -> str:
        """A node may only create mirror Pods, which have no identity."""
        who = f"node {quote(node)}"
        if self._mirror not in new.metadata.annotations:
            return (
                f"pod does not have {quote(self._mirror)} annotation, "
                f"{who} can only create mirror pods"
            )
        if new.node != node:
            return f"{who} can only create pods with spec.nodeName set to itself"
        if refusal := self._owner_refusal(node, new):
            return refusal
        if new.account:
            return f"{who} can not create pods that reference serviceaccounts"
        if reference := reference_of(new.spec):
            return f"{who} can not create pods that reference {reference}"
        return ""

    def _owner_refusal(self, node: str, new: Pod) -> str:
        """A mirror Pod is owned by its Node, with the current uid."""
        who, owners = f"node {quote(node)}", new.metadata.owner_references
        if len(owners) > 1:
            return f"{who} can only create pods with a single owner reference set to itself"
        if not owners or not is_node(owners[0], node):
            return f"{who} can only create pods with an owner reference set to itself"
        owner = owners[0]
        if not owner.controller:
            return f"{who} can only create pods with a controller owner reference set to itself"
        if owner.block_owner_deletion:
            return f"{who} must not set blockOwnerDeletion on an owner reference"
        entry = self._feed.of(Node).get("", node)
        if entry is None:
            raise NotFound(ErrorSubject("", "node", node))
        if owner.uid != entry.meta.uid:
            return f"node {node} UID mismatch: expected {owner.uid} got {entry.meta.uid}"
        return ""

    def _changed_pod_refusal(self, node: str, request: Request, new: Pod, old: Object) -> str:
        who = f"node {quote(node)}"
        if request.target.subresource != "status":
            return f'unexpected operation "UPDATE", {who} can only create and delete mirror pods'
        if not isinstance(old, Pod) or old.node != node:
            rest = "for pods with spec.nodeName set to itself"
            return f"{who} can only update pod status {rest}"
        if new.metadata.labels != old.metadata.labels:
            return f"{who} cannot update labels through pod status"
        # Without the mirror annotation, the node could read the Secrets of the Pod.
        mark = self._mirror
        if new.metadata.annotations.get(mark) != old.metadata.annotations.get(mark):
            return f"{who} can not change the {quote(mark)} annotation"
        return ""

    def _lease(self, node: str, kind: Kind[Any], lease: Object) -> None:
        about = kind.about(lease.name)
        if lease.namespace != self._lease_namespace:
            quoted = quote(self._lease_namespace)
            raise Forbidden(about, f"can only access leases in the {quoted} system namespace")
        if lease.name != node:
            text = "can only access node lease with the same name as the requesting node"
            raise Forbidden(about, text)

    def _signing_request(self, node: str, kind: Kind[Any], new: Any, old: Object | None) -> None:
        if old is not None or new.spec.signer_name not in self._node_signers:
            return
        about = kind.about(new.name)
        try:
            # Validation checks the signature of the request later.
            subject = signing_request.unproven_subject(new.spec.request or b"")
        except Refusal as refusal:
            raise Forbidden(about, f"unable to parse csr: {refusal}") from None
        own = f"{NODE_PREFIX}{node}"
        if subject.common_name != own:
            raise Forbidden(about, f"can only create a node CSR with CN={own}")


def is_node(owner: OwnerReference, node: str) -> bool:
    return (owner.api_version, owner.kind, owner.name) == ("v1", "Node", node)


def not_its_own(node: str, kind: Kind[Any], other: Object) -> Forbidden:
    text = f"node {quote(node)} is not allowed to modify node {quote(other.name)}"
    return Forbidden(kind.about(other.name), text)


def projected_audiences(pod: Pod) -> Iterator[str]:
    """Audiences of the token volumes of a Pod; "" is the server's own."""
    for _, token in projected_sources(pod.spec, "serviceAccountToken"):
        audience = token.get("audience") or ""
        if isinstance(audience, str):
            yield audience
