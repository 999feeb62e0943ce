"""Pod: a workload that tokens are bound to. This server runs none.

Only the fields that matter to identity are declared and validated: account, node and mounts.
Unknown fields are stored as sent. The effects of the account are an admission question: see
features/accounts/policies/service_account.py.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import field

from orchid.features.objects.kinds.pod.certificates import certificate_errors
from orchid.features.objects.kinds.pod.parts import Container, EphemeralContainer, Volume
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.conditions import ReportedCondition
from orchid.kernel.wire.fields import FieldError, Path, forbidden, invalid, type_invalid
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import LocalObjectReference
from orchid.kernel.wire.rules.names import subdomain_errors
from orchid.kernel.wire.struct import (
    Wire,
    at_most,
    describe,
    merge_key,
    proto,
    replace,
    shaped_like,
)

SPEC = Path() / "spec"
MOST_PARTS = 1000  # containers of one type, volumes, secrets


class PodFields(Wire):
    """The spec of a Pod. Fields that are not listed are stored as sent."""

    published_as = "core.v1.PodSpec"

    volumes: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(Volume)], ...],
        merge_key("name"),
        at_most(MOST_PARTS),
        proto(1),
        describe("Volumes for its containers."),
    ] = ()
    containers: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(Container)], ...],
        merge_key("name"),
        at_most(MOST_PARTS),
        proto(2),
        describe("The containers."),
    ] = ()
    service_account_name: Annotated[str, proto(8), describe("The account of the Pod.")] = ""
    service_account: Annotated[
        str, proto(9), describe("The older spelling of serviceAccountName; both always agree.")
    ] = ""
    node_name: Annotated[
        str, proto(10), describe("The node of the Pod; empty until it is scheduled.")
    ] = ""
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...],
        merge_key("name"),
        at_most(MOST_PARTS),
        proto(15),
        describe("Secrets for fetching images."),
    ] = ()
    init_containers: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(Container)], ...],
        merge_key("name"),
        at_most(MOST_PARTS),
        proto(20),
        describe("The containers that run first."),
    ] = ()
    ephemeral_containers: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(EphemeralContainer)], ...],
        merge_key("name"),
        at_most(MOST_PARTS),
        proto(34),
        describe("Containers for debugging."),
    ] = ()
    hostname: Annotated[str, proto(16), describe("The host name in its containers.")] = ""
    subdomain: Annotated[str, proto(17), describe("The domain of that name.")] = ""
    automount_service_account_token: Annotated[
        bool | None, proto(21), describe("Whether containers get a token of the account.")
    ] = None


class PodCondition(ReportedCondition):
    """A condition of a Pod."""

    last_probe_time: Annotated[
        Time | None, proto(3, embedded=True), describe("The time of the last probe.")
    ] = None
    observed_generation: Annotated[
        int, proto(7), describe("The generation of the Pod it refers to.")
    ] = 0


class PodAddress(Wire):
    """An address of a Pod."""

    published_as = "core.v1.PodIP"

    ip: Annotated[str, proto(1), describe("The address.")] = field(default_factory=str)


class PodStatusFields(Wire):
    """The status of a Pod, reported by its node. Fields that are not listed are stored as sent."""

    published_as = "core.v1.PodStatus"

    phase: Annotated[str, proto(1), describe("Pending, Running, Succeeded, Failed or Unknown.")] = (
        ""
    )
    conditions: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(PodCondition)], ...],
        merge_key("type"),
        proto(2),
        describe("The conditions."),
    ] = ()
    message: Annotated[str, proto(3), describe("The reason of the phase as a sentence.")] = ""
    reason: Annotated[str, proto(4), describe("The reason of the phase as one word.")] = ""
    host_ip: Annotated[str, proto(5), describe("The address of its node.")] = field(
        default="", name="hostIP"
    )
    pod_ip: Annotated[str, proto(6), describe("Its own address.")] = field(default="", name="podIP")
    start_time: Annotated[Time | None, proto(7), describe("When its node accepted it.")] = None
    pod_ips: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(PodAddress)], ...],
        merge_key("ip"),
        proto(12),
        describe("Its own addresses, by address family."),
    ] = field(default=(), name="podIPs")
    observed_generation: Annotated[
        int, proto(17), describe("The generation of the Pod that its node acts on.")
    ] = 0


class Pod(Object):
    """A workload to which tokens are bound. This server runs none."""

    spec: Annotated[
        dict[str, Any], shaped_like(PodFields), proto(2), describe("The desired Pod.")
    ] = field(default_factory=lambda: {})
    status: Annotated[
        dict[str, Any], shaped_like(PodStatusFields), proto(3), describe("The observed Pod.")
    ] = field(default_factory=lambda: {})

    @property
    def account(self) -> str:
        return text_of(self.spec, "serviceAccountName")

    def running_as(self, account: str) -> "Pod":
        named = {"serviceAccountName": account, "serviceAccount": account}
        return replace(self, spec={**self.spec, **named})

    @property
    def node(self) -> str:
        return text_of(self.spec, "nodeName")


class Rules(Strategy[Pod]):
    def __init__(self, naming: Naming) -> None:
        self._domain = naming.domain

    def prepare_for_create(self, new: Pod, request: Request) -> Pod:
        return replace(new, status={"phase": "Pending"})

    def validate(self, new: Pod) -> Iterator[FieldError]:
        for name in ("serviceAccountName", "nodeName"):
            value = new.spec.get(name, "")
            if not isinstance(value, str):
                yield type_invalid(SPEC / name, value, "must be a string")
            elif value:
                for problem in subdomain_errors(value):
                    yield invalid(SPEC / name, value, problem)
        yield from certificate_errors(new.spec, self._domain)

    def validate_update(self, new: Pod, old: Pod) -> Iterator[FieldError]:
        yield from self.validate(new)
        # Tokens are bound to the account and node of a Pod: both are immutable.
        if new.account != old.account:
            yield forbidden(SPEC / "serviceAccountName", "a Pod's account may not change")
        if old.node and new.node != old.node:
            yield forbidden(SPEC / "nodeName", "a Pod's node may not change once it is set")


class StatusRules(Strategy[Pod]):
    """The `status` endpoint, for node agents."""

    def validate_update(self, new: Pod, old: Pod) -> Iterator[FieldError]:
        yield from ()


def with_defaults(new: Pod) -> Pod:
    """Copy the account into both spellings."""
    account = new.account or text_of(new.spec, "serviceAccount")
    odd = not isinstance(new.spec.get("serviceAccountName", ""), str)
    return new if odd or not account else new.running_as(account)


def text_of(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def declare(naming: Naming) -> Kind[Pod]:
    return Kind(
        type=Pod,
        group="",
        version="v1",
        plural="pods",
        scope=Scope.NAMESPACED,
        counts_generation=True,
        rules=Rules(naming),
        defaults=with_defaults,
        short_names=("po",),
        categories=("all",),
        writes=("metadata", "spec"),
        creates=("metadata", "spec"),
        answers_deleted_object=True,
        columns=(
            NAME,
            Column("Account", lambda pod, now: pod.account, description="The account."),
            Column("Node", lambda pod, now: pod.node or "<none>", description="The node."),
            AGE,
        ),
        selectable={
            "spec.nodeName": lambda pod: pod.node,
            "spec.serviceAccountName": lambda pod: pod.account,
            "status.phase": lambda pod: text_of(pod.status, "phase"),
        },
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=StatusRules()),),
    )
