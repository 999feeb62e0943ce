"""Conditions of an object: type, status, reason and time.

Start with `Condition`. `with_conditions` sets conditions of an object, `with_condition` one of a
list; the time of the last transition only changes with the status. `condition_errors` validates
client input.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar, cast

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.wire.fields import FieldError, Path, duplicate, required, unsupported
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.struct import Wire, always, describe, null, proto, replace

T = TypeVar("T", bound=Object)

READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"


class Condition(Wire):
    """A condition of an object."""

    published_as = "meta.v1.Condition"

    type: Annotated[str, proto(1), describe("The type of the condition.")] = always(str)
    status: Annotated[str, proto(2), describe("True, False or Unknown.")] = always(str)
    observed_generation: Annotated[
        int, proto(3), describe("The generation of the object it refers to.")
    ] = 0
    last_transition_time: Annotated[
        Time | None, proto(4, embedded=True), describe("When the status last changed.")
    ] = always(null)
    reason: Annotated[str, proto(5), describe("The reason as one word.")] = always(str)
    message: Annotated[str, proto(6), describe("The reason as a sentence.")] = always(str)


class ReportedCondition(Wire):
    """A condition that an agent reports, in the older form of Pods and Nodes."""

    type: Annotated[str, proto(1), describe("The type of the condition, such as Ready.")] = always(
        str
    )
    status: Annotated[str, proto(2), describe("True, False or Unknown.")] = always(str)
    last_transition_time: Annotated[
        Time | None, proto(4, embedded=True), describe("When the status last changed.")
    ] = None
    reason: Annotated[str, proto(5), describe("The reason as one word.")] = ""
    message: Annotated[str, proto(6), describe("The reason as a sentence.")] = ""


def is_true(conditions: Sequence[Condition], type_: str) -> bool:
    return any(one.type == type_ and one.status == TRUE for one in conditions)


def with_condition(
    conditions: Sequence[Condition], new: Condition, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with this one; its transition time is now if its status differs."""
    before = next((condition for condition in conditions if condition.type == new.type), None)
    since = before.last_transition_time if before and before.status == new.status else None
    timed = replace(new, last_transition_time=since or whole_seconds(now))
    if before is None:
        return (*conditions, timed)
    return tuple(timed if condition.type == new.type else condition for condition in conditions)


def with_conditions(object_: T, conditions: Iterable[Condition], now: datetime) -> T:
    """The object with these conditions, as observed at its generation."""
    status = cast("Any", object_).status
    changed = status.conditions
    for condition in conditions:
        observed = replace(condition, observed_generation=object_.metadata.generation)
        changed = with_condition(changed, observed, now)
    return replace(object_, status=replace(status, conditions=changed))


def condition_errors(conditions: Sequence[Condition], path: Path) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at = path[index]
        if not condition.type:
            yield required(at / "type")
        elif condition.type in seen:
            yield duplicate(at / "type", condition.type)
        seen.add(condition.type)
        if condition.status not in (TRUE, FALSE, UNKNOWN):
            yield unsupported(at / "status", condition.status, (TRUE, FALSE, UNKNOWN))
        for name, text in (
            ("reason", condition.reason),
            ("lastTransitionTime", condition.last_transition_time),
        ):
            if not text:
                yield required(at / name)
