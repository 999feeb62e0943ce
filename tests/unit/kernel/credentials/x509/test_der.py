"""DER: every element of a range is found, and one meaning has one encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials.x509 import der

ELEMENTS = st.builds(der.encode, st.integers(0, 0x1E), st.binary(max_size=300))


@given(st.lists(ELEMENTS), st.binary(max_size=3))
def test_every_element_of_a_range_is_found(elements: list[bytes], before: bytes) -> None:
    """Short and long ones, behind anything else."""
    data = before + b"".join(elements)

    found = der.children(data, len(before), len(data))

    assert [data[child.begin : child.stop] for child in found] == elements


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"\x04\x81\x01a", "length not minimal"),
        (b"\x04\x81\x7f" + b"a" * 0x7F, "length not minimal"),
        (b"\x04\x82\x00\x80" + b"a" * 0x80, "length not minimal"),
        (b"\x04\x83\x00\x01\x00" + b"a" * 0x100, "length not minimal"),
        (b"\x04\x80a\x00\x00", "indefinite length"),
        (b"\x04\x02a", "data truncated"),
        (b"\x04\x82\x01", "length not supported"),
        (b"\x04\x85\x00\x00\x00\x00\x01a", "length not supported"),
        (b"\x1f\x01a", "tag not supported"),
    ],
)
def test_a_length_has_one_encoding(data: bytes, refusal: str) -> None:
    """The shortest: else the same value could be written in several ways."""
    with pytest.raises(der.NotDer, match=refusal):
        der.element(data, 0, len(data))


@pytest.mark.parametrize("size", [0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000])
def test_the_shortest_length_is_read(size: int) -> None:
    """At every border between the forms."""
    data = der.encode(4, b"a" * size)

    found = der.element(data, 0, len(data))

    assert found.stop - found.start == size


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"", "truncated"),
        (b"\x55\x1d\x91", "truncated"),
        (b"\xff\xff", "truncated"),
        (b"\x55\x80\x1d", "not minimal"),
        (b"\x80\x55", "not minimal"),
        (b"\x55\x1d\x91\x80", "truncated"),
    ],
)
def test_an_identifier_is_complete_and_has_one_encoding(content: bytes, refusal: str) -> None:
    """An arc that goes on past the end, or begins with zeros, is none."""
    with pytest.raises(der.NotDer, match=refusal):
        der.decode_oid(content)


@pytest.mark.parametrize("dotted", ["2.5.29.17", "1.3.6.1.4.1.311.10.3.3", "2.999.128.16384"])
def test_an_identifier_is_read_as_it_was_written(dotted: str) -> None:
    """Arcs of one octet and of several, with zeros inside."""
    assert der.decode_oid(der.encode_oid(dotted)[2:]) == dotted
