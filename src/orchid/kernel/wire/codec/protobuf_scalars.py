"""Protobuf varints and times, shared by the writer and the reader.

A time is a message of seconds and nanoseconds; the field declares whether it has fractions
(`MICRO_TIME`). In a Struct it is a datetime or a string, in a plain dict always a string.
"""

import datetime
from typing import Final

from orchid.kernel.wire.codec.field_validation import Undecodable

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

FIELDS_V1: Final = "fields-v1"  # field encoding: JSON inside a message
INT32: Final = "int32"
# a map of quantities: string or number in JSON, a message in protobuf
QUANTITIES: Final = "quantities"

MASK64: Final = 2**64 - 1
SIGN64: Final = 2**63
MASK32: Final = 2**32 - 1
SIGN32: Final = 2**31

_LONGEST_VARINT = 10
_LAST_OF_BYTE = 127
_LAST_OF_TWO_BYTES = 2**14 - 1
_ONE_BYTE = tuple(bytes((number,)) for number in range(_LAST_OF_BYTE + 1))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PER_SECOND = 1_000_000_000


# --- varints --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """A 64-bit number, seven bits per byte, lowest first. A negative one takes ten bytes."""
    if 0 <= number <= _LAST_OF_BYTE:
        return _ONE_BYTE[number]
    number &= MASK64
    if number <= _LAST_OF_TWO_BYTES:
        return bytes((number & 0x7F | 0x80, number >> 7))
    data = bytearray()
    while number > _LAST_OF_BYTE:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position behind it. Raises IndexError at the end."""
    number = shift = 0
    for index in range(position, position + _LONGEST_VARINT):
        byte = data[index]
        number |= (byte & 0x7F) << shift
        if byte <= _LAST_OF_BYTE:
            return number & MASK64, index + 1
        shift += 7
    raise Undecodable("a number takes more than 64 bits")


# --- times ----------------------------------------------------------------------------------------


def to_parts(moment: datetime.datetime, *, micro: bool) -> tuple[int, int]:
    """Seconds and nanoseconds."""
    since = moment - _EPOCH
    return since.days * 86_400 + since.seconds, since.microseconds * 1000 if micro else 0


def from_parts(seconds: int, nanos: int, *, micro: bool) -> datetime.datetime | None:
    """The time, or None for zero; fractions only if `micro`.

    JSON clients never see fractions of other times: keeping them would change an object that is
    read in one encoding and written in the other.
    """
    if not seconds and not nanos:
        return None
    if not 0 <= nanos < _PER_SECOND:
        raise Undecodable("a time has nanoseconds out of range")
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        raise Undecodable("a time is out of range") from None
    return moment.replace(microsecond=nanos // 1000) if micro else moment


def to_text(moment: datetime.datetime, *, micro: bool) -> str:
    text = moment.isoformat(timespec="microseconds" if micro else "seconds")
    return text.removesuffix("+00:00") + "Z"


def from_text(text: str) -> datetime.datetime | None:
    """The time in a string; None if it is invalid, since not every kind requires a valid one."""
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment.astimezone(datetime.UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
