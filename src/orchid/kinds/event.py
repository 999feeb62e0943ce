"""Event: what a controller did, kept for a while so that `describe` can tell."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from msgspec import field

from orchid.engine.kind import Column, Kind, Scope
from orchid.engine.strategy import Strategy
from orchid.engine.tables import NAME
from orchid.wire.fields import FieldError, Path, invalid, required
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.references import ObjectReference
from orchid.wire.rules.names import path_segment_errors, qualified_name_errors
from orchid.wire.struct import Wire, always, describe, null, proto
from orchid.wire.text import age

WIDE = 1  # a column that is shown with -o wide
LONGEST_WORD, LONGEST_MESSAGE = 128, 1024  # bytes
INVOLVED_NAMESPACE = Path() / "involvedObject" / "namespace"
REPORTER = Path() / "reportingComponent"


class EventSource(Wire):
    """Who tells of an event."""

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


class Rules(Strategy[Event]):
    """An event that says when it was noticed (`eventTime`) must say more than an older one."""

    def __init__(self, names: Naming) -> None:
        self._places_of_all = ("default", names.system_namespace)

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: Event) -> Iterator[FieldError]:
        about = new.involved_object.namespace
        if new.event_time is None:
            fits = new.namespace == (about or "default")
        else:
            fits = bool(about) or new.namespace in self._places_of_all
        if not fits:
            yield invalid(INVOLVED_NAMESPACE, about, "does not match event.namespace")
        if new.event_time is not None:
            yield from _telling_errors(new)


def _telling_errors(new: Event) -> Iterator[FieldError]:
    """Who tells, what was done and why must be said, and briefly."""
    if not new.reporting_component:
        yield required(REPORTER)
    for problem in qualified_name_errors(new.reporting_component):
        yield invalid(REPORTER, new.reporting_component, problem)
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


def _length_errors(name: str, text: str, most: int) -> Iterator[FieldError]:
    if len(text.encode()) > most:
        yield invalid(Path() / name, "", f"can have at most {most} characters")


def declare(names: Naming) -> Kind[Event]:
    return Kind(
        type=Event,
        group="",
        version="v1",
        plural="events",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=Rules(names),
        short_names=("ev",),
        columns=(
            Column("Last Seen", last_seen, description="When it happened last."),
            Column("Type", lambda event, now: event.type, description="Normal or Warning."),
            Column("Reason", lambda event, now: event.reason, description="In one word."),
            Column(
                "Object",
                lambda event, now: (
                    f"{event.involved_object.kind.lower()}/{event.involved_object.name}"
                ),
                description="What it happened to.",
            ),
            Column(
                "Subobject",
                lambda event, now: event.involved_object.field_path,
                description="Which part of it.",
                priority=WIDE,
            ),
            Column("Source", source, description="Who tells.", priority=WIDE),
            Column("Message", lambda event, now: event.message, description="In a sentence."),
            Column("First Seen", first_seen, description="When it happened first.", priority=WIDE),
            Column(
                "Count",
                lambda event, now: max(event.count, 1),
                description="How often it happened.",
                priority=WIDE,
            ),
            replace(NAME, priority=WIDE),
        ),
        selectable={
            "involvedObject.kind": lambda event: event.involved_object.kind,
            "involvedObject.namespace": lambda event: event.involved_object.namespace,
            "involvedObject.name": lambda event: event.involved_object.name,
            "involvedObject.uid": lambda event: event.involved_object.uid,
            "involvedObject.apiVersion": lambda event: event.involved_object.api_version,
            "involvedObject.resourceVersion": (
                lambda event: event.involved_object.resource_version
            ),
            "involvedObject.fieldPath": lambda event: event.involved_object.field_path,
            "reason": lambda event: event.reason,
            "reportingComponent": lambda event: event.reporting_component,
            "source": lambda event: event.source.component or event.reporting_component,
            "type": lambda event: event.type,
        },
    )


def last_seen(event: Event, now: datetime) -> str:
    """An event that tells no time happened when it was told."""
    return age(event.last_timestamp or event.metadata.creation_timestamp, now)


def first_seen(event: Event, now: datetime) -> str:
    return age(event.first_timestamp or event.metadata.creation_timestamp, now)


def source(event: Event, now: datetime) -> str:
    told_by = (event.source.component or event.reporting_component, event.source.host)
    return ", ".join(word for word in told_by if word)
