"""Lease: a lock that its holder renews. Used by leaders and node agents."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import field

from orchid.engine.kind import Column, Kind, Scope
from orchid.engine.request import Request
from orchid.engine.strategy import Strategy
from orchid.engine.tables import AGE, NAME
from orchid.wire.fields import FieldError, Path, invalid
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.rules.names import path_segment_errors
from orchid.wire.struct import Wire, describe, proto, replace

SPEC = Path() / "spec"


class LeaseSpec(Wire):
    """The holder of a lease and its times."""

    holder_identity: Annotated[str | None, proto(1), describe("The holder.")] = None
    lease_duration_seconds: Annotated[
        int | None,
        proto(2, "int32"),
        describe("Seconds without renewal after which others may acquire it."),
    ] = None
    acquire_time: Annotated[
        str | None, proto(3, "micro-time"), describe("When the holder acquired it.")
    ] = None
    renew_time: Annotated[
        str | None, proto(4, "micro-time"), describe("When the holder last renewed it.")
    ] = None
    lease_transitions: Annotated[
        int | None, proto(5, "int32"), describe("The number of changes of the holder.")
    ] = None
    strategy: Annotated[str | None, proto(6), describe("The election strategy.")] = None
    preferred_holder: Annotated[str | None, proto(7), describe("The preferred next holder.")] = None


class Lease(Object):
    """A lock that its holder renews."""

    spec: Annotated[LeaseSpec, proto(2), describe("The holder and the times.")] = field(
        default_factory=LeaseSpec
    )


class Rules(Strategy[Lease]):
    only_known_finalizers = False

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def prepare_for_create(self, new: Lease, request: Request) -> Lease:
        return _without_election(new, LeaseSpec())

    def prepare_for_update(self, new: Lease, old: Lease, request: Request) -> Lease:
        return _without_election(new, old.spec)

    def validate(self, new: Lease) -> Iterator[FieldError]:
        spec = new.spec
        if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
            yield invalid(
                SPEC / "leaseDurationSeconds",
                spec.lease_duration_seconds,
                "must be greater than 0",
            )
        if spec.lease_transitions is not None and spec.lease_transitions < 0:
            yield invalid(
                SPEC / "leaseTransitions",
                spec.lease_transitions,
                "must be greater than or equal to 0",
            )


def _without_election(new: Lease, before: LeaseSpec) -> Lease:
    """Drop the fields of coordinated leader election, which is not supported."""
    strategy = new.spec.strategy if before.strategy else None
    preferred = new.spec.preferred_holder if before.preferred_holder else None
    if (strategy, preferred) == (new.spec.strategy, new.spec.preferred_holder):
        return new
    return replace(new, spec=replace(new.spec, strategy=strategy, preferred_holder=preferred))


def declare(names: Naming) -> Kind[Lease]:
    return Kind(
        type=Lease,
        group=names.coordination,
        version="v1",
        known_versions=("v1beta1",),
        plural="leases",
        scope=Scope.NAMESPACED,
        may_update_unconditionally=False,
        creates_on_update=True,
        rules=Rules(),
        columns=(
            NAME,
            Column(
                "Holder",
                lambda lease, now: lease.spec.holder_identity or "",
                description="The holder.",
            ),
            AGE,
        ),
    )
