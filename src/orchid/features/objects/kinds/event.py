"""Event: a report of a controller about an object, stored for a while for `describe`.

The same events are served in two groups: `Event` in the core group, with the older field names,
and `ReportedEvent` in a group of its own, with newer names and stricter rules. Start with
`declare`. Both types have the same Python names and differ on the wire. Stored as `Event`.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import NAME
from orchid.kernel.wire.fields import FieldError, Path, immutable, invalid, required
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import ObjectReference
from orchid.kernel.wire.rules.names import path_segment_errors, qualified_name_errors
from orchid.kernel.wire.struct import Wire, always, describe, null, proto, replace
from orchid.kernel.wire.text import age

WIDE = 1  # a column that is shown with -o wide
LONGEST_WORD, LONGEST_MESSAGE = 128, 1024  # bytes
INVOLVED_NAMESPACE = Path() / "involvedObject" / "namespace"
# Errors use the stored field names in both groups, except for the reporting controller.
REPORTER, CONTROLLER = Path() / "reportingComponent", Path() / "reportingController"
EVENT_TIME, TYPE, SERIES = Path() / "eventTime", Path() / "type", Path() / "series"
TYPES = ("Normal", "Warning")
SMALLEST_SERIES = 2
OLDER = ("firstTimestamp", "lastTimestamp", "count", "source")  # not for new events
FIXED = {
    "involved_object": Path() / "involvedObject",
    "reason": Path() / "reason",
    "message": Path() / "message",
    "source": Path() / "source",
    "first_timestamp": Path() / "firstTimestamp",
    "last_timestamp": Path() / "lastTimestamp",
    "count": Path() / "count",
    "type": TYPE,
    "event_time": EVENT_TIME,
    "action": Path() / "action",
    "related": Path() / "related",
    "reporting_component": CONTROLLER,
    "reporting_instance": Path() / "reportingInstance",
}


class EventSource(Wire):
    """The reporter of an event."""

    published_as = "core.v1.EventSource"

    component: Annotated[str, proto(1), describe("The program.")] = ""
    host: Annotated[str, proto(2), describe("The machine it runs on.")] = ""


class EventSeries(Wire):
    """Repetitions of an event, counted."""

    count: Annotated[int, proto(1, "int32"), describe("The number of repetitions.")] = 0
    last_observed_time: Annotated[
        str | None, proto(2, "micro-time", embedded=True), describe("The time of the last one.")
    ] = always(null)


class Event(Object):
    """A report about an object, stored for a while."""

    involved_object: Annotated[
        ObjectReference,
        proto(2),
        describe("The object.", required=True),
    ] = field(default_factory=ObjectReference)
    reason: Annotated[str, proto(3), describe("The reason as one word.")] = ""
    message: Annotated[str, proto(4), describe("The event as a sentence.")] = ""
    source: Annotated[EventSource, proto(5), describe("The reporter.")] = field(
        default_factory=EventSource
    )
    first_timestamp: Annotated[
        Time | None,
        proto(6, embedded=True),
        describe("The time of the first occurrence.", required=False),
    ] = always(null)
    last_timestamp: Annotated[
        Time | None,
        proto(7, embedded=True),
        describe("The time of the last occurrence.", required=False),
    ] = always(null)
    count: Annotated[int, proto(8, "int32"), describe("The number of occurrences.")] = 0
    type: Annotated[str, proto(9), describe("Normal or Warning.")] = ""
    event_time: Annotated[
        str | None, proto(10, "micro-time", embedded=True), describe("The time of the event.")
    ] = always(null)
    series: Annotated[EventSeries | None, proto(11), describe("Its repetitions, if any.")] = None
    action: Annotated[str, proto(12), describe("The action of the controller.")] = ""
    related: Annotated[
        ObjectReference | None, proto(13), describe("A second object that is involved.")
    ] = None
    reporting_component: Annotated[
        str, proto(14), describe("The reporting controller.", required=False)
    ] = field(default_factory=str)
    reporting_instance: Annotated[
        str, proto(15), describe("The instance of that controller.", required=False)
    ] = field(default_factory=str)


class ReportedSeries(Wire):
    """Repetitions of an event, counted."""

    published_as = "events.v1.EventSeries"

    count: Annotated[int, proto(1, "int32"), describe("The number of repetitions.")] = always(int)
    last_observed_time: Annotated[
        str | None,
        proto(2, "micro-time", embedded=True),
        describe("The time of the last one.", required=True),
    ] = always(null)


class ReportedEvent(Object):
    """A report about an object, in the newer group."""

    published_as = "events.v1.Event"

    event_time: Annotated[
        str | None,
        proto(2, "micro-time", embedded=True),
        describe("The time of the event.", required=True),
    ] = always(null)
    series: Annotated[ReportedSeries | None, proto(3), describe("Its repetitions, if any.")] = None
    reporting_component: Annotated[str, proto(4), describe("The reporting controller.")] = field(
        default="", name="reportingController"
    )
    reporting_instance: Annotated[str, proto(5), describe("The instance of that controller.")] = ""
    action: Annotated[str, proto(6), describe("The action of the controller.")] = ""
    reason: Annotated[str, proto(7), describe("The reason as one word.")] = ""
    involved_object: Annotated[ObjectReference, proto(8), describe("The object.")] = field(
        default_factory=ObjectReference, name="regarding"
    )
    related: Annotated[
        ObjectReference | None, proto(9), describe("A second object that is involved.")
    ] = None
    message: Annotated[str, proto(10), describe("The event as a sentence.")] = field(
        default="", name="note"
    )
    type: Annotated[str, proto(11), describe("Normal or Warning.")] = ""
    source: Annotated[EventSource, proto(12), describe("The reporter of an older event.")] = field(
        default_factory=EventSource, name="deprecatedSource"
    )
    first_timestamp: Annotated[
        Time | None,
        proto(13, embedded=True),
        describe("The first occurrence of an older event.", required=False),
    ] = always(null, name="deprecatedFirstTimestamp")
    last_timestamp: Annotated[
        Time | None,
        proto(14, embedded=True),
        describe("The last occurrence of an older event.", required=False),
    ] = always(null, name="deprecatedLastTimestamp")
    count: Annotated[int, proto(15, "int32"), describe("The number of occurrences, if older.")] = (
        field(default=0, name="deprecatedCount")
    )


AnyEvent = Event | ReportedEvent


class Rules(Strategy[Event]):
    """Rules of the core group: an event with `eventTime` needs more fields than an older one."""

    def __init__(self, naming: Naming) -> None:
        self._cluster_namespaces = ("default", naming.system_namespace)

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: Event) -> Iterator[FieldError]:
        yield from report_errors(new, self._cluster_namespaces, REPORTER)


class StrictRules(Strategy[ReportedEvent]):
    """Rules of the newer group: all fields are required, and only the series may change."""

    def __init__(self, naming: Naming) -> None:
        self._cluster_namespaces = ("default", naming.system_namespace)

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)  # it may have been created in the core group

    def validate(self, new: ReportedEvent) -> Iterator[FieldError]:
        yield from report_errors(new, self._cluster_namespaces, CONTROLLER)
        yield from series_errors(new.series)
        if new.event_time is None:
            yield required(EVENT_TIME)
        if new.type not in TYPES:
            yield invalid(TYPE, "", f"has invalid value: {new.type}")
        older = (new.first_timestamp, new.last_timestamp, new.count, new.source != EventSource())
        for name, said in zip(OLDER, older, strict=True):
            if said:
                yield invalid(Path() / name, "", "needs to be unset")

    def validate_update(self, new: ReportedEvent, old: ReportedEvent) -> Iterator[FieldError]:
        yield from report_errors(new, self._cluster_namespaces, CONTROLLER)
        if new.series != old.series:
            yield from series_errors(new.series)
        for name, path in FIXED.items():
            yield from immutable(path, getattr(new, name), getattr(old, name))


def report_errors(
    new: AnyEvent, cluster_namespaces: tuple[str, str], reporter: Path
) -> Iterator[FieldError]:
    """Validate the namespace and, if `eventTime` is set, the required fields."""
    about = new.involved_object.namespace
    if new.event_time is None:
        fits = new.namespace == (about or "default")
    else:
        fits = bool(about) or new.namespace in cluster_namespaces
    if not fits:
        yield invalid(INVOLVED_NAMESPACE, about, "does not match event.namespace")
    if new.event_time is not None:
        yield from _text_errors(new, reporter)


def _text_errors(new: AnyEvent, reporter: Path) -> Iterator[FieldError]:
    """Reporter, action and reason are required and limited in length."""
    if not new.reporting_component:
        yield required(reporter)
    for problem in qualified_name_errors(new.reporting_component):
        yield invalid(reporter, new.reporting_component, problem)
    words = (
        ("reportingInstance", new.reporting_instance),
        ("action", new.action),
        ("reason", new.reason),
    )
    for name, text in words:
        if not text:
            yield required(Path() / name)
        yield from _length_errors(name, text, LONGEST_WORD)
    yield from _length_errors("message", new.message, LONGEST_MESSAGE)


def series_errors(series: ReportedSeries | None) -> Iterator[FieldError]:
    if series is not None:
        if series.count < SMALLEST_SERIES:
            yield invalid(SERIES / "count", "", f"should be at least {SMALLEST_SERIES}")
        if series.last_observed_time is None:
            yield required(SERIES / "lastObservedTime")


def _length_errors(name: str, text: str, most: int) -> Iterator[FieldError]:
    if len(text.encode()) > most:
        yield invalid(Path() / name, "", f"can have at most {most} characters")


def declare(naming: Naming) -> Kind[Event]:
    return Kind(
        type=Event,
        group="",
        version="v1",
        beside=(_reported(naming),),
        plural="events",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=Rules(naming),
        short_names=("ev",),
        columns=COLUMNS,
        selectable={
            **_about("involvedObject"),
            **SELECTABLE,
            "reportingComponent": lambda event: event.reporting_component,
            "source": lambda event: event.source.component or event.reporting_component,
        },
    )


def _reported(naming: Naming) -> Kind[ReportedEvent]:
    return Kind(
        type=ReportedEvent,
        group=naming.events,
        version="v1",
        plural="events",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=StrictRules(naming),
        short_names=("ev",),
        columns=COLUMNS,
        selectable={
            **_about("regarding"),
            **SELECTABLE,
            "reportingController": lambda event: event.reporting_component,
        },
    )


def _about(field_name: str) -> dict[str, Callable[[AnyEvent], str]]:
    """Selectable fields of the object that an event is about."""
    return {
        f"{field_name}.kind": lambda event: event.involved_object.kind,
        f"{field_name}.namespace": lambda event: event.involved_object.namespace,
        f"{field_name}.name": lambda event: event.involved_object.name,
        f"{field_name}.uid": lambda event: event.involved_object.uid,
        f"{field_name}.apiVersion": lambda event: event.involved_object.api_version,
        f"{field_name}.resourceVersion": lambda event: event.involved_object.resource_version,
        f"{field_name}.fieldPath": lambda event: event.involved_object.field_path,
    }


SELECTABLE: dict[str, Callable[[AnyEvent], str]] = {
    "reason": lambda event: event.reason,
    "type": lambda event: event.type,
}


def first_seen(event: AnyEvent, now: datetime) -> str:
    return age(event.first_timestamp or _moment(event.event_time), now)


def last_seen(event: AnyEvent, now: datetime) -> str:
    if event.series is not None:
        return age(_moment(event.series.last_observed_time), now)
    return age(event.last_timestamp, now) if event.last_timestamp else first_seen(event, now)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def count(event: AnyEvent, now: datetime) -> int:
    return event.series.count if event.series is not None else event.count or 1


def about(event: AnyEvent, now: datetime) -> str:
    involved = event.involved_object
    kind = involved.kind.lower()
    return f"{kind}/{involved.name}" if involved.name else kind


def source(event: AnyEvent, now: datetime) -> str:
    component = event.source.component or event.reporting_component
    instance = event.source.host or event.reporting_instance
    return f"{component}, {instance}" if instance else component


COLUMNS = (
    Column("Last Seen", last_seen, description="The time of the last occurrence."),
    Column("Type", lambda event, now: event.type, description="Normal or Warning."),
    Column("Reason", lambda event, now: event.reason, description="The reason as one word."),
    Column("Object", about, description="The object."),
    Column(
        "Subobject",
        lambda event, now: event.involved_object.field_path,
        description="The part of the object.",
        priority=WIDE,
    ),
    Column("Source", source, description="The reporter.", priority=WIDE),
    Column(
        "Message", lambda event, now: event.message.strip(), description="The event as a sentence."
    ),
    Column("First Seen", first_seen, description="The time of the first one.", priority=WIDE),
    Column("Count", count, description="The number of occurrences.", priority=WIDE),
    replace(NAME, priority=WIDE),
)
