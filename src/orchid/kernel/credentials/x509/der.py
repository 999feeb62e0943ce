"""The small part of DER that is parsed and written here (X.690).

Parsed: names and requested extensions, where the exact bytes matter. Written: certificates and CRLs
before they are signed. The X.509 library parses everything that is written here before it is signed
(kernel/credentials/authorities/authority.py). Never used to interpret keys or signatures.
"""

import datetime
from collections.abc import Iterator
from functools import lru_cache

import msgspec

INTEGER = 0x02
BOOLEAN = 0x01
BIT_STRING = 0x03
OCTET_STRING = 0x04
OID = 0x06
SEQUENCE = 0x30
SET = 0x31

_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_YEAR_OF_LONG_TIMES = 2050  # RFC 5280 section 4.1.2.5

_LONG_FORM = 0x80
_HIGH_TAG = 0x1F
_MAX_LENGTH_OCTETS = 4


class NotDer(ValueError):
    """The bytes do not follow the distinguished encoding rules."""


class Element(msgspec.Struct, frozen=True, gc=False):
    """A value in a buffer: its tag, its start, and the range of its content."""

    tag: int
    begin: int
    start: int
    stop: int


def element(data: bytes, begin: int, limit: int, expected: int | None = None) -> Element:
    """Parse the element at an offset, which must end before a limit and may need a tag."""
    if begin + 2 > limit:
        raise NotDer("sequence truncated" if begin == limit else "truncated tag or length")
    tag = data[begin]
    if tag & _HIGH_TAG == _HIGH_TAG:
        raise NotDer("tag not supported")
    length = data[begin + 1]
    start = begin + 2
    if length >= _LONG_FORM:
        octets = length - _LONG_FORM
        if not octets:
            raise NotDer("indefinite length found (not DER)")
        if octets > _MAX_LENGTH_OCTETS or start + octets > limit:
            raise NotDer("length not supported")
        length = int.from_bytes(data[start : start + octets], "big")
        # The shortest form only: a value must have one encoding.
        if length < _LONG_FORM or length.bit_length() <= 8 * (octets - 1):
            raise NotDer("length not minimal")
        start += octets
    stop = start + length
    if stop > limit:
        raise NotDer("data truncated")
    if expected is not None and tag != expected:
        raise NotDer("unexpected tag")
    return Element(tag, begin, start, stop)


def children(data: bytes, start: int, stop: int) -> Iterator[Element]:
    """The elements that fill a range."""
    while start < stop:
        child = element(data, start, stop)
        yield child
        start = child.stop


def encode(tag: int, *parts: bytes) -> bytes:
    """Encode an element."""
    content = b"".join(parts)
    length = len(content)
    if length < _LONG_FORM:
        return b"%c%c%b" % (tag, length, content)
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG_FORM | len(octets))) + octets + content


def encode_integer(value: int) -> bytes:
    """Encode a non-negative integer."""
    return encode(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


@lru_cache(maxsize=256)
def encode_oid(dotted: str) -> bytes:
    """Encode an object identifier."""
    first, second, *rest = (int(part) for part in dotted.split("."))
    return encode(OID, b"".join(_base128(arc) for arc in (40 * first + second, *rest)))


def decode_oid(content: bytes) -> str:
    """The dotted form of an object identifier's content."""
    arcs: list[int] = []
    value = 0
    begins = True
    for octet in content:
        if begins and octet == _LONG_FORM:
            raise NotDer("object identifier not minimal")
        begins = octet < _LONG_FORM
        value = value << 7 | octet & 0x7F
        if value.bit_length() > 128:  # noqa: PLR2004 - X.667 allows 128-bit arcs, nobody more
            raise NotDer("object identifier too large")
        if begins:
            arcs.append(value)
            value = 0
    if not arcs or content[-1] >= _LONG_FORM:
        raise NotDer("object identifier truncated")
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - 40 * first, *arcs[1:]))


def encode_bits(content: bytes, unused: int = 0) -> bytes:
    """Encode a bit string."""
    return encode(BIT_STRING, bytes((unused,)), content)


@lru_cache(maxsize=64)  # certificates of one second and one lifetime share their times
def encode_time(moment: datetime.datetime) -> bytes:
    """Encode a time as in certificates and CRLs, in whole seconds."""
    utc = moment.astimezone(datetime.UTC)
    if utc.year < _YEAR_OF_LONG_TIMES:
        return encode(_UTC_TIME, utc.strftime("%y%m%d%H%M%SZ").encode())
    return encode(_GENERALIZED_TIME, f"{utc.year:04d}{utc:%m%d%H%M%S}Z".encode())


def _base128(value: int) -> bytes:
    octets = [value & 0x7F]
    while value := value >> 7:
        octets.append(value & 0x7F | _LONG_FORM)
    return bytes(reversed(octets))
