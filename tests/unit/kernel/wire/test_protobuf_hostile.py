"""Hostile protobuf: any bytes get a clean refusal."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.kernel.wire.codec.bounds import MOST_FIELDS, MOST_VALUES
from orchid.kernel.wire.codec.field_validation import Undecodable
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from orchid.kernel.wire.meta import ManagedFieldsEntry, ObjectMeta
from tests.unit.kernel.wire.protobuf_samples import KINDS, objects

MEBIBYTE = 1 << 20


def read(data: bytes, kind: str = "ServiceAccount") -> object:
    return message_of(KINDS[kind]).decode(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "cut short"),
        (b"\x0a\x05\x0a\x01a", "cut short"),
        (b"\x0a\x03\x0a\x05a", "cut short"),
        (b"\x0a\x80", "cut short"),
        (b"\x20", "cut short"),
        (b"\x20" + b"\x80" * 10 + b"\x01", "64 bits"),
        (b"\xff" * 11, "64 bits"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "cut short"),
        (b"\x08\x01", "ServiceAccount.metadata: unexpected wire type 0"),
        (b"\x22\x01a", "unexpected wire type 2"),
        (b"\x0a\x02\x08\x01", "ObjectMeta.name: unexpected wire type 0"),
        (b"\x0a\x02\x0b\x0c", "unexpected wire type 3"),
        (b"\x00\x01", "0 is not a field number"),
        (b"\x80\x80\x80\x80\x80\x01\x01", "is not a field number"),
        (b"\xc6\x3e", "6 is not a wire type"),
        (b"\xc4\x3e", "without a start"),
        (b"\xc3\x3e", "cut short"),
        (b"\xc1\x3e123", "cut short"),
        (b"\x0a\x03\x0a\x01\xff", "UTF-8"),
        (b"\x0a\0\x0a\0", "metadata occurs twice"),
    ],
)
def test_refusal_says_what_is_wrong(data: bytes, why: str) -> None:
    """Each way of breaking a message has a sentence of its own."""
    with pytest.raises(Undecodable, match=why):
        read(data)


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253402300800])
def test_time_out_of_range_is_refused(seconds: int) -> None:
    """A time beyond the year 9999, or before the first, is no time."""
    number = bytearray()
    rest = seconds % 2**64
    while rest > 127:
        number.append(rest & 127 | 128)
        rest >>= 7
    number.append(rest)
    moment = b"\x08" + bytes(number)

    with pytest.raises(Undecodable, match="time is out of range"):
        message_of(ObjectMeta).decode(b"\x42" + bytes([len(moment)]) + moment)


def test_nanoseconds_out_of_range_are_refused() -> None:
    """A second has fewer than a thousand million nanoseconds, and none below zero."""
    with pytest.raises(Undecodable, match="nanoseconds out of range"):
        message_of(ObjectMeta).decode(b"\x42\x0b\x10" + b"\xff" * 9 + b"\x01")


@pytest.mark.parametrize(
    "raw",
    [b"{", b"[]", b"1", b"\xff", b'{"a":' * 5000 + b"{}" + b"}" * 5000, b'{"a":1e999}'],
)
def test_owned_fields_that_are_no_json_are_refused(raw: bytes) -> None:
    """fieldsV1 is validated like other JSON."""
    inner = b"\x0a" + varint(len(raw)) + raw

    with pytest.raises(Undecodable):
        message_of(ManagedFieldsEntry).decode(b"\x3a" + varint(len(inner)) + inner)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc3\x3e" * MEBIBYTE,  # groups that never end
        b"\xc3\x3e" * 1000 + b"\xc4\x3e" * 1001,  # one end too many
        b"\x0a\xff\xff\xff\xff\x07" + b"\0" * MEBIBYTE,  # a length of gigabytes
        b"\x80" * MEBIBYTE,
        b"\xff" * MEBIBYTE,
    ],
    ids=["groups", "group ends", "length", "continued", "ones"],
)
def test_large_nonsense_is_refused(data: bytes) -> None:
    """A megabyte of nonsense ends in a refusal, without recursion."""
    with pytest.raises(Undecodable):
        read(data)


def test_unknown_groups_are_skipped_to_a_depth() -> None:
    """Groups within groups are skipped like any unknown field, and refused when too many."""
    assert read(b"\xc3\x3e" * 100 + b"\xc4\x3e" * 100) == ServiceAccount()
    with pytest.raises(Undecodable, match="too deeply"):
        read(b"\xc3\x3e" * 101 + b"\xc4\x3e" * 101)


@pytest.mark.parametrize(
    ("kind", "field", "most"),
    [
        ("ServiceAccount", b"\xb8\x3e\x01", MOST_VALUES),  # unknown
        ("ServiceAccount", b"\xc3\x3e\xc4\x3e", MOST_VALUES // 2),  # a group: its start and end
        ("ServiceAccount", b"\xc3\x3e" + b"\xb8\x3e\x01" * 98 + b"\xc4\x3e", MOST_VALUES // 100),
        ("ServiceAccount", b"\x20\x01", MOST_FIELDS),  # a repeated number
        ("Event", b"\x22\x00", MOST_FIELDS),  # a repeated text
        ("Secret", b"\x1a\x00", MOST_FIELDS),
    ],
    ids=["unknown", "groups", "in a group", "number", "text", "kind"],
)
def test_every_field_is_counted(kind: str, field: bytes, most: int) -> None:
    """Those that are skipped, and those of which only the last one counts."""
    read(field * most, kind)
    with pytest.raises(Undecodable, match="more than"):
        read(field * (most + 1), kind)


def test_fields_of_all_messages_count_together() -> None:
    """A message may be in a message."""
    inner = b"\x0a\x00" * (MOST_FIELDS // 4)
    reference = b"\x12" + varint(len(inner)) + inner

    read(reference * 3)
    with pytest.raises(Undecodable, match=f"more than {MOST_FIELDS} fields"):
        read(reference * 5)


def test_the_count_begins_again_with_each_message() -> None:
    for _ in range(2):
        read(b"\x20\x01" * MOST_FIELDS)


def test_refusal_shows_no_content() -> None:
    """A refused value may be a secret; the message does not repeat it."""
    with pytest.raises(Undecodable) as refusal:
        read(b"\x12\x10\x0a\x01k\x12\x0dhunter2\xff\xffsecret"[:-1], "Secret")

    assert "hunter2" not in str(refusal.value)


@settings(max_examples=150)
@given(kind=st.sampled_from(sorted(KINDS)), data=st.binary(max_size=200))
@example(kind="Pod", data=b"\x12\x06\x12\x04\x0a\x02ab")
def test_any_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    """Random bytes never raise anything but Undecodable, and what is read can be written."""
    try:
        found = message_of(KINDS[kind]).decode(data)
    except Undecodable:
        return
    message_of(KINDS[kind]).encode(found)


@settings(max_examples=60)
@given(kind=st.sampled_from(sorted(KINDS)), data=st.data())
def test_damaged_messages_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    """A good body that is cut short, or has one byte changed, never raises anything else."""
    type_ = KINDS[kind]
    body = sealed("v1", kind, message_of(type_).encode(data.draw(objects(type_))))
    place = data.draw(st.integers(0, len(body) - 1))
    changed = bytes([data.draw(st.integers(0, 255))])

    for damaged in (body[:place], body[:place] + changed + body[place + 1 :]):
        try:
            said, message = opened(damaged)
            message_of(type_).encode(message_of(type_).decode(message, kind=said.kind))
        except Undecodable as refusal:
            json.dumps(str(refusal)).encode()


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes(data) + bytes([number])
