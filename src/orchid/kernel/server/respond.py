"""Responses as bytes: an object, a list, a Table or a Status, in the requested format.

Objects are stored as JSON, so JSON costs nothing: other formats are converted from it. failures.py
turns errors into responses.
"""

import gzip
from collections.abc import Sequence
from typing import Any

import msgspec

from orchid.kernel.engine import tables
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.verbs.listing import Listed, Whole
from orchid.kernel.http.messages import Response
from orchid.kernel.server.negotiate import (
    JSON,
    PROTOBUF,
    YAML,
    Form,
    Transform,
)
from orchid.kernel.server.protobuf_bodies import entry_body, list_body
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.codec.documents import encode, pretty
from orchid.kernel.wire.codec.protobuf import sealed_status
from orchid.kernel.wire.errors import NotAcceptable
from orchid.kernel.wire.status import ListMeta, Status

GZIP_ABOVE = 131_072
LARGEST_YAML = 8 << 20  # of its JSON
WARNING_BUDGET, WARNING_CUT = 4096, 256

_CONTENT_TYPE = {
    media: b"Content-Type: %b\r\n" % media.encode() for media in (JSON, YAML, PROTOBUF)
}
NOSNIFF = b"X-Content-Type-Options: nosniff\r\n"
PLAIN = b"Content-Type: text/plain; charset=utf-8\r\n"
TEXT = PLAIN + NOSNIFF


def head(state: RequestState, content_type: bytes, *, cache: bytes = b"no-cache, private") -> bytes:
    # Joining takes a third of the time of formatting.
    return b"".join(
        (
            b"Audit-Id: ",
            state.audit_id.encode("latin-1"),
            b"\r\nCache-Control: ",
            cache,
            b"\r\n",
            content_type,
            state.extra_headers,
            warning_headers(state.warnings) if state.warnings else b"",
        )
    )


def text(state: RequestState, status: int, body: str, *, content_type: bytes = TEXT) -> Response:
    return Response(status, head(state, content_type), body.encode())


def document(
    state: RequestState,
    status: int,
    data: bytes | bytearray,
    form: Form,
    packed: bytes | None = None,
) -> Response:
    """JSON data in the requested format; `packed` is the same in protobuf, if requested."""
    state.shown = data
    headers = head(state, _CONTENT_TYPE[form.media])
    if packed is not None:
        body: bytes | bytearray = packed
    elif form.media == YAML:
        if len(data) > LARGEST_YAML:
            raise NotAcceptable("the answer is too large for YAML; ask for JSON, or for pages")
        body = yaml_text.dump(msgspec.json.decode(data))
    elif form.pretty or (state.pretty if state.query else state.head.client.indented):
        body = pretty(bytes(data))
    else:
        data += b"\n"  # of a long list in place
        body = data
    return Response(status, headers, body)


def is_large(response: Response) -> bool:
    """Whether compression is worth the time, if the client accepts it."""
    return len(response.body) > GZIP_ABOVE


def compressed(response: Response) -> Response:
    response.body = gzip.compress(response.body, 1, mtime=0)
    response.headers += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
    return response


def entry_response(state: RequestState, status: int, entry: Entry[Any]) -> Response:
    """One object."""
    form = state.form
    if form.is_stored_format:
        return document(state, status, entry.kind.head + entry.tail, form)
    packed = entry_body(entry, form) if form.media == PROTOBUF else None
    if form.transform is Transform.NONE:
        return document(state, status, entry.data, form, packed)
    if form.transform is Transform.METADATA_LIST:
        raise NotAcceptable(
            "you requested PartialObjectMetadataList, but the requested object is not a list "
            f"({entry.kind.name})"
        )
    if form.transform is Transform.METADATA:
        data = tables.partial_metadata(entry, form.meta_version)
        return document(state, status, data, form, packed)
    include = (state.query.get("includeObject") or [""])[0]
    tables.require_known_include(include)
    data = tables.table(
        entry.kind,
        [entry],
        encode(ListMeta(resource_version=entry.object.metadata.resource_version)),
        api_version=form.meta_version,
        include=include,
        now=state.now,
        columns=tables.column_definitions(entry.kind),
    )
    return document(state, status, data, form)


def list_response(state: RequestState, kind: Kind[Any], listed: Listed[Any]) -> Response:
    form = state.form
    if kind.is_renamed:
        listed.entries = [entry.served_as(kind) for entry in listed.entries]
    list_meta = ListMeta(
        resource_version=str(listed.revision),
        continue_=listed.continue_,
        remaining_item_count=listed.remaining,
    )
    meta = encode(list_meta)
    packed = list_body(kind, list_meta, listed, form) if form.media == PROTOBUF else None
    if form.transform is Transform.METADATA:
        raise NotAcceptable(
            "you requested PartialObjectMetadata, but the requested object is a list "
            f"({kind.name}List)"
        )
    if form.transform is Transform.METADATA_LIST:
        items = b",".join(tables.partial_metadata(e, form.meta_version) for e in listed.entries)
        head_ = b'{"kind":"PartialObjectMetadataList","apiVersion":"%b","metadata":%b,"items":['
        data = head_ % (form.meta_version.encode(), meta) + items + b"]}"
        return document(state, 200, data, form, packed)
    if form.transform is Transform.TABLE:
        include = (state.query.get("includeObject") or [""])[0]
        tables.require_known_include(include)
        data = tables.table(
            kind,
            listed.entries,
            meta,
            api_version=form.meta_version,
            include=include,
            now=state.now,
            columns=tables.column_definitions(kind),
        )
        return document(state, 200, data, form)
    return document(state, 200, list_data(kind, meta, listed), form, packed)


def list_data(kind: Kind[Any], meta: bytes, listed: Listed[Any]) -> bytes | bytearray:
    """A list as JSON: the entries' own bytes, joined; items have no kind and apiVersion."""
    head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
        kind.name.encode(),
        kind.api_version.encode(),
        meta,
    )
    entries = listed.entries
    if isinstance(entries, Whole):
        items = entries.cache.joined_tails(entries.prefix)
    elif listed.is_long:
        return _joined_in_pieces(head, entries)
    else:
        items = b",{".join([entry.tail for entry in entries])
    return b"".join((head, b"{", items, b"]}") if items else (head, b"]}"))


def _joined_in_pieces(head: bytes, entries: Sequence[Entry[Any]]) -> bytearray:
    """The same in a thread: a join of all would hold the interpreter for as long as it takes."""
    data, separator = bytearray(head), b"{"
    for entry in entries:
        data += separator
        data += entry.tail
        separator = b",{"
    data += b"]}"
    return data


def status_response(state: RequestState, code: int, status: Status, form: Form) -> Response:
    state.status = status
    packed = sealed_status(status) if form.media == PROTOBUF else None
    return document(state, code, encode(status), form, packed)


def warning_headers(texts: list[str]) -> bytes:
    """One Warning line for each distinct text, within the limit; long ones are truncated if
    necessary.
    """
    distinct = [t for t in dict.fromkeys(texts) if t.isprintable()]
    if sum(map(len, distinct)) > WARNING_BUDGET:
        distinct = [t[:WARNING_CUT] for t in distinct][: WARNING_BUDGET // WARNING_CUT]
    return b"".join(
        b'Warning: 299 - "%b"\r\n' % t.replace("\\", "\\\\").replace('"', '\\"').encode()
        for t in distinct
    )
