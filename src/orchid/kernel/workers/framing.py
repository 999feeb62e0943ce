"""Messages as bytes, between processes of one program: a length, then that much msgpack.

    +--------------------+------------------------+
    | length, 4 bytes LE | one message, see below |
    +--------------------+------------------------+

Start with `Reader`: it is fed received bytes, in any portions, and returns complete messages.
`framed` makes one. Both ends are the same program and inherit their socket, so there is nothing to
negotiate; the limit on the length guards against a corrupt stream, not against an attacker.
"""

import struct
from collections.abc import Iterator
from typing import Final

LARGEST: Final = 512 << 20
"""More than any message can be: a commit is limited by `messages.LARGEST_COMMIT`, and its event
also has the replaced values.
"""

_LENGTH = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview


class Astray(Exception):
    """The stream is corrupt: the data is not a message, and nothing after it can be read."""


def framed(message: bytes) -> bytes:
    """Prefix a message with its length."""
    if len(message) > LARGEST:
        raise Astray(f"a message of {len(message)} bytes is too large")
    return _LENGTH.pack(len(message)) + message


class Reader:
    """Splits a stream into messages. Buffers at most one incomplete message."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._held = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> Iterator[Buffer]:
        """Return every complete message; raises Astray if one is too long.

        A message that arrived completely is not copied.
        """
        held = self._held
        if held:
            held += data
            if self._length(held, 0) > len(held):
                return
            data = bytes(held)
            held.clear()
        view, start, end = memoryview(data), 0, len(data)
        while (behind := start + self._length(view, start)) <= end:
            yield view[start + _LENGTH.size : behind]
            start = behind
        held += view[start:]

    @property
    def unfinished(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._held)

    def _length(self, data: Buffer, start: int) -> int:
        """The length of the message at this position, with its prefix; at least that of a
        prefix.
        """
        if len(data) - start < _LENGTH.size:
            return _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, start)
        if length > self._largest:
            raise Astray(f"a message of {length} bytes is too large")
        return _LENGTH.size + int(length)
