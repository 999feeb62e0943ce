"""A node requests certificates only for Pods that run on it, and only as their accounts.

Part of NodeRestriction. Pod, account and Node must exist with the uids in the request. The Pod
mounts a certificate of the signer, or the node has the verb
`request-serviceaccounts-podcertificate-signer` on the signer (with `:` in place of `/`), by the
name of the account. Start with `NodePodCertificates.refuse`.
"""

from typing import Any

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.certificates import mounts_certificate_of
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import quote

VERB = "request-serviceaccounts-podcertificate-signer"


class NodePodCertificates:
    def __init__(self, naming: Naming, feed: Feed, authorizer: Authorizer) -> None:
        self._feed = feed
        self._authorizer = authorizer
        self._mirror = naming.mirror_annotation

    async def refuse(
        self,
        node: str,
        request: Request,
        kind: Kind[Any],
        new: PodCertificateRequest,
        *,
        is_create: bool,
    ) -> None:
        """Raise Forbidden unless the node may create this request."""
        if not is_create:
            raise Forbidden(kind.about(new.name), "a node can only create podcertificaterequests")
        await self._feed.fresh()
        refusal = self._identity_refusal(node, request.namespace, new)
        if not refusal and not await self._is_expected(request, new):
            refusal = (
                f"pod {_path(request.namespace, new)} does not mount a podCertificate projected "
                f"volume for signer {quote(new.spec.signer_name)}"
            )
        if refusal:
            raise Forbidden(kind.about(new.name), refusal)

    def _identity_refusal(self, node: str, namespace: str, new: PodCertificateRequest) -> str:
        spec, named = new.spec, f"PodCertificateRequest for pod {_path(namespace, new)}"
        if spec.node_name != node:
            return (
                f"PodCertificateRequest.Spec.NodeName={quote(spec.node_name)}, which is not the "
                f"requesting node {quote(node)}"
            )
        here = self._feed.of(Node).get("", node)
        if here is None:
            return f"node {quote(node)} named in the PodCertificateRequest not found"
        if here.meta.uid != spec.node_uid:
            return (
                f"{named} names node UID {quote(spec.node_uid)}, inconsistent with the running "
                f"node ({quote(here.meta.uid)})"
            )
        entry = self._feed.of(Pod).get(namespace, spec.pod_name)
        if entry is None:
            return f"pod {_path(namespace, new)} named in the PodCertificateRequest not found"
        if entry.meta.uid != spec.pod_uid:
            return (
                f"{named} contains pod UID ({quote(spec.pod_uid)}) which differs from running pod "
                f"{quote(entry.meta.uid)}"
            )
        return self._pod_refusal(entry.object, namespace, new)

    def _pod_refusal(self, pod: Pod, namespace: str, new: PodCertificateRequest) -> str:
        spec, path = new.spec, _path(namespace, new)
        named = f"PodCertificateRequest for pod {path}"
        if pod.node != spec.node_name:
            return (
                f"pod {path} is not running on node {quote(spec.node_name)} named in the "
                "PodCertificateRequest"
            )
        # A mirror Pod is created by its node, which could write any account into it.
        if self._mirror in pod.metadata.annotations:
            return f"pod {path} is a mirror pod"
        if pod.account != spec.service_account_name:
            return (
                f"{named} contains serviceAccountName ({quote(spec.service_account_name)}) that "
                f"differs from running pod ({quote(pod.account)})"
            )
        account = self._feed.of(ServiceAccount).get(namespace, pod.account)
        if account is None:
            full_name = quote(f"{namespace}/{pod.account}")
            return f"service account {full_name} named in the PodCertificateRequest not found"
        if account.meta.uid != spec.service_account_uid:
            return (
                f"{named} names service account UID {quote(spec.service_account_uid)}, which "
                f"differs from the running service account ({quote(account.meta.uid)})"
            )
        return ""

    async def _is_expected(self, request: Request, new: PodCertificateRequest) -> bool:
        """Whether the Pod needs a certificate of this signer, or the node has the right."""
        spec, target = new.spec, request.target
        entry = self._feed.of(Pod).get(request.namespace, spec.pod_name)
        if entry is not None and mounts_certificate_of(entry.object.spec, spec.signer_name):
            return True
        right = Target(
            verb=VERB,
            is_resource=True,
            group=target.group,
            version=target.version,
            resource=spec.signer_name.replace("/", ":"),
            namespace=request.namespace,
            name=spec.service_account_name,
        )
        return (await self._authorizer.authorize(request.user, right)).allowed


def _path(namespace: str, new: PodCertificateRequest) -> str:
    return quote(f"{namespace}/{new.spec.pod_name}")
