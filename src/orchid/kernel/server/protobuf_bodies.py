"""Responses in protobuf: one object, its metadata alone, a list of either, an event, a Status.

An object is encoded once per revision: its entry caches the message, and bodies, lists and events
are built around it. negotiate.py chooses the format; kernel/wire/codec/protobuf.py implements it.
"""

from typing import Any

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.verbs.listing import Listed
from orchid.kernel.server.negotiate import Form, Transform
from orchid.kernel.wire.codec.protobuf import list_message, message_of, metadata_message, sealed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.status import ListMeta

_WHOLE, _METADATA = "protobuf", "protobuf metadata"  # keys of the cached encodings of an entry


def entry_body(entry: Entry[Any], form: Form) -> bytes:
    """One object, or its metadata, as a body."""
    if form.transform is not Transform.NONE:
        return sealed(form.meta_version, Transform.METADATA, entry_metadata(entry))
    return sealed(entry.kind.api_version, entry.kind.name, entry_message(entry))


def list_body(kind: Kind[Any], meta: ListMeta, listed: Listed[Any], form: Form) -> bytes:
    """A list of objects, or of their metadata, as a body."""
    if form.transform is Transform.METADATA_LIST:
        items = [entry_metadata(entry) for entry in listed.entries]
        return sealed(form.meta_version, Transform.METADATA_LIST, list_message(meta, items))
    items = [entry_message(entry) for entry in listed.entries]
    return sealed(kind.api_version, f"{kind.name}List", list_message(meta, items))


def entry_message(entry: Entry[Any]) -> bytes:
    forms = entry.shared_forms()
    message = forms.get(_WHOLE)
    if message is None:
        message = forms[_WHOLE] = message_of(entry.kind.type).encode(entry.object)
    return message


def entry_metadata(entry: Entry[Any]) -> bytes:
    forms = entry.shared_forms()
    encoded = forms.get(_METADATA)
    if encoded is None:
        message = message_of(ObjectMeta).encode(entry.meta)
        encoded = forms[_METADATA] = metadata_message(message)
    return encoded
