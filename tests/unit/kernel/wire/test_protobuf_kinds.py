"""Every kind in protobuf: its numbers, the way there and back, and what Google's library reads."""

from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.kernel.wire.codec.documents import decoder_of, encode
from orchid.kernel.wire.codec.protobuf import message_of
from orchid.kernel.wire.codec.protobuf_writer import insides, numbered
from orchid.kernel.wire.schema import Fields, Leaf, Mapping, Node, Scalar, Sequence, schema_of
from tests.unit.kernel.wire.protobuf_samples import (
    KINDS,
    TYPES,
    google_message,
    numbers,
    objects,
    unnumbered,
)

# The message a type stands for, where it has a name of its own here.
SAME_AS = {
    "PodFields": "PodSpec",
    "PodAddress": "PodIP",
    "PodStatusFields": "PodStatus",
    "NodeFields": "NodeSpec",
    "NodeStatusFields": "NodeStatus",
    "SelectorAttributes": "LabelSelectorAttributes",
    "SelectorRequirement": "LabelSelectorRequirement",
    "LabelRequirement": "LabelSelectorRequirement",
}
NOT_DECLARED = {("ListMeta", "shardInfo"), ("NodeSpec", "configSource")}

every_type = pytest.mark.parametrize("name", sorted(TYPES))
few = settings(max_examples=10, suppress_health_check=list(HealthCheck))


@every_type
def test_every_declared_field_has_a_number(name: str) -> None:
    """Nothing that a kind declares is left behind when it travels as protobuf."""
    assert unnumbered(schema_of(TYPES[name])) == []


@every_type
def test_every_message_has_a_table_of_numbers(name: str) -> None:
    """Messages of the reference are in numbers.txt, all others in own-numbers.txt."""
    messages = {node.type.__name__ for node in records(schema_of(TYPES[name]))}

    missing = sorted({SAME_AS.get(one, one) for one in messages} - numbers().keys())

    assert not missing, f"give {missing} a line in tests/data/protobuf/own-numbers.txt"


@every_type
def test_numbers_and_types_are_those_of_the_reference(name: str) -> None:
    """Each field has the number and the type that the reference gives it, and none is missing."""
    for node in records(schema_of(TYPES[name])):
        message = SAME_AS.get(node.type.__name__, node.type.__name__)
        expected = {
            field.lower(): (number, type_)
            for field, (number, type_) in numbers()[message].items()
            if (message, field) not in NOT_DECLARED
        }
        for outer in insides(node):
            shown = next(name for name, (number, _) in expected.items() if number == outer)
            assert numbers_in(node, outer) == {
                field.lower(): word for field, word in numbers()[expected.pop(shown)[1]].items()
            }

        assert numbers_in(node) == expected


@every_type
@few
@given(data=st.data())
def test_what_was_written_is_read_back(name: str, data: st.DataObject) -> None:
    """An object comes back from protobuf as it comes back from JSON."""
    type_ = TYPES[name]
    new = data.draw(objects(type_))

    back = decoded(type_, message_of(type_).encode(new), new)

    assert encode(back) == encode(decoder_of(type_).stored(encode(new)))
    assert back == new


@every_type
@few
@given(data=st.data())
def test_another_implementation_reads_the_same(name: str, data: st.DataObject) -> None:
    """Google's library knows every field in our bytes, and we read what it makes of them."""
    type_ = TYPES[name]
    new = data.draw(objects(type_))
    ours = message_of(type_).encode(new)

    read = google_message(name).FromString(ours)
    theirs = read.SerializeToString()

    assert not unknown_numbers(read)
    assert sorted(theirs) == sorted(ours), "only the order of map entries may differ"
    assert decoded(type_, theirs, new) == new


@every_type
@few
@given(data=st.data())
def test_order_and_unknown_fields_do_not_matter(name: str, data: st.DataObject) -> None:
    """Fields in any order, and fields nobody knows in between, make the same object."""
    type_ = TYPES[name]
    new = data.draw(objects(type_))
    google = google_message(name).FromString(message_of(type_).encode(new))
    parts = [single(google, field) for field in google.DESCRIPTOR.fields]
    parts.append(data.draw(st.sampled_from(UNKNOWN)))

    back = decoded(type_, b"".join(data.draw(st.permutations(parts))), new)

    assert back == new


def test_every_kind_is_tested() -> None:
    """The walk over the kind files finds them all."""
    assert {"ServiceAccount", "Secret", "Pod", "Node", "Lease", "Event"} <= set(KINDS)
    assert {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} <= set(KINDS)
    assert {"TokenRequest", "TokenReview", "SelfSubjectReview"} <= set(KINDS)
    assert {"CertificateSigningRequest", "ClusterTrustBundle"} <= set(KINDS)


# --- what both sides declare ----------------------------------------------------------------------

# A number of 8 bytes, a text, a group within a group: all under numbers that no message has.
UNKNOWN = (
    b"",
    b"\xc1\x3e12345678",
    b"\xc2\x3e\x03abc",
    b"\xc0\x3e\xff\xff\x01",
    b"\xc5\x3e1234",
    b"\xc3\x3e\xc3\x3e\xc4\x3e\x08\x01\xc4\x3e",
)


def decoded(type_: type[Any], message: bytes, new: Any) -> Any:
    """Read a message; kind and apiVersion travel around it."""
    return message_of(type_).decode(message, kind=new.kind, api_version=new.api_version)


def numbers_in(node: Fields, inside: int = 0) -> dict[str, tuple[int, str]]:
    """The number and type of each field; or of those inside a message that JSON does not show."""
    return {
        field.wire_name.lower(): (number, type_name(field.node, field.proto))
        for number, field in numbered(node, inside)
    }


def records(node: Node) -> list[Fields]:
    """Every record of a tree, with those below it."""
    match node:
        case Fields(fields=fields):
            below = [records(field.node) for field in fields.values() if field.proto]
            return [node, *(inner for found in below for inner in found)]
        case Sequence(items=inner) | Mapping(values=inner):
            return records(inner)
    return []


def type_name(node: Node, word: Any) -> str:
    """A field's type in the words of the table."""
    if word.encoding:
        words = {
            "micro-time": "MicroTime",
            "fields-v1": "FieldsV1",
            "quantities": "map<string,Quantity>",
        }
        return words.get(word.encoding, word.encoding)
    match node:
        case Leaf(scalar=scalar):
            return {
                Scalar.INTEGER: "int64",
                Scalar.BOOLEAN: "bool",
                Scalar.TIME: "Time",
            }.get(scalar, str(scalar))
        case Fields(type=type_):
            return SAME_AS.get(type_.__name__, type_.__name__)
        case Sequence(items=items):
            return f"repeated {type_name(items, NO_WORD)}"
        case Mapping(values=Sequence()):
            return "map<string,ExtraValue>"
        case Mapping(values=values):
            return f"map<string,{type_name(values, NO_WORD)}>"
    raise TypeError(node)


class NO_WORD:  # noqa: N801 -- stands in for the word beside a field
    encoding = ""


def unknown_numbers(message: Any) -> list[int]:
    """The numbers that Google's library has found no field for, at any depth."""
    found = [field.field_number for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = list(value.values()) if hasattr(value, "values") else []
        else:
            inner = list(value) if field.is_repeated else [value]
        found += [
            number for one in inner if hasattr(one, "DESCRIPTOR") for number in unknown_numbers(one)
        ]
    return found


def single(message: Any, kept: Any) -> bytes:
    """One field of a message, alone."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        if field is not kept:
            copy.ClearField(field.name)
    return copy.SerializeToString()
