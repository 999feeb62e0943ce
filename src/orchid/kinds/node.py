"""Node: a machine whose agent has an identity. It keeps any field it is given."""

from typing import Annotated, Any

from msgspec import field

from orchid.engine.kind import Column, Endpoint, Kind, Scope
from orchid.engine.tables import AGE, NAME
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, as_set, merge_key, proto, shaped_like


class Taint(Wire):
    key: Annotated[str, proto(1)] = field(default_factory=str)
    value: Annotated[str, proto(2)] = ""
    effect: Annotated[str, proto(3)] = field(default_factory=str)
    time_added: Annotated[Time | None, proto(4)] = None


class NodeFields(Wire):
    """The declared part of a Node's spec."""

    pod_cidr: Annotated[str, proto(1)] = field(default="", name="podCIDR")
    external_id: Annotated[str, proto(2)] = field(default="", name="externalID")
    provider_id: Annotated[str, proto(3)] = field(default="", name="providerID")
    unschedulable: Annotated[bool, proto(4)] = False
    taints: Annotated[tuple[Annotated[dict[str, Any], shaped_like(Taint)], ...], proto(5)] = ()
    pod_cidrs: Annotated[tuple[str, ...], as_set(), proto(7)] = field(default=(), name="podCIDRs")


class NodeCondition(Wire):
    type: Annotated[str, proto(1)] = field(default_factory=str)
    status: Annotated[str, proto(2)] = field(default_factory=str)


class NodeStatusFields(Wire):
    """The declared part of a Node's status."""

    conditions: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(NodeCondition)], ...],
        merge_key("type"),
        proto(4),
    ] = ()


class Node(Object):
    spec: Annotated[dict[str, Any], shaped_like(NodeFields), proto(2)] = field(
        default_factory=lambda: {}
    )
    status: Annotated[dict[str, Any], shaped_like(NodeStatusFields), proto(3)] = field(
        default_factory=lambda: {}
    )


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
