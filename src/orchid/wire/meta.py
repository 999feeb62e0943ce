"""Metadata that every object carries, and the base class of every kind's type."""

import datetime
from typing import Annotated, Any, Self

from msgspec import field

from orchid.wire.struct import Wire, as_set, atomic_map, merge_key, proto, replace

Time = datetime.datetime


class OwnerReference(Wire):
    """An object on which this one depends."""

    api_version: Annotated[str, proto(5)] = field(default_factory=str)
    kind: Annotated[str, proto(1)] = field(default_factory=str)
    name: Annotated[str, proto(3)] = field(default_factory=str)
    uid: Annotated[str, proto(4)] = field(default_factory=str)
    controller: Annotated[bool | None, proto(6)] = None
    block_owner_deletion: Annotated[bool | None, proto(7)] = None


class ManagedFieldsEntry(Wire):
    """Which fields one manager has set, and how."""

    manager: Annotated[str, proto(1)] = ""
    operation: Annotated[str, proto(2)] = ""
    api_version: Annotated[str, proto(3)] = ""
    time: Annotated[Time | None, proto(4)] = None
    fields_type: Annotated[str, proto(6)] = ""
    fields_v1: Annotated[dict[str, Any] | None, atomic_map(), proto(7, "fields-v1")] = field(
        default=None, name="fieldsV1"
    )
    subresource: Annotated[str, proto(8)] = ""


class ObjectMeta(Wire):
    """What the server and its clients need to know of any object."""

    name: Annotated[str, proto(1)] = ""
    generate_name: Annotated[str, proto(2)] = ""
    namespace: Annotated[str, proto(3)] = ""
    self_link: Annotated[str, proto(4)] = ""
    uid: Annotated[str, proto(5)] = ""
    resource_version: Annotated[str, proto(6)] = ""
    generation: Annotated[int, proto(7)] = 0
    creation_timestamp: Annotated[Time | None, proto(8, embedded=True)] = None
    deletion_timestamp: Annotated[Time | None, proto(9)] = None
    deletion_grace_period_seconds: Annotated[int | None, proto(10)] = None
    labels: Annotated[dict[str, str], proto(11)] = field(default_factory=dict)
    annotations: Annotated[dict[str, str], proto(12)] = field(default_factory=dict)
    owner_references: Annotated[
        tuple[OwnerReference, ...], merge_key("uid", atomic=True), proto(13)
    ] = ()
    finalizers: Annotated[tuple[str, ...], as_set(), proto(14)] = ()
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...], proto(17)] = ()


class Object(Wire):
    """The base of every kind: what it is, and its metadata."""

    kind: str = ""
    api_version: str = ""
    metadata: Annotated[ObjectMeta, proto(1)] = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    def with_meta(self, **fields: Any) -> Self:
        return replace(self, metadata=replace(self.metadata, **fields))
