"""Node: a machine whose agent has an identity. It keeps any field it is given."""

from typing import Annotated, Any

from msgspec import field

from orchid.engine.kind import Column, Endpoint, Kind, Scope
from orchid.engine.tables import AGE, NAME
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, as_set, describe, merge_key, proto, shaped_like


class Taint(Wire):
    """A mark that keeps workloads away unless they tolerate it."""

    key: Annotated[str, proto(1), describe("The name of the mark.")] = field(default_factory=str)
    value: Annotated[str, proto(2), describe("Its value.")] = ""
    effect: Annotated[str, proto(3), describe("NoSchedule, PreferNoSchedule or NoExecute.")] = (
        field(default_factory=str)
    )
    time_added: Annotated[Time | None, proto(4), describe("When it was put on.")] = None


class NodeFields(Wire):
    """What a node is to be. Fields that are not listed are kept as given."""

    published_as = "core.v1.NodeSpec"

    pod_cidr: Annotated[str, proto(1), describe("The addresses for Pods on this node.")] = field(
        default="", name="podCIDR"
    )
    external_id: Annotated[str, proto(2), describe("Deprecated, and without effect.")] = field(
        default="", name="externalID"
    )
    provider_id: Annotated[str, proto(3), describe("The node's name with whoever provides it.")] = (
        field(default="", name="providerID")
    )
    unschedulable: Annotated[bool, proto(4), describe("Whether new workloads shall stay away.")] = (
        False
    )
    taints: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(Taint)], ...],
        proto(5),
        describe("Marks that keep workloads away."),
    ] = ()
    pod_cidrs: Annotated[
        tuple[str, ...],
        as_set(),
        proto(7),
        describe("The addresses for Pods on this node, by address family."),
    ] = field(default=(), name="podCIDRs")


class NodeCondition(Wire):
    """One thing that is known about a node."""

    type: Annotated[
        str, proto(1), describe("What the condition is about; `Ready` is the one that counts.")
    ] = field(default_factory=str)
    status: Annotated[str, proto(2), describe("True, False or Unknown.")] = field(
        default_factory=str
    )
    last_heartbeat_time: Annotated[
        Time | None, proto(3, embedded=True), describe("When the agent last said so.")
    ] = None
    last_transition_time: Annotated[
        Time | None, proto(4, embedded=True), describe("When the status last changed.")
    ] = None
    reason: Annotated[str, proto(5), describe("Why it is so, in one word.")] = ""
    message: Annotated[str, proto(6), describe("Why it is so, in a sentence.")] = ""


class NodeAddress(Wire):
    """A name or number under which a node is reached."""

    type: Annotated[str, proto(1), describe("Hostname, InternalIP, ExternalDNS and the like.")] = (
        field(default_factory=str)
    )
    address: Annotated[str, proto(2), describe("The address itself.")] = field(default_factory=str)


class NodeStatusFields(Wire):
    """How a node is doing, as its agent tells. Fields that are not listed are kept as given."""

    published_as = "core.v1.NodeStatus"

    capacity: Annotated[
        dict[str, Any], proto(1, "quantities"), describe("What the node has, by resource.")
    ] = field(default_factory=dict)
    allocatable: Annotated[
        dict[str, Any], proto(2, "quantities"), describe("What of that Pods may have.")
    ] = field(default_factory=dict)
    conditions: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(NodeCondition)], ...],
        merge_key("type"),
        proto(4),
        describe("What is known about the node."),
    ] = ()
    addresses: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(NodeAddress)], ...],
        merge_key("type"),
        proto(5),
        describe("Where the node is reached."),
    ] = ()


class Node(Object):
    """A machine whose agent has an identity."""

    spec: Annotated[
        dict[str, Any], shaped_like(NodeFields), proto(2), describe("What the node is to be.")
    ] = field(default_factory=lambda: {})
    status: Annotated[
        dict[str, Any], shaped_like(NodeStatusFields), proto(3), describe("How the node is doing.")
    ] = field(default_factory=lambda: {})


def readiness(node: Node) -> str:
    """Ready, NotReady or Unknown, from the condition that the agent keeps."""
    conditions = node.status.get("conditions")
    for condition in conditions if isinstance(conditions, list | tuple) else ():
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def declare(names: Naming) -> Kind[Node]:
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
            Column("Status", lambda node, now: readiness(node), description="As the agent says."),
            AGE,
        ),
        selectable={
            "spec.unschedulable": lambda node: str(node.spec.get("unschedulable") is True).lower()
        },
        endpoints=(Endpoint("status", writes=("metadata", "status")),),
    )
