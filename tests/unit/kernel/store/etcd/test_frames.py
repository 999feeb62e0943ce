"""HTTP/2 frames of etcd: read in any portions, and refused when they break the protocol."""

import contextlib

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.store.etcd import frames
from orchid.kernel.store.etcd.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    LARGEST_BLOCK,
    LARGEST_FRAME,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Frame,
    HeaderReader,
    Http2Reader,
    ProtocolError,
    frame,
)

ALLOWED = b"".join(
    (
        frame(SETTINGS, 0, 0, bytes(6)),
        frame(PRIORITY, 0, 3, bytes(5)),
        frame(0x77, 0, 9, b"an extension"),
        frame(HEADERS, 0, 1, b"first "),
        frame(CONTINUATION, 0, 1, b"second "),
        frame(CONTINUATION, END_HEADERS, 1, b"third"),
        frame(DATA, PADDED, 1, b"\x03payloadppp"),
        frame(DATA, 0, 1, b"plain"),
        frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 3, b"\x02prio!blockpp"),
        frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        frame(PING, 0, 0, bytes(8)),
        frame(RST_STREAM, 0, 1, bytes(4)),
        frame(GOAWAY, 0, 0, bytes(8) + b"debug"),
    )
)


def read(data: bytes, *cuts: int) -> list[Frame]:
    reader, found = Http2Reader(), []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        found += reader.feed(data[begin:end])
    return found


def test_padding_priorities_and_continuations_are_removed() -> None:
    """A header block arrives whole, and data without padding, which flow control counts."""
    found = {(one.kind, one.stream, one.payload, one.size) for one in read(ALLOWED)}

    assert (HEADERS, 1, b"first second third", 6) in found
    assert (DATA, 1, b"payload", 11) in found
    assert (HEADERS, 3, b"block", 13) in found
    assert not {PRIORITY, CONTINUATION, 0x77} & {kind for kind, *_ in found}


def test_frames_are_the_same_however_the_bytes_are_cut() -> None:
    """Portions of a connection mean nothing."""
    whole = read(ALLOWED)

    assert all(read(ALLOWED, cut) == whole for cut in range(len(ALLOWED)))
    assert read(ALLOWED, *range(1, len(ALLOWED))) == whole


@pytest.mark.parametrize(
    "data",
    [
        frame(DATA, 0, 0, b"x"),
        frame(HEADERS, END_HEADERS, 0, b"x"),
        frame(RST_STREAM, 0, 0, bytes(4)),
        frame(SETTINGS, 0, 1, bytes(6)),
        frame(SETTINGS, 0, 0, bytes(5)),
        frame(PING, 0, 1, bytes(8)),
        frame(PING, 0, 0, bytes(7)),
        frame(GOAWAY, 0, 0, bytes(7)),
        frame(WINDOW_UPDATE, 0, 0, bytes(3)),
        frame(RST_STREAM, 0, 1, bytes(5)),
        frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)),
        frame(CONTINUATION, END_HEADERS, 1, b"x"),
        frame(HEADERS, 0, 1, b"x") + frame(DATA, 0, 1, b"x"),
        frame(HEADERS, 0, 1, b"x") + frame(CONTINUATION, END_HEADERS, 3, b"x"),
        frame(HEADERS, 0, 1, b"x") + frame(PING, 0, 0, bytes(8)),
        frame(DATA, PADDED, 1, b""),
        frame(DATA, PADDED, 1, b"\x02x"),
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, b"1234"),
        b"\x00\x40\x01\x00\x00\x00\x00\x00\x01",  # one byte more than the largest frame
    ],
)
def test_what_http2_does_not_allow_is_refused(data: bytes) -> None:
    """A broken frame ends the connection; nothing is guessed."""
    with pytest.raises(ProtocolError):
        read(data)


@pytest.mark.parametrize("portion", [b"", b"x" * LARGEST_FRAME])
def test_a_header_block_without_end_is_refused(portion: bytes) -> None:
    """Neither large nor empty continuations take memory without a limit."""
    data = frame(HEADERS, 0, 1, portion)
    data += frame(CONTINUATION, 0, 1, portion) * (LARGEST_BLOCK // max(len(portion), 64) + 1)

    with pytest.raises(ProtocolError, match="without end"):
        read(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_frames_or_refused(data: bytes, cut: int) -> None:
    """Nothing else is raised, and the result does not depend on portions."""

    def result(*cuts: int) -> list[Frame] | str:
        try:
            return read(data, *cuts)
        except ProtocolError as error:
            return str(error)

    assert result(min(cut, len(data))) == result()


SENT = st.lists(
    st.tuples(
        st.sampled_from((DATA, HEADERS, CONTINUATION, PING)),
        st.sampled_from((0, END_HEADERS)),
        st.sampled_from((0, 1, 3)),
        st.binary(max_size=9),
    ),
    max_size=8,
)


@given(SENT)
def test_padding_changes_nothing(sent: list[tuple[int, int, int, bytes]]) -> None:
    """A frame without padding takes a shorter way; it ends where one with padding does."""

    def result(*, padded: bool) -> list[tuple[int, int, bytes]] | str:
        data = b""
        for kind, flags, stream, payload in sent:
            if padded and kind in (DATA, HEADERS):
                data += frame(kind, flags | PADDED, stream, b"\x02" + payload + b"pp")
            else:
                data += frame(kind, flags, stream, payload)
        try:
            return [(one.kind, one.stream, one.payload) for one in read(data)]
        except ProtocolError as error:
            return str(error)

    assert result(padded=True) == result(padded=False)


def test_headers_of_another_implementation_are_read() -> None:
    """Huffman coding, the static table, and the table of size 0 that we announce."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    sent = [(b":status", b"200"), (b"grpc-message", b"no leader"), (b"grpc-status", b"14")]

    assert HeaderReader().read(encoder.encode(sent)) == dict(sent)


@pytest.mark.parametrize(
    "block",
    [
        hpack.Encoder().encode([(b"a", b"b")])[:-1],
        b"\xbe",  # an entry of the table that we have disabled
        b"\x3f\xe1\x1f",  # a table of 4,096 bytes
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_headers_that_need_a_table_or_are_broken_are_refused(block: bytes) -> None:
    """Otherwise equal blocks could mean different headers."""
    with pytest.raises(ProtocolError):
        HeaderReader().read(block)


@given(st.binary(max_size=64))
def test_any_block_is_headers_or_refused(block: bytes) -> None:
    """The decoder of the library raises nothing that we do not expect."""
    with contextlib.suppress(ProtocolError):
        HeaderReader().read(block)


@given(st.binary(min_size=1, max_size=300), st.binary(max_size=300))
def test_our_headers_are_read_by_another_implementation(name: bytes, value: bytes) -> None:
    """Literals of every length."""
    decoded = hpack.Decoder(max_header_list_size=1000).decode(frames.literal(name, value), raw=True)

    assert [(bytes(key), bytes(text)) for key, text in decoded] == [(name, value)]
