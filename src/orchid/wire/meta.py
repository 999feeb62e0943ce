"""Metadata that every object carries, and the base class of every kind's type."""

import datetime
from typing import Annotated, Any, Self

from msgspec import field

from orchid.wire.struct import (
    Wire,
    as_set,
    at_most,
    atomic_map,
    describe,
    merge_key,
    proto,
    replace,
)

MOST_OWNERS, MOST_FINALIZERS, MOST_MANAGERS = 1000, 1000, 1000  # that one object can have
MOST_LABELS, MOST_ANNOTATIONS = 1000, 1000

Time = datetime.datetime


class OwnerReference(Wire):
    """An object on which this one depends."""

    atomic = True

    api_version: Annotated[str, proto(5), describe("The API version of the owner.")] = field(
        default_factory=str
    )
    kind: Annotated[str, proto(1), describe("The kind of the owner.")] = field(default_factory=str)
    name: Annotated[str, proto(3), describe("The name of the owner.")] = field(default_factory=str)
    uid: Annotated[
        str, proto(4), describe("The uid of the owner; a namesake with another uid does not count.")
    ] = field(default_factory=str)
    controller: Annotated[
        bool | None, proto(6), describe("Whether this owner is the one that manages the object.")
    ] = None
    block_owner_deletion: Annotated[
        bool | None,
        proto(7),
        describe("Whether an owner that is deleted in the foreground waits for this object to go."),
    ] = None


class ManagedFieldsEntry(Wire):
    """Which fields one manager has set, and how."""

    manager: Annotated[str, proto(1), describe("The name of the manager.")] = ""
    operation: Annotated[
        str, proto(2), describe("`Apply` or `Update`: how the fields came to be owned.")
    ] = ""
    api_version: Annotated[
        str, proto(3), describe("The API version in which the fields are named.")
    ] = ""
    time: Annotated[
        Time | None, proto(4), describe("When the manager last changed the set of its fields.")
    ] = None
    fields_type: Annotated[str, proto(6), describe("The form of fieldsV1; always `FieldsV1`.")] = ""
    fields_v1: Annotated[
        dict[str, Any] | None,
        atomic_map(),
        proto(7, "fields-v1"),
        describe("The fields, as a tree of their names."),
    ] = field(default=None, name="fieldsV1")
    subresource: Annotated[
        str,
        proto(8),
        describe("The endpoint through which the manager wrote; empty for the object itself."),
    ] = ""


class ObjectMeta(Wire):
    """What the server and its clients need to know of any object."""

    name: Annotated[
        str,
        proto(1),
        describe("The name; unique among the objects of a kind in a namespace, and never changed."),
    ] = ""
    generate_name: Annotated[
        str,
        proto(2),
        describe("The beginning of a name that the server completes, when no name is given."),
    ] = ""
    namespace: Annotated[
        str, proto(3), describe("The namespace; empty for kinds that stand outside of namespaces.")
    ] = ""
    self_link: Annotated[
        str, proto(4), describe("Kept for old clients; the server never sets it.")
    ] = ""
    uid: Annotated[
        str,
        proto(5),
        describe(
            "Tells this object from all others of any time, also from later ones of the "
            "same name. Set by the server."
        ),
    ] = ""
    resource_version: Annotated[
        str,
        proto(6),
        describe(
            "Changes with every write. Sent back with a write, it refuses the write if "
            "somebody was faster."
        ),
    ] = ""
    generation: Annotated[
        int, proto(7), describe("Counts the changes of what is wanted. Set by the server.")
    ] = 0
    creation_timestamp: Annotated[
        Time | None,
        proto(8, embedded=True),
        describe("When the object was created. Set by the server."),
    ] = None
    deletion_timestamp: Annotated[
        Time | None,
        proto(9),
        describe(
            "When the object was marked to go; it stays until its finalizers are gone. Set "
            "by the server."
        ),
    ] = None
    deletion_grace_period_seconds: Annotated[
        int | None, proto(10), describe("How long the object may take to end. Set by the server.")
    ] = None
    labels: Annotated[
        dict[str, str],
        at_most(MOST_LABELS),
        proto(11),
        describe("Marks by which selectors find the object."),
    ] = field(default_factory=dict)
    annotations: Annotated[
        dict[str, str],
        at_most(MOST_ANNOTATIONS),
        proto(12),
        describe("Notes of any kind about the object; no selector looks at them."),
    ] = field(default_factory=dict)
    owner_references: Annotated[
        tuple[OwnerReference, ...],
        merge_key("uid"),
        at_most(MOST_OWNERS),
        proto(13),
        describe("The objects on which this one depends; when all of them are gone, it goes too."),
    ] = ()
    finalizers: Annotated[
        tuple[str, ...],
        as_set(),
        at_most(MOST_FINALIZERS),
        proto(14),
        describe("Who still has to do something before the object may go."),
    ] = ()
    managed_fields: Annotated[
        tuple[ManagedFieldsEntry, ...],
        at_most(MOST_MANAGERS),
        proto(17),
        describe("Who has set which fields. Kept by the server."),
    ] = ()


class Object(Wire):
    """The base of every kind: what it is, and its metadata."""

    kind: Annotated[str, describe("The kind of the object.")] = ""
    api_version: Annotated[
        str, describe("The API group and version in which the object is written.")
    ] = ""
    metadata: Annotated[
        ObjectMeta, proto(1), describe("What every object has: name, labels, owners and the like.")
    ] = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    def with_meta(self, **fields: Any) -> Self:
        return replace(self, metadata=replace(self.metadata, **fields))
