"""Event: what a controller did, kept for a while so that `describe` can tell.

The same events are served in two groups: by the older names in the core group (`Event`), by the
newer ones in a group of their own (`ReportedEvent`), where the rules are stricter too. Start with
`declare`. Both types have the same Python names; only what travels differs. They are stored as
`Event`.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated

from msgspec import field

from orchid.engine.kind import Column, Kind, Scope
from orchid.engine.strategy import Strategy
from orchid.engine.tables import NAME
from orchid.wire.fields import FieldError, Path, immutable, invalid, required
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.references import ObjectReference
from orchid.wire.rules.names import path_segment_errors, qualified_name_errors
from orchid.wire.struct import Wire, always, describe, null, proto, replace
from orchid.wire.text import age

WIDE = 1  # a column that is shown with -o wide
LONGEST_WORD, LONGEST_MESSAGE = 128, 1024  # bytes
INVOLVED_NAMESPACE = Path() / "involvedObject" / "namespace"
# A refusal names the stored field, in either group; but for who tells.
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
    """Who tells of an event."""

    published_as = "core.v1.EventSource"

    component: Annotated[str, proto(1), describe("The program.")] = ""
    host: Annotated[str, proto(2), describe("The machine it runs on.")] = ""


class EventSeries(Wire):
    """The same event, many times over, told as one."""

    count: Annotated[int, proto(1, "int32"), describe("How often so far.")] = 0
    last_observed_time: Annotated[
        str | None, proto(2, "micro-time", embedded=True), describe("When it was noticed last.")
    ] = always(null)


class Event(Object):
    """Something that happened to an object, kept for a while so that people can look it up."""

    involved_object: Annotated[
        ObjectReference,
        proto(2),
        describe("What it happened to.", required=True),
    ] = field(default_factory=ObjectReference)
    reason: Annotated[str, proto(3), describe("What happened, in one word.")] = ""
    message: Annotated[str, proto(4), describe("What happened, in a sentence.")] = ""
    source: Annotated[EventSource, proto(5), describe("Who tells.")] = field(
        default_factory=EventSource
    )
    first_timestamp: Annotated[
        Time | None,
        proto(6, embedded=True),
        describe("When it happened first.", required=False),
    ] = always(null)
    last_timestamp: Annotated[
        Time | None,
        proto(7, embedded=True),
        describe("When it happened last.", required=False),
    ] = always(null)
    count: Annotated[int, proto(8, "int32"), describe("How often it happened.")] = 0
    type: Annotated[str, proto(9), describe("Normal or Warning.")] = ""
    event_time: Annotated[
        str | None, proto(10, "micro-time", embedded=True), describe("When it was noticed.")
    ] = always(null)
    series: Annotated[
        EventSeries | None, proto(11), describe("What it is one of, if it keeps happening.")
    ] = None
    action: Annotated[str, proto(12), describe("What was done about it.")] = ""
    related: Annotated[
        ObjectReference | None, proto(13), describe("What else had a part in it.")
    ] = None
    reporting_component: Annotated[
        str, proto(14), describe("The controller that tells.", required=False)
    ] = field(default_factory=str)
    reporting_instance: Annotated[
        str, proto(15), describe("Which instance of that controller.", required=False)
    ] = field(default_factory=str)


class ReportedSeries(Wire):
    """The same event, many times over, told as one."""

    published_as = "events.v1.EventSeries"

    count: Annotated[int, proto(1, "int32"), describe("How often so far.")] = always(int)
    last_observed_time: Annotated[
        str | None,
        proto(2, "micro-time", embedded=True),
        describe("When it was noticed last.", required=True),
    ] = always(null)


class ReportedEvent(Object):
    """Something that happened to an object, as the controller that tells of it has noticed it."""

    published_as = "events.v1.Event"

    event_time: Annotated[
        str | None,
        proto(2, "micro-time", embedded=True),
        describe("When it was noticed.", required=True),
    ] = always(null)
    series: Annotated[
        ReportedSeries | None, proto(3), describe("What it is one of, if it keeps happening.")
    ] = None
    reporting_component: Annotated[str, proto(4), describe("The controller that tells.")] = field(
        default="", name="reportingController"
    )
    reporting_instance: Annotated[str, proto(5), describe("Which instance of that controller.")] = (
        ""
    )
    action: Annotated[str, proto(6), describe("What was done about it.")] = ""
    reason: Annotated[str, proto(7), describe("What happened, in one word.")] = ""
    involved_object: Annotated[ObjectReference, proto(8), describe("What it happened to.")] = field(
        default_factory=ObjectReference, name="regarding"
    )
    related: Annotated[
        ObjectReference | None, proto(9), describe("What else had a part in it.")
    ] = None
    message: Annotated[str, proto(10), describe("What happened, in a sentence.")] = field(
        default="", name="note"
    )
    type: Annotated[str, proto(11), describe("Normal or Warning.")] = ""
    source: Annotated[EventSource, proto(12), describe("Who tells, of an older event.")] = field(
        default_factory=EventSource, name="deprecatedSource"
    )
    first_timestamp: Annotated[
        Time | None,
        proto(13, embedded=True),
        describe("When an older event happened first.", required=False),
    ] = always(null, name="deprecatedFirstTimestamp")
    last_timestamp: Annotated[
        Time | None,
        proto(14, embedded=True),
        describe("When an older event happened last.", required=False),
    ] = always(null, name="deprecatedLastTimestamp")
    count: Annotated[int, proto(15, "int32"), describe("How often an older event happened.")] = (
        field(default=0, name="deprecatedCount")
    )


AnyEvent = Event | ReportedEvent


class Rules(Strategy[Event]):
    """An event that says when it was noticed (`eventTime`) must say more than an older one."""

    def __init__(self, names: Naming) -> None:
        self._places_of_all = ("default", names.system_namespace)

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: Event) -> Iterator[FieldError]:
        yield from telling_errors(new, self._places_of_all, REPORTER)


class StrictRules(Strategy[ReportedEvent]):
    """In its own group an event says all of it, and nothing of it changes but its series."""

    def __init__(self, names: Naming) -> None:
        self._places_of_all = ("default", names.system_namespace)

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)  # it may come from the core group

    def validate(self, new: ReportedEvent) -> Iterator[FieldError]:
        yield from telling_errors(new, self._places_of_all, CONTROLLER)
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
        yield from telling_errors(new, self._places_of_all, CONTROLLER)
        if new.series != old.series:
            yield from series_errors(new.series)
        for name, path in FIXED.items():
            yield from immutable(path, getattr(new, name), getattr(old, name))


def telling_errors(
    new: AnyEvent, places_of_all: tuple[str, str], reporter: Path
) -> Iterator[FieldError]:
    """Judge where the event stands and, if it says when it was noticed, what else it says."""
    about = new.involved_object.namespace
    if new.event_time is None:
        fits = new.namespace == (about or "default")
    else:
        fits = bool(about) or new.namespace in places_of_all
    if not fits:
        yield invalid(INVOLVED_NAMESPACE, about, "does not match event.namespace")
    if new.event_time is not None:
        yield from _wording_errors(new, reporter)


def _wording_errors(new: AnyEvent, reporter: Path) -> Iterator[FieldError]:
    """Who tells, what was done and why must be said, and briefly."""
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


def declare(names: Naming) -> Kind[Event]:
    return Kind(
        type=Event,
        group="",
        version="v1",
        beside=(_reported(names),),
        plural="events",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=Rules(names),
        short_names=("ev",),
        columns=COLUMNS,
        selectable={
            **_about("involvedObject"),
            **SELECTABLE,
            "reportingComponent": lambda event: event.reporting_component,
            "source": lambda event: event.source.component or event.reporting_component,
        },
    )


def _reported(names: Naming) -> Kind[ReportedEvent]:
    return Kind(
        type=ReportedEvent,
        group=names.events,
        version="v1",
        plural="events",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=StrictRules(names),
        short_names=("ev",),
        columns=COLUMNS,
        selectable={
            **_about("regarding"),
            **SELECTABLE,
            "reportingController": lambda event: event.reporting_component,
        },
    )


def _about(field_name: str) -> dict[str, Callable[[AnyEvent], str]]:
    """What an event is about, to be selected by."""
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
    Column("Last Seen", last_seen, description="When it happened last."),
    Column("Type", lambda event, now: event.type, description="Normal or Warning."),
    Column("Reason", lambda event, now: event.reason, description="In one word."),
    Column("Object", about, description="What it happened to."),
    Column(
        "Subobject",
        lambda event, now: event.involved_object.field_path,
        description="Which part of it.",
        priority=WIDE,
    ),
    Column("Source", source, description="Who tells.", priority=WIDE),
    Column("Message", lambda event, now: event.message.strip(), description="In a sentence."),
    Column("First Seen", first_seen, description="When it happened first.", priority=WIDE),
    Column("Count", count, description="How often it happened.", priority=WIDE),
    replace(NAME, priority=WIDE),
)
