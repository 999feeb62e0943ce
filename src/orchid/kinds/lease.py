"""Lease: a claim that somebody renews while they live. Leaders and node agents hold them."""

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import field

from orchid.engine.kind import Column, Kind, Scope
from orchid.engine.strategy import Strategy
from orchid.engine.tables import AGE, NAME
from orchid.wire.fields import FieldError, Path, invalid
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.struct import Wire, describe, proto

SPEC = Path() / "spec"
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)").fullmatch


class LeaseSpec(Wire):
    """Who holds a lease, and since when."""

    holder_identity: Annotated[str | None, proto(1), describe("Who holds it.")] = None
    lease_duration_seconds: Annotated[
        int | None,
        proto(2, "int32"),
        describe("After how long without renewal others may take it."),
    ] = None
    acquire_time: Annotated[
        str | None, proto(3, "micro-time"), describe("When the holder took it.")
    ] = None
    renew_time: Annotated[
        str | None, proto(4, "micro-time"), describe("When the holder last renewed it.")
    ] = None
    lease_transitions: Annotated[
        int | None, proto(5, "int32"), describe("How often it changed hands.")
    ] = None
    strategy: Annotated[str | None, proto(6), describe("How the next holder is chosen.")] = None
    preferred_holder: Annotated[str | None, proto(7), describe("Who should take it next.")] = None


class Lease(Object):
    """A claim that somebody renews while they live."""

    spec: Annotated[LeaseSpec, proto(2), describe("Who holds the lease.")] = field(
        default_factory=LeaseSpec
    )


class Rules(Strategy[Lease]):
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
        for name, value in (("acquireTime", spec.acquire_time), ("renewTime", spec.renew_time)):
            if value is not None and not _MICRO_TIME(value):
                yield invalid(SPEC / name, value, "must be a time as in RFC 3339")


def declare(names: Naming) -> Kind[Lease]:
    return Kind(
        type=Lease,
        group=names.coordination,
        version="v1",
        known_versions=("v1beta1",),
        plural="leases",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=Rules(),
        columns=(
            NAME,
            Column(
                "Holder",
                lambda lease, now: lease.spec.holder_identity or "",
                description="Who holds it.",
            ),
            AGE,
        ),
    )
