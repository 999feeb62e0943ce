"""Tables for `kubectl get`. A row has a kind's columns and the object behind them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.kind import Column, Kind
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.text import age, quote

T = TypeVar("T", bound=Object)

NAME = Column("Name", lambda object_, now: object_.name, format="name", description="The name.")
AGE = Column(
    "Age",
    lambda object_, now: age(object_.metadata.creation_timestamp, now),
    description="The age of the object.",
)

INCLUDE = ("", "Metadata", "Object", "None")


def require_known_include(include: str) -> None:
    if include not in INCLUDE:
        raise BadRequest(
            f"Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
        )


def column_definitions(kind: Kind[Any]) -> bytes:
    return encode(
        [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in kind.columns
        ]
    )


def table(
    kind: Kind[T],
    entries: Iterable[Entry[T]],
    list_meta: bytes,
    *,
    api_version: str,
    include: str,
    now: datetime,
    columns: bytes | None = None,
) -> bytes:
    """A whole Table as JSON; without `columns` the definitions are omitted, as in later events."""
    rows = b",".join(row(kind, entry, api_version, include, now) for entry in entries)
    return (
        b'{"kind":"Table","apiVersion":"%b","metadata":%b,"columnDefinitions":%b,"rows":[%b]}'
        % (api_version.encode(), list_meta, columns or b"null", rows)
    )


def row(kind: Kind[T], entry: Entry[T], api_version: str, include: str, now: datetime) -> bytes:
    shown = entry.object
    cells = encode([column.cell(shown, now) for column in kind.columns])
    if include == "None":
        behind = b"null"
    elif include == "Object":
        behind = kind.head + entry.tail
    else:
        behind = partial_metadata(entry, api_version)
    return b'{"cells":%b,"object":%b}' % (cells, behind)


def partial_metadata(entry: Entry[Any], api_version: str) -> bytes:
    """The object reduced to its metadata, cut out of its bytes."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"%b","metadata":%b}' % (
        api_version.encode(),
        metadata_bytes(entry),
    )


class _RawMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_cut = msgspec.json.Decoder(_RawMetadata).decode


def metadata_bytes(entry: Entry[Any]) -> bytes:
    return bytes(_cut(entry.data).metadata)
