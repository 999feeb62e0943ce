"""Metadata that every object carries, and the base class of every kind's type."""

import datetime
from typing import Annotated, Any, Self

from msgspec import field

from orchid.kernel.wire.struct import (
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
    """The owner of an object."""

    atomic = True

    api_version: Annotated[str, proto(5), describe("The API version of the owner.")] = field(
        default_factory=str
    )
    kind: Annotated[str, proto(1), describe("The kind of the owner.")] = field(default_factory=str)
    name: Annotated[str, proto(3), describe("The name of the owner.")] = field(default_factory=str)
    uid: Annotated[
        str, proto(4), describe("The uid of the owner; the name alone does not suffice.")
    ] = field(default_factory=str)
    controller: Annotated[
        bool | None, proto(6), describe("Whether this owner controls the object.")
    ] = None
    block_owner_deletion: Annotated[
        bool | None,
        proto(7),
        describe("Whether a foreground deletion of the owner waits for this object."),
    ] = None


class ManagedFieldsEntry(Wire):
    """Fields set by one manager."""

    manager: Annotated[str, proto(1), describe("The name of the manager.")] = ""
    operation: Annotated[
        str, proto(2), describe("`Apply` or `Update`: the operation that set the fields.")
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
        describe("The fields as a tree of names."),
    ] = field(default=None, name="fieldsV1")
    subresource: Annotated[
        str,
        proto(8),
        describe("The subresource that was written; empty for the object itself."),
    ] = ""


class ObjectMeta(Wire):
    """Metadata of an object."""

    name: Annotated[
        str,
        proto(1),
        describe("The name; unique per kind and namespace. Immutable."),
    ] = ""
    generate_name: Annotated[
        str,
        proto(2),
        describe("The prefix of a name that the server generates, if no name is given."),
    ] = ""
    namespace: Annotated[
        str, proto(3), describe("The namespace; empty for cluster-scoped kinds.")
    ] = ""
    self_link: Annotated[str, proto(4), describe("Deprecated; never set.")] = ""
    uid: Annotated[
        str,
        proto(5),
        describe(
            "Identifies this object among all others, also among later ones of the "
            "same name. Set by the server."
        ),
    ] = ""
    resource_version: Annotated[
        str,
        proto(6),
        describe(
            "Changes with every write. A write with an older value is refused, because the "
            "object was modified concurrently."
        ),
    ] = ""
    generation: Annotated[
        int, proto(7), describe("The generation of the spec. Set by the server.")
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
            "When the object was marked for deletion; finalizers delay its removal. Set "
            "by the server."
        ),
    ] = None
    deletion_grace_period_seconds: Annotated[
        int | None, proto(10), describe("The grace period of the deletion. Set by the server.")
    ] = None
    labels: Annotated[
        dict[str, str],
        at_most(MOST_LABELS),
        proto(11),
        describe("Labels for selectors."),
    ] = field(default_factory=dict)
    annotations: Annotated[
        dict[str, str],
        at_most(MOST_ANNOTATIONS),
        proto(12),
        describe("Arbitrary data about the object; not selectable."),
    ] = field(default_factory=dict)
    owner_references: Annotated[
        tuple[OwnerReference, ...],
        merge_key("uid"),
        at_most(MOST_OWNERS),
        proto(13),
        describe("The owners; when all of them are deleted, this object is deleted too."),
    ] = ()
    finalizers: Annotated[
        tuple[str, ...],
        as_set(),
        at_most(MOST_FINALIZERS),
        proto(14),
        describe("Finalizers that block the removal of the object."),
    ] = ()
    managed_fields: Annotated[
        tuple[ManagedFieldsEntry, ...],
        at_most(MOST_MANAGERS),
        proto(17),
        describe("The fields of each manager. Maintained by the server."),
    ] = ()


class Object(Wire):
    """The base of every kind: type and metadata."""

    kind: Annotated[str, describe("The kind of the object.")] = ""
    api_version: Annotated[str, describe("The API group and version of this representation.")] = ""
    metadata: Annotated[
        ObjectMeta, proto(1), describe("Metadata: name, labels, owners and more.")
    ] = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    def with_meta(self, **fields: Any) -> Self:
        return replace(self, metadata=replace(self.metadata, **fields))
