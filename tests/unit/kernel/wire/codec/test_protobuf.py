"""Protobuf: the bytes of the reference, what is written when there is nothing, and the wrapping."""

import base64
import datetime
import json
from typing import Annotated, Any

import pytest

from orchid.features.objects.kinds.node import Node
from orchid.kernel.engine.verbs.delete import DeleteOptions, Preconditions
from orchid.kernel.wire.codec.documents import decoder_of
from orchid.kernel.wire.codec.field_validation import Malformed
from orchid.kernel.wire.codec.protobuf import (
    list_message,
    message_of,
    metadata_message,
    opened,
    sealed,
    watch_frame,
)
from orchid.kernel.wire.meta import ManagedFieldsEntry, ObjectMeta
from orchid.kernel.wire.status import ListMeta
from orchid.kernel.wire.struct import Wire, proto
from tests.conformance.exchanges import HERE as RECORDED
from tests.unit.kernel.wire.protobuf_samples import TYPES

PAIRS: list[dict[str, Any]] = json.loads((RECORDED / "protobuf.json").read_text())
# Asked for twice, so that times, ids or the order of rules differ between the two forms.
DIFFERING = ("TokenRequest", "SelfSubjectRulesReview", "Status Success")
# Of these, only the declared fields travel.
IN_PART = ("GET Pod", "GET Node")

ALIKE = [
    pair
    for pair in PAIRS
    if isinstance(pair["json"], dict) and not any(word in pair["what"] for word in DIFFERING)
]
OBJECTS = [pair for pair in ALIKE if "items" not in pair["json"]]
COMPLETE = [pair for pair in ALIKE if pair["what"] not in IN_PART]


def named(pairs: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("pair", pairs, ids=[pair["what"] for pair in pairs])


def from_json(type_: type[Any], value: Any) -> Any:
    return decoder_of(type_).decode(json.dumps(value).encode())[0]


def packed(value: dict[str, Any]) -> bytes:
    """The JSON of an object or a list as a protobuf body."""
    kind = value["kind"]
    if "items" not in value:
        new = from_json(TYPES[kind], value)
        return sealed(value["apiVersion"], kind, message_of(TYPES[kind]).encode(new))
    item = TYPES[kind.removesuffix("List")]
    items = [message_of(item).encode(from_json(item, one)) for one in value["items"]]
    meta = from_json(ListMeta, value["metadata"])
    return sealed(value["apiVersion"], kind, list_message(meta, items))


@named(COMPLETE)
def test_bytes_are_those_of_the_reference(pair: dict[str, Any]) -> None:
    """An answer in protobuf equals the reference's own, byte for byte."""
    assert packed(pair["json"]) == base64.b64decode(pair["protobuf"])


@named([pair for pair in OBJECTS if pair["what"] not in IN_PART])
def test_reads_what_the_reference_wrote(pair: dict[str, Any]) -> None:
    """The reference's bytes become the object that its JSON becomes."""
    said, message = opened(base64.b64decode(pair["protobuf"]))

    found = message_of(TYPES[said.kind]).decode(
        message, kind=said.kind, api_version=said.api_version
    )

    assert found == from_json(TYPES[said.kind], pair["json"])


@named([pair for pair in PAIRS if pair["what"] in IN_PART])
def test_declared_fields_of_pod_and_node_travel(pair: dict[str, Any]) -> None:
    """Of a Pod and a Node the declared fields arrive, and all other fields are skipped."""
    said, message = opened(base64.b64decode(pair["protobuf"]))

    found = message_of(TYPES[said.kind]).decode(message)

    kept = pair["json"]["spec"]
    assert found.metadata == from_json(TYPES[said.kind], pair["json"]).metadata
    if said.kind == "Pod":
        assert found.spec == {
            "containers": [{"name": "c", "image": "i"}],
            "serviceAccountName": "app",
            "serviceAccount": "app",
            "imagePullSecrets": [{"name": "r"}],
            "automountServiceAccountToken": False,
        }
        assert found.status == {"phase": "Pending"}
    else:
        assert found.spec == kept


def test_amounts_of_a_node_travel() -> None:
    """Each is a message with its text; a number, which JSON allows, is written as one."""
    given = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": 4, "x": None}}
    node = Node(metadata=ObjectMeta(name="n"), status=given)
    message = message_of(Node).encode(node)
    written = bytes.fromhex("0a0a0a0363707512030a0134")  # field 1: "cpu" -> {1: "4"}

    assert written in message
    assert message_of(Node).decode(message).status == {
        "capacity": {"cpu": "4", "memory": "8Gi"},
        "allocatable": {"cpu": "4", "x": ""},
    }


def test_stream_is_framed_as_in_the_reference() -> None:
    """The recorded stream is what our frames make of its events."""
    (pair,) = (pair for pair in PAIRS if isinstance(pair["json"], list))

    frames = [watch_frame(event["type"], packed(event["object"])) for event in pair["json"]]

    assert b"".join(frames) == base64.b64decode(pair["protobuf"])


def test_pointers_are_left_out_and_values_are_not() -> None:
    """Optional fields are omitted when unset; plain values are written even when empty."""
    assert message_of(DeleteOptions).encode(DeleteOptions()) == b""
    assert message_of(Preconditions).encode(Preconditions(uid="")) == b"\x0a\0"
    assert message_of(ListMeta).encode(ListMeta()) == b"\x0a\0\x12\0\x1a\0"


def test_zero_time_is_no_time() -> None:
    """A time of zero seconds is how others write that there is none."""
    read = message_of(ObjectMeta).decode

    assert read(b"\x42\0") == ObjectMeta()
    assert read(b"\x42\4\x08\0\x10\0\x4a\4\x08\0\x10\0") == ObjectMeta()
    assert read(b"\x42\2\x08\1").creation_timestamp == datetime.datetime(
        1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC
    )


def test_fractions_of_a_second_are_dropped() -> None:
    """A time keeps no fractions, since JSON would not show them."""
    found = message_of(ObjectMeta).decode(b"\x42\x08\x08\1\x10\x80\xca\xb5\xee\x01")

    assert found.creation_timestamp is not None
    assert found.creation_timestamp.microsecond == 0


def test_owned_fields_travel_as_json_in_a_message() -> None:
    """fieldsV1 is JSON inside a message, with its keys in order."""
    entry = ManagedFieldsEntry(fields_v1={"f:b": {}, "f:a": {"v:1": {}}})

    data = message_of(ManagedFieldsEntry).encode(entry)

    assert b'{"f:a":{"v:1":{}},"f:b":{}}' in data
    assert message_of(ManagedFieldsEntry).decode(data) == entry


class Numbers(Wire):
    """No kind has a list of numbers; one may come."""

    counts: Annotated[tuple[int, ...], proto(1)] = ()
    flags: Annotated[tuple[bool, ...], proto(2)] = ()
    small: Annotated[int, proto(3, "int32")] = 0
    blobs: Annotated[tuple[bytes, ...], proto(4)] = ()


def test_lists_of_numbers_are_read_packed_or_not() -> None:
    """Writers may put the numbers of a list into one field or into many."""
    read = message_of(Numbers).decode
    one_by_one = b"\x08\x01\x08\xac\x02\x08" + b"\xff" * 9 + b"\x01"

    assert read(one_by_one) == Numbers(counts=(1, 300, -1))
    assert read(b"\x0a\x0d\x01\xac\x02" + b"\xff" * 9 + b"\x01") == Numbers(counts=(1, 300, -1))
    assert read(b"\x08\x01\x0a\x01\x02\x12\x02\x01\x00") == Numbers((1, 2), (True, False))
    assert message_of(Numbers).encode(read(one_by_one)) == one_by_one + b"\x18\0"
    assert read(b"\x22\x01a\x22\0") == Numbers(blobs=(b"a", b""))


def test_short_integers_take_the_lower_half() -> None:
    """A field of 32 bits takes the lower half of what is sent, with its sign."""
    read = message_of(Numbers).decode

    assert read(b"\x18\xff\xff\xff\xff\x0f").small == -1
    assert read(b"\x18\x85\x80\x80\x80\x10").small == 5
    assert read(b"\x18" + b"\xff" * 9 + b"\x01").small == -1


def test_metadata_alone_is_the_start_of_an_object() -> None:
    """An object of nothing but metadata has it in the first field, as every object has."""
    meta = ObjectMeta(name="a")
    message = metadata_message(message_of(ObjectMeta).encode(meta))

    found = message_of(TYPES["ServiceAccount"]).decode(message)

    assert found.metadata == meta


def test_body_opens_however_it_is_laid_out() -> None:
    """The parts of a body may come in any order, be missing, or be followed by unknown ones."""
    sent = sealed("v1", "ServiceAccount", b"\x0a\0")
    said, message = opened(sent)
    type_part = b"\x0a\x14" + b"\x0a\x02v1\x12\x0eServiceAccount"

    for body in (
        b"k8s\0" + type_part + b"\x12\2\x0a\0",
        b"k8s\0" + b"\x12\2\x0a\0" + type_part,
        b"k8s\0" + b"\x1a\0\x22\0" + type_part + b"\x12\2\x0a\0",
        sent + b"\xc2\x3e\x03abc",
    ):
        assert opened(body) == (said, message)
    assert (said.api_version, said.kind, message) == ("v1", "ServiceAccount", b"\x0a\0")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s",
        b"k8s\0\x0a",
        b"k8s\0\x0a\x05\x0a",
        b"k8s\0\x08\x01",
        b'{"kind":"ServiceAccount"}',
        b"k8s\0\x1a\x04gzip",
        b"k8s\0\xff\x1a\0\x22\0",
        b"k8s\0\x0a\x02\xff\xff\x12\0\x1a\0\x22\0",
        b"k8s\0\x0a\xff\x12\0\x1a\0\x22\0",
    ],
)
def test_what_is_no_body_is_refused(body: bytes) -> None:
    """A body without the four bytes, cut short or in an encoding is Malformed."""
    with pytest.raises(Malformed):
        opened(body)


def test_a_body_that_holds_nothing_opens() -> None:
    """Nothing in a body is needed; what it says it is will be judged elsewhere."""
    for body in (b"k8s\0", b"k8s\0\x1a\0\x22\0", b"k8s\0\x1a\0\x22\0\x1a\0\x22\0"):
        said, message = opened(body)
        assert (said.kind, message) == ("", b"")


def test_a_body_with_a_long_name_opens() -> None:
    """A kind whose name takes more than 127 bytes is read like any other."""
    said, message = opened(sealed("v1", "K" * 300, b"\x0a\0"))

    assert (said.kind, message) == ("K" * 300, b"\x0a\0")
