"""Node: permissions of a node agent: what its Pods need, and nothing of other nodes.

A user is a node if its name is `system:node:NAME` and it is in `system:nodes`. Start with
`NodeAuthorizer.authorize`, a table from resource to rule. A node may read Secrets, config maps and
service accounts while one of its Pods refers to them (`PodReferences`, updated from the feed); for
the rest the fixed rules of the `system:node` role apply, narrowed to the node's own objects where
the request alone shows them.

Everything that is not allowed here is no opinion with a reason: RBAC may still allow it.
features/nodes/policies/node_restriction.py checks what a node writes.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.features.nodes.roles import node_rules
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.pod.references import REFERENCE_PATHS, leaves
from orchid.features.rights.kinds.self_subject_rules_review import (
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.features.rights.rules import allows_name, allows_resource
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.selectors.selection import FieldMatcher
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import NODE_PREFIX, UserInfo, node_name

READS: Final = ("get", "list", "watch")
LEASE_VERBS: Final = ("get", "create", "update", "patch", "delete")

ALLOWED = Decision(Verdict.ALLOW)
NOT_ASKED = Decision(Verdict.NO_OPINION)
UNLISTED = SubjectRulesReviewStatus()

Reference = tuple[str, str, str]  # resource, namespace, name


class NodeAuthorizer:
    """Decide for nodes only."""

    def __init__(self, naming: Naming, feed: Feed) -> None:
        self._feed = feed
        self._references = PodReferences(naming, feed.of(Pod))
        self._static_rules = node_rules(naming)
        self._lease_namespace = naming.node_lease_namespace
        self._table: dict[tuple[str, str], Callable[[str, Target], Decision]] = {
            ("", "secrets"): self._reading,
            ("", "configmaps"): self._reading,
            ("", "serviceaccounts"): self._account,
            ("", "pods"): self._pod,
            ("", "nodes"): self._node,
            (naming.coordination, "leases"): self._lease,
            (naming.certificates, "podcertificaterequests"): self._pod_certificate,
        }

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if not user.username.startswith(NODE_PREFIX):
            return NOT_ASKED  # checked first, since hardly any user is a node
        node = node_name(user)
        if node is None:
            return NOT_ASKED
        if not node:
            return undecided(f"unknown node for user {quote(user.username)}")
        if not target.is_resource:
            return NOT_ASKED
        await self._feed.fresh_for_request()
        rule = self._table.get((target.group, target.resource))
        return self._static(target) if rule is None else rule(node, target)

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        if node_name(user) is None:
            return UNLISTED
        return SubjectRulesReviewStatus(
            incomplete=True,
            evaluation_error="node authorizer does not support user rule resolution",
        )

    def close(self) -> None:
        self._references.close()

    def _reading(self, node: str, target: Target) -> Decision:
        if target.verb not in READS:
            return undecided("can only read resources of this type")
        if target.subresource:
            return undecided("cannot read subresource")
        if not target.namespace:
            return undecided("can only read namespaced object of this type")
        return self._related(node, target)

    def _account(self, node: str, target: Target) -> Decision:
        if target.verb == "get" and not target.subresource:
            return self._reading(node, target)
        if target.verb != "create" or not target.name:
            return undecided("can only create tokens for individual service accounts")
        if target.subresource != "token":
            return undecided("can only create token subresource of serviceaccount")
        return self._related(node, target)

    def _pod(self, node: str, target: Target) -> Decision:
        if target.subresource or target.verb not in READS:
            return self._static(target)
        if target.verb == "get":
            return self._related(node, target)
        if selected(target, "spec.nodeName") == node:
            return ALLOWED
        if target.name:
            return self._related(node, target)
        return undecided("can only list/watch pods with spec.nodeName field selector")

    def _node(self, node: str, target: Target) -> Decision:
        if target.verb in READS and not target.subresource and target.name != node:
            wanted = f"'{target.name}'" if target.name else "all nodes"
            return undecided(f"node '{node}' cannot read {wanted}, only its own Node object")
        return self._static(target)

    def _lease(self, node: str, target: Target) -> Decision:
        if target.verb not in LEASE_VERBS:
            return undecided("can only get, create, update, patch, or delete a node lease")
        if target.namespace != self._lease_namespace:
            quoted = quote(self._lease_namespace)
            return undecided(f"can only access leases in the {quoted} system namespace")
        # The name of a new one is in the body: features/nodes/policies/node_restriction.py checks
        # it.
        if target.verb != "create" and target.name != node:
            text = "can only access node lease with the same name as the requesting node"
            return undecided(text)
        return ALLOWED

    def _pod_certificate(self, node: str, target: Target) -> Decision:
        if target.subresource:
            text = "nodes may not access the status subresource of PodCertificateRequests"
            return undecided(text)
        if target.verb == "create":
            return ALLOWED  # features/nodes/policies/node_pod_certificates.py checks the contents
        if target.verb == "get":
            entry = self._feed.of(PodCertificateRequest).get(target.namespace, target.name)
            if entry is not None and entry.object.spec.node_name == node:
                return ALLOWED
            return unrelated(node)
        if target.verb in READS:
            selected_node = selected(target, "spec.nodeName")
            if selected_node == node:
                return ALLOWED
            text = "can only list/watch podcertificaterequests with nodeName field selector"
            return undecided(text)
        return undecided(f"nodes may not {target.verb} podcertificaterequests")

    def _related(self, node: str, target: Target) -> Decision:
        if not target.name:
            return undecided("No Object name found")
        if self._references.has(node, (target.resource, target.namespace, target.name)):
            return ALLOWED
        return unrelated(node)

    def _static(self, target: Target) -> Decision:
        for rule in self._static_rules:
            if allows_name(rule, target.name) and allows_resource(
                rule, target.verb, target.group, target.resource, target.subresource
            ):
                return ALLOWED
        return NOT_ASKED


class PodReferences:
    """References of the Pods of each node, counted."""

    def __init__(self, naming: Naming, pods: KindCache[Any]) -> None:
        self._mirror = naming.mirror_annotation
        self._counts: dict[str, dict[Reference, int]] = {}
        self._of_pod: dict[str, tuple[str, set[Reference]]] = {}
        self._index: CacheIndex[Any] = CacheIndex(pods, self._changed, self._cleared)

    def has(self, node: str, reference: Reference) -> bool:
        self._index.catch_up()
        return reference in self._counts.get(node, ())

    def close(self) -> None:
        self._index.close()

    def _changed(self, key: str, entry: Entry[Any] | None) -> None:
        before = self._of_pod.pop(key, None)
        if before is not None:
            self._drop(*before)
        if entry is None:
            return
        node, references = self._read(entry)
        if node:
            self._of_pod[key] = (node, references)
            counts = self._counts.setdefault(node, {})
            for reference in references:
                counts[reference] = counts.get(reference, 0) + 1

    def _drop(self, node: str, references: set[Reference]) -> None:
        counts = self._counts[node]
        for reference in references:
            counts[reference] -= 1
            if not counts[reference]:
                del counts[reference]
        if not counts:
            del self._counts[node]

    def _cleared(self) -> None:
        self._counts.clear()
        self._of_pod.clear()

    def _read(self, entry: Entry[Any]) -> tuple[str, set[Reference]]:
        spec = msgspec.json.decode(entry.data).get("spec")
        node = next(iter(leaves(spec, ("nodeName",))), "")
        namespace, name = entry.meta.namespace, entry.meta.name
        references = {("pods", namespace, name)}
        # A mirror Pod is created by its node, which could write any reference into it.
        if node and self._mirror not in entry.meta.annotations:
            references |= {
                (resource, namespace, leaf)
                for resource, paths in REFERENCE_PATHS.items()
                for path in paths
                for leaf in leaves(spec, path)
            }
        return node, references


def selected(target: Target, field: str) -> str | None:
    """The only value of a field that a list or watch selects, or None."""
    try:
        return FieldMatcher.parse(target.field_selector).exact(field)
    except BadRequest:
        return None


def unrelated(node: str) -> Decision:
    return undecided(f"no relationship found between node '{node}' and this object")


def undecided(reason: str) -> Decision:
    return Decision(Verdict.NO_OPINION, reason)


_: type[Authorizer] = NodeAuthorizer
__: type[RuleLister] = NodeAuthorizer
