"""HTTP/2 frames (RFC 9113): bytes to frames and back. No I/O, no state of streams.

`Http2Reader` takes bytes in any portions and returns complete frames. It joins a header block from
HEADERS and CONTINUATION frames, removes padding, and raises `ProtocolError` for anything that
HTTP/2 does not allow on a client's connection. `HeaderReader` decodes header blocks. We announce a
header table of size 0, so each block can be decoded by itself, and equal blocks have equal headers.
"""

import struct
from typing import Final, NamedTuple

import hpack

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(
    1, 6
)

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LARGEST_FRAME: Final = 16_384  # the default of SETTINGS_MAX_FRAME_SIZE, which we do not change
LARGEST_WINDOW: Final = 2**31 - 1
LARGEST_BLOCK: Final = 65_536  # of headers; etcd sends about a hundred bytes
CACHED_BLOCKS: Final = 64

_HEAD: Final = struct.Struct(">BHBBI")  # length in two parts, type, flags, stream
_HEAD_SIZE: Final = 9
_SETTING: Final = struct.Struct(">HI")
_UINT32: Final = struct.Struct(">I")
_STREAM: Final = 0x7FFF_FFFF  # without the reserved bit
_ON_STREAM: Final = frozenset({DATA, HEADERS, RST_STREAM, CONTINUATION})
_ON_CONNECTION: Final = frozenset({SETTINGS, PING, GOAWAY})
_WITH_MORE: Final = PADDED | WITH_PRIORITY  # flags of a payload with other parts
_SIZES: Final = {RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}


class ProtocolError(Exception):
    """The peer broke the protocol; the connection cannot be used any more."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """One frame; its payload without padding."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    size: int  # of the payload with its padding: what flow control counts


class Http2Reader:
    """Bytes in any portions to frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._block: list[bytes] = []  # of an unfinished header block
        self._block_head: Frame | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        if self._rest:
            data = self._rest + data
        frames: list[Frame] = []
        at, end = 0, len(data)
        while end - at >= _HEAD_SIZE:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > LARGEST_FRAME:
                raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            begin = at + _HEAD_SIZE
            if begin + size > end:
                break
            at = begin + size
            frame = Frame(kind, flags, stream & _STREAM, data[begin:at], size)
            plain = kind == DATA or (kind == HEADERS and flags & END_HEADERS)
            if plain and not (flags & _WITH_MORE or self._block_head) and frame.stream:
                frames.append(frame)  # nothing to check, to join or to remove
            elif (read := self._read(frame)) is not None:
                frames.append(read)
        self._rest = data[at:]
        return frames

    def _read(self, frame: Frame) -> Frame | None:
        """Check a frame; None if it is incomplete or irrelevant."""
        kind = frame.kind
        if self._block_head is not None and (
            kind != CONTINUATION or frame.stream != self._block_head.stream
        ):
            raise ProtocolError(PROTOCOL_ERROR, "a header block was interrupted")
        if kind > CONTINUATION or kind == PRIORITY:
            return None  # extensions and advice are ignored
        if (kind in _ON_STREAM and not frame.stream) or (kind in _ON_CONNECTION and frame.stream):
            raise ProtocolError(PROTOCOL_ERROR, f"a frame of type {kind} on the wrong stream")
        if frame.size != _SIZES.get(kind, frame.size):
            raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of type {kind} of the wrong size")
        if kind == PUSH_PROMISE:
            raise ProtocolError(PROTOCOL_ERROR, "a push that we have disabled")
        if kind == SETTINGS and frame.size % _SETTING.size:
            raise ProtocolError(FRAME_SIZE_ERROR, "settings of the wrong size")
        if kind == GOAWAY and frame.size < 2 * _UINT32.size:
            raise ProtocolError(FRAME_SIZE_ERROR, "a GOAWAY of the wrong size")
        if kind in (HEADERS, CONTINUATION):
            return self._join(frame)
        if kind == DATA:
            return frame._replace(payload=_without_padding(frame))
        return frame

    def _join(self, frame: Frame) -> Frame | None:
        if frame.kind == CONTINUATION:
            if self._block_head is None:
                raise ProtocolError(PROTOCOL_ERROR, "a continuation of nothing")
            self._block.append(frame.payload)
        else:
            self._block_head, self._block = frame, [_without_padding(frame)]
        if sum(map(len, self._block)) > LARGEST_BLOCK or len(self._block) > LARGEST_BLOCK // 64:
            raise ProtocolError(PROTOCOL_ERROR, "a header block without end")
        if not frame.flags & END_HEADERS:
            return None
        whole = self._block_head._replace(payload=b"".join(self._block))
        self._block_head, self._block = None, []
        return whole


class HeaderReader:
    """Header blocks to headers. Decoded blocks are cached."""

    def __init__(self) -> None:
        self._cached: dict[bytes, dict[bytes, bytes]] = {}

    def read(self, block: bytes) -> dict[bytes, bytes]:
        """The headers of a block; of a repeated name the last one."""
        headers = self._cached.get(block)
        if headers is None:
            if len(self._cached) >= CACHED_BLOCKS:
                self._cached.clear()
            headers = self._cached[block] = _decode(block)
        return headers


def _decode(block: bytes) -> dict[bytes, bytes]:
    decoder = hpack.Decoder(max_header_list_size=LARGEST_BLOCK)
    decoder.header_table_size = 0
    decoder.max_allowed_table_size = 0
    try:
        return dict(decoder.decode(block, raw=True))
    except (hpack.HPACKError, UnicodeDecodeError) as error:
        raise ProtocolError(COMPRESSION_ERROR, "headers that cannot be decoded") from error


def _without_padding(frame: Frame) -> bytes:
    """The payload without padding and priority fields."""
    begin, end = 0, frame.size
    if frame.flags & PADDED:
        if not frame.size:
            raise ProtocolError(FRAME_SIZE_ERROR, "padding without its length")
        begin, end = 1, end - frame.payload[0]
    if frame.kind == HEADERS and frame.flags & WITH_PRIORITY:
        begin += 5
    if begin > end:
        raise ProtocolError(PROTOCOL_ERROR, "more padding than payload")
    return frame.payload[begin:end] if (begin, end) != (0, frame.size) else frame.payload


# --- writing --------------------------------------------------------------------------------------


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    size = len(payload)
    return b"".join((_HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream), payload))


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame: `settings({ENABLE_PUSH: 0})`."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    return list(_SETTING.iter_unpack(payload))


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _UINT32.pack(more))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _UINT32.pack(code))


def goaway(code: int) -> bytes:
    return frame(GOAWAY, 0, 0, _UINT32.pack(0) + _UINT32.pack(code))


def read_number(payload: bytes, at: int = 0) -> int:
    """A 31-bit number."""
    found: int = _UINT32.unpack_from(payload, at)[0]
    return found & _STREAM


def literal(name: bytes, value: bytes) -> bytes:
    """A header that enters no table (RFC 7541, 6.2.2), without Huffman coding."""
    return b"\x00" + _text(name) + _text(value)


def _text(value: bytes) -> bytes:
    """A string with its length as an integer of seven bits (RFC 7541, 5.1)."""
    return bytes(hpack.hpack.encode_integer(len(value), 7)) + value
