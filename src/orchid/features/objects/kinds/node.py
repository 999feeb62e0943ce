"""Node: a machine whose agent has an identity. Unknown fields are stored as sent."""

from typing import Annotated, Any

from msgspec import field

from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.conditions import ReportedCondition
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, as_set, describe, merge_key, proto, shaped_like


class Taint(Wire):
    """A taint: repels workloads that do not tolerate it."""

    key: Annotated[str, proto(1), describe("The key of the taint.")] = field(default_factory=str)
    value: Annotated[str, proto(2), describe("Its value.")] = ""
    effect: Annotated[str, proto(3), describe("NoSchedule, PreferNoSchedule or NoExecute.")] = (
        field(default_factory=str)
    )
    time_added: Annotated[Time | None, proto(4), describe("The time at which it was added.")] = None


class NodeFields(Wire):
    """The spec of a node. Fields that are not listed are stored as sent."""

    published_as = "core.v1.NodeSpec"

    pod_cidr: Annotated[str, proto(1), describe("The addresses for Pods on this node.")] = field(
        default="", name="podCIDR"
    )
    external_id: Annotated[str, proto(2), describe("Deprecated, and without effect.")] = field(
        default="", name="externalID"
    )
    provider_id: Annotated[str, proto(3), describe("The node's name at its provider.")] = field(
        default="", name="providerID"
    )
    unschedulable: Annotated[bool, proto(4), describe("Whether new workloads are kept away.")] = (
        False
    )
    taints: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(Taint)], ...],
        proto(5),
        describe("Taints that repel workloads."),
    ] = ()
    pod_cidrs: Annotated[
        tuple[str, ...],
        as_set(),
        proto(7),
        describe("The addresses for Pods on this node, by address family."),
    ] = field(default=(), name="podCIDRs")


class NodeCondition(ReportedCondition):
    """A condition of a node."""

    last_heartbeat_time: Annotated[
        Time | None, proto(3, embedded=True), describe("When the agent last reported it.")
    ] = None


class NodeAddress(Wire):
    """A host name or IP address of a node."""

    type: Annotated[str, proto(1), describe("Hostname, InternalIP, ExternalDNS and the like.")] = (
        field(default_factory=str)
    )
    address: Annotated[str, proto(2), describe("The address itself.")] = field(default_factory=str)


class NodeStatusFields(Wire):
    """The status of a node, from its agent. Fields that are not listed are stored as sent."""

    published_as = "core.v1.NodeStatus"

    capacity: Annotated[
        dict[str, Any], proto(1, "quantities"), describe("The capacity by resource.")
    ] = field(default_factory=dict)
    allocatable: Annotated[
        dict[str, Any], proto(2, "quantities"), describe("The part of it for Pods, by resource.")
    ] = field(default_factory=dict)
    conditions: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(NodeCondition)], ...],
        merge_key("type"),
        proto(4),
        describe("The conditions."),
    ] = ()
    addresses: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(NodeAddress)], ...],
        merge_key("type"),
        proto(5),
        describe("The addresses of the node."),
    ] = ()


class Node(Object):
    """A machine whose agent has an identity."""

    spec: Annotated[
        dict[str, Any], shaped_like(NodeFields), proto(2), describe("The desired node.")
    ] = field(default_factory=lambda: {})
    status: Annotated[
        dict[str, Any], shaped_like(NodeStatusFields), proto(3), describe("The observed node.")
    ] = field(default_factory=lambda: {})


def readiness(node: Node) -> str:
    """Ready, NotReady or Unknown, from the condition that the agent reports."""
    conditions = node.status.get("conditions")
    for condition in conditions if isinstance(conditions, list | tuple) else ():
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def declare(naming: Naming) -> Kind[Node]:
    return Kind(
        type=Node,
        group="",
        version="v1",
        plural="nodes",
        scope=Scope.CLUSTER,
        short_names=("no",),
        writes=("metadata", "spec"),
        columns=(
            NAME,
            Column(
                "Status", lambda node, now: readiness(node), description="As the agent reports."
            ),
            AGE,
        ),
        selectable={
            "spec.unschedulable": lambda node: str(node.spec.get("unschedulable") is True).lower()
        },
        endpoints=(Endpoint("status", writes=("metadata", "status")),),
    )
