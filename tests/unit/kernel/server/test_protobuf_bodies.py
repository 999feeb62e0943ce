"""Answers in protobuf are made once per object and revision, and shared by all that hold them."""

from typing import Any

import pytest

from orchid.features.accounts.kinds import service_account
from orchid.features.objects.kinds import secret
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.verbs.listing import Listed
from orchid.kernel.engine.verbs.request_body import decode_message
from orchid.kernel.server import protobuf_bodies
from orchid.kernel.server.negotiate import PROTOBUF, Form, Transform
from orchid.kernel.server.protobuf_bodies import (
    entry_body,
    entry_message,
    entry_metadata,
    list_body,
)
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.status import ListMeta

WHOLE = Form(PROTOBUF)
METADATA = Form(PROTOBUF, Transform.METADATA, "meta.k8s.io/v1")
METADATA_LIST = Form(PROTOBUF, Transform.METADATA_LIST, "meta.k8s.io/v1")
STORED = (
    b'{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"a","namespace":"n",'
    b'"uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},'
    b'"automountServiceAccountToken":false}'
)


@pytest.fixture
def kind() -> Kind[Any]:
    return service_account.declare(ORCH)


@pytest.fixture
def entry(kind: Kind[Any]) -> Entry[Any]:
    return Entry.stored(kind, kind.key("n", "a"), STORED, 7)


def test_message_is_made_once(entry: Entry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A second answer, a list and an event take the bytes that the first has made."""
    first, first_metadata = entry_message(entry), entry_metadata(entry)
    monkeypatch.setattr(protobuf_bodies, "message_of", None)  # encoding again would fail

    assert entry_message(entry) is first
    assert entry_metadata(entry) is first_metadata
    assert first in entry_body(entry, WHOLE)


def test_another_revision_is_another_message(entry: Entry[Any]) -> None:
    """The object of a deletion has the revision of the deletion."""
    entry_message(entry)

    _, message = opened(entry_body(entry.at(9), WHOLE))

    meta = message_of(service_account.ServiceAccount).decode(message).metadata
    assert meta.resource_version == "9"


def test_list_holds_its_items(kind: Kind[Any], entry: Entry[Any]) -> None:
    """A list says what it is, and holds the entries' own messages."""
    meta = ListMeta(resource_version="7")

    said, message = opened(list_body(kind, meta, Listed([entry, entry], 7), WHOLE))
    said_metadata, metadata = opened(list_body(kind, meta, Listed([entry], 7), METADATA_LIST))

    assert (said.api_version, said.kind) == ("v1", "ServiceAccountList")
    assert message.count(entry_message(entry)) == 2
    assert (said_metadata.api_version, said_metadata.kind) == (
        "meta.k8s.io/v1",
        "PartialObjectMetadataList",
    )
    assert metadata.endswith(entry_metadata(entry))


def test_metadata_alone_says_what_it_is(entry: Entry[Any]) -> None:
    """The version of a reduced object is the one that was asked for."""
    said, message = opened(entry_body(entry, METADATA))

    found = message_of(service_account.ServiceAccount).decode(message)

    assert (said.api_version, said.kind) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert found.metadata == entry.meta
    assert found.automount_service_account_token is None


def body(kind: str, api_version: str, **meta: Any) -> bytes:
    new = service_account.ServiceAccount(metadata=ObjectMeta(**meta))
    return sealed(api_version, kind, message_of(service_account.ServiceAccount).encode(new))


def test_body_becomes_an_object_of_the_kind(kind: Kind[Any]) -> None:
    """A body without kind and apiVersion gets those of the endpoint."""
    catalog = Catalog([kind])

    for sent in (body("ServiceAccount", "v1", name="a"), body("", "", name="a")):
        found = decode_message(catalog, kind, sent)
        assert (found.kind, found.api_version, found.name) == ("ServiceAccount", "v1", "a")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", r"unrecognized \(must be of type ServiceAccount\): .* \(<empty>\)"),
        (b"\xff\xfe", r"\(fffe\)"),
        (body("Secret", "v1"), "a Secret is not a ServiceAccount"),
        (body("Unheard", "v1"), 'no kind "Unheard" is registered for version "v1"'),
        (sealed("v1", "ServiceAccount", b"\x08\1"), 'in version "v1" cannot be handled'),
    ],
)
def test_body_of_another_kind_is_refused(kind: Kind[Any], sent: bytes, why: str) -> None:
    """A body that is no message, or one of another kind, is a bad request that says so."""
    catalog = Catalog([kind, secret.declare(ORCH)])

    with pytest.raises(BadRequest, match=why):
        decode_message(catalog, kind, sent)
