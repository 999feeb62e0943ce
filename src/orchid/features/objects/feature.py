"""Namespaces, Secrets, ConfigMaps, Pods, Nodes, Events and Leases, and what removes them.

Kinds      ConfigMap, Event, ReportedEvent, Lease, Namespace, Node, Pod, Secret
Read first kinds/namespace.py
"""

from orchid.features.objects import parts
from orchid.features.objects.controllers import clean_events, collect_dependents, finish_namespaces
from orchid.features.objects.kinds import config_map, event, lease, namespace, node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.objects.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="objects",
    kinds=(
        config_map.declare,
        event.declare,
        lease.declare,
        namespace.declare,
        node.declare,
        pod.declare,
        secret.declare,
    ),
    controllers=(
        clean_events.CONTROLLER,
        collect_dependents.CONTROLLER,
        finish_namespaces.CONTROLLER,
    ),
    roles=roles,
    permission_kinds=(secret.Secret, pod.Pod, node.Node),
    provides=parts.PARTS,
    policies=parts.policies,
    prepare=parts.prepare,
    documentation="kinds.md",
)
