"""gRPC over HTTP/2 with a scripted peer: flow control, the end of calls, and what is known then."""

import asyncio
from typing import Any, cast

import hpack
import pytest

from orchid.kernel.store.etcd import frames, grpc_connection
from orchid.kernel.store.etcd.frames import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LARGEST_FRAME,
    PING,
    PREFACE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    Http2Reader,
    frame,
)
from orchid.kernel.store.etcd.grpc_calls import (
    GrpcFailure,
    NotProcessed,
    OutcomeUnknown,
    RequestHeaders,
    StatusReceived,
)
from orchid.kernel.store.etcd.grpc_connection import (
    CONNECTION_WINDOW,
    DEFAULT_WINDOW,
    MOST_UNREAD,
    STREAM_WINDOW,
    GrpcConnection,
)

PATH = "/etcdserverpb.KV/Range"


class Wire:
    """The transport of a connection, and the peer behind it."""

    def __init__(self) -> None:
        self.closed = self.aborted = False
        self._sent = bytearray()
        self._reader = Http2Reader()

    def write(self, data: bytes) -> None:
        self._sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    async def received(self) -> list[Frame]:
        """The frames that the client has sent since the last call."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        data, self._sent = bytes(self._sent), bytearray()
        return self._reader.feed(data.removeprefix(PREFACE))


class Peer:
    """A connection with a scripted etcd."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.connection = GrpcConnection(RequestHeaders("etcd:2379", "http"))
        self.connection.connection_made(cast("Any", self.wire))

    def send(self, *sent: bytes) -> None:
        self.connection.data_received(b"".join(sent))

    def settle(self, **settings: int) -> None:
        self.send(frames.settings({getattr(frames, name): n for name, n in settings.items()}))

    def answer(self, stream: int, *messages: bytes, status: int = 0, text: str = "") -> None:
        self.send(headers(stream, (b":status", b"200"), (b"content-type", b"application/grpc")))
        for message in messages:
            self.send(frame(DATA, 0, stream, packed(message)))
        trailers = [(b"grpc-status", b"%d" % status), (b"grpc-message", text.encode())]
        self.send(headers(stream, *trailers, flags=END_STREAM))


def packed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4) + message


def headers(stream: int, *fields: tuple[bytes, bytes], flags: int = 0) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return frame(HEADERS, END_HEADERS | flags, stream, encoder.encode(fields))


@pytest.fixture
async def peer() -> Peer:
    made = Peer()
    made.settle()
    await made.wire.received()
    return made


def begin(peer: Peer, message: bytes = b"question", seconds: float = 5) -> asyncio.Task[bytes]:
    return asyncio.create_task(peer.connection.call(PATH, message, seconds))


async def test_a_connection_is_ready_with_the_settings_of_the_peer() -> None:
    """It announces its own first: no header table, no pushes, large windows."""
    peer = Peer()
    assert not peer.connection.is_ready
    with pytest.raises(NotProcessed):
        await peer.connection.call(PATH, b"", 1)

    peer.settle()
    settings, window, ack = await peer.wire.received()

    assert peer.connection.is_ready
    assert dict(frames.read_settings(settings.payload)) == {
        frames.HEADER_TABLE_SIZE: 0,
        frames.ENABLE_PUSH: 0,
        frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    }
    assert frames.read_number(window.payload) == CONNECTION_WINDOW - DEFAULT_WINDOW
    assert (ack.kind, ack.flags) == (SETTINGS, ACK)


async def test_calls_of_one_turn_are_written_together_and_answered_in_any_order(
    peer: Peer,
) -> None:
    """Each call has its own stream, with its headers and its message."""
    calls = [begin(peer, b"one"), begin(peer, b"two")]
    sent = await peer.wire.received()

    assert [(one.kind, one.stream) for one in sent] == [
        (HEADERS, 1),
        (DATA, 1),
        (HEADERS, 3),
        (DATA, 3),
    ]
    assert [one.payload for one in sent if one.kind == DATA] == [packed(b"one"), packed(b"two")]
    assert sent[1].flags & sent[3].flags & END_STREAM
    named = dict(hpack.Decoder().decode(sent[0].payload, raw=True))
    assert named[b":path"] == PATH.encode()
    assert named[b"hasleader"] == b"true"
    assert named[b"grpc-timeout"] == b"5000m"
    peer.answer(3, b"TWO")
    peer.answer(1, b"ONE")
    assert await asyncio.gather(*calls) == [b"ONE", b"TWO"]


async def test_a_message_arrives_in_any_portions(peer: Peer) -> None:
    """The borders of messages are not those of frames."""
    call = begin(peer)
    await peer.wire.received()
    peer.send(headers(1, (b":status", b"200")))
    for byte in packed(b"answer"):
        peer.send(frame(DATA, 0, 1, bytes((byte,))))
    peer.send(headers(1, (b"grpc-status", b"0"), flags=END_STREAM))

    assert await call == b"answer"


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ([(b"grpc-status", b"8"), (b"grpc-message", b"too%20many")], 8, "too many"),
        ([(b":status", b"200"), (b"grpc-status", b"nine")], 2, "^$"),
        ([(b":status", b"200"), (b"grpc-status", b"9" * 5000)], 2, "^$"),
        ([(b":status", b"503")], 14, "HTTP status 503"),
        ([(b":status", b"418")], 2, "HTTP status 418"),
    ],
)
async def test_a_status_is_an_answer(
    peer: Peer, fields: list[tuple[bytes, bytes]], code: int, text: str
) -> None:
    """Also the answers of proxies, which know no gRPC."""
    call = begin(peer)
    await peer.wire.received()
    peer.send(headers(1, *fields, flags=END_STREAM))

    with pytest.raises(StatusReceived, match=text) as caught:
        await call

    assert caught.value.code == code


async def test_an_answer_without_its_message_or_status_is_refused(peer: Peer) -> None:
    """OK needs exactly one message."""
    empty, double, cut = begin(peer), begin(peer), begin(peer)
    await peer.wire.received()
    peer.answer(1)
    peer.answer(3, b"a", b"b")
    peer.send(headers(5, (b":status", b"200")), frame(DATA, END_STREAM, 5, packed(b"a")))

    for call in (empty, double, cut):
        with pytest.raises(StatusReceived):
            await call


# --- the end of calls -----------------------------------------------------------------------------


async def outcome(call: "asyncio.Task[bytes]") -> type[GrpcFailure]:
    with pytest.raises(GrpcFailure) as caught:
        await call
    return type(caught.value)


async def test_after_goaway_unseen_calls_were_not_processed_and_others_are_answered(
    peer: Peer,
) -> None:
    """The last stream that the peer has seen decides; the connection takes no more calls."""
    seen, unseen = begin(peer), begin(peer)
    await peer.wire.received()
    peer.send(frame(GOAWAY, 0, 0, (1).to_bytes(4) + bytes(4)))

    assert await outcome(unseen) is NotProcessed
    assert not peer.connection.is_ready
    peer.answer(1, b"answer")
    assert await seen == b"answer"
    assert peer.wire.closed


@pytest.mark.parametrize(
    ("code", "expected"), [(REFUSED_STREAM, NotProcessed), (CANCEL, OutcomeUnknown)]
)
async def test_only_a_refused_stream_was_certainly_not_processed(
    peer: Peer, code: int, expected: type[GrpcFailure]
) -> None:
    """Any other reset may come after etcd has carried out the call."""
    call = begin(peer)
    await peer.wire.received()
    peer.send(frames.reset(1, code))

    assert await outcome(call) is expected


async def test_a_lost_connection_leaves_only_what_was_sent_undecided(peer: Peer) -> None:
    """A request whose end was never sent cannot have been carried out."""
    sent = begin(peer)
    await peer.wire.received()
    halted = begin(peer, b"x" * (2 * DEFAULT_WINDOW))
    await peer.wire.received()
    peer.connection.connection_lost(None)

    assert await outcome(sent) is OutcomeUnknown
    assert await outcome(halted) is NotProcessed
    with pytest.raises(NotProcessed):
        await peer.connection.call(PATH, b"", 1)


async def test_a_call_ends_with_its_time(peer: Peer) -> None:
    """The stream is reset, and a late answer is ignored."""
    call = begin(peer, seconds=0.05)
    await peer.wire.received()

    assert await outcome(call) is OutcomeUnknown
    assert [one.kind for one in await peer.wire.received()] == [RST_STREAM]
    peer.answer(1, b"late")
    assert peer.connection.is_ready


async def test_a_cancelled_call_resets_its_stream(peer: Peer) -> None:
    """etcd need not go on with it."""
    call = begin(peer)
    await peer.wire.received()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert [(one.kind, one.stream) for one in await peer.wire.received()] == [(RST_STREAM, 1)]


@pytest.mark.parametrize(
    "sent",
    [
        frame(DATA, 0, 1, b"\x01\x00\x00\x00\x01x"),  # compressed
        frame(DATA, 0, 1, b"\x00\xff\xff\xff\xff"),  # 4 GiB
        frame(DATA, 0, 7, b"x"),  # a stream that was never opened
        frame(DATA, 0, 2, b"x"),  # a stream of the peer's
        frames.settings({INITIAL_WINDOW_SIZE: 2**31}),
        frames.settings({frames.MAX_FRAME_SIZE: 1}),
        frames.window_update(0, 0),
        frames.window_update(0, 2**31 - 1),
        headers(1, (b":status", b"200"))[:-1] + b"\xbe",
        frame(HEADERS, END_HEADERS, 1, b"\xbe"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_left(peer: Peer, sent: bytes) -> None:
    """It gets a GOAWAY, and the outcome of calls that were sent is unknown."""
    call = begin(peer)
    await peer.wire.received()
    peer.send(sent)

    assert await outcome(call) is OutcomeUnknown
    assert peer.wire.closed
    assert not peer.connection.is_ready


async def test_a_silent_peer_is_asked_and_then_left(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch would otherwise wait for ever on a connection that is dead."""
    monkeypatch.setattr(grpc_connection, "PING_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(grpc_connection, "PONG_WITHIN_SECONDS", 0.0)
    monkeypatch.setattr(grpc_connection, "TICK_SECONDS", 0.01)
    stream = peer.connection.stream(PATH)
    stream.write(b"watch")

    with pytest.raises(GrpcFailure, match="does not answer"):
        await stream.read()

    assert peer.wire.aborted, "to close it would keep the socket as long as the peer takes nothing"


async def test_pings_are_answered(peer: Peer) -> None:
    """With the bytes that were sent."""
    peer.send(frame(PING, 0, 0, b"12345678"))
    [pong] = await peer.wire.received()

    assert (pong.kind, pong.flags, pong.payload) == (PING, ACK, b"12345678")


# --- flow control ---------------------------------------------------------------------------------


async def test_a_request_waits_for_the_windows_of_the_peer(peer: Peer) -> None:
    """No more is sent than the stream and the connection allow, in frames of allowed size."""
    size = DEFAULT_WINDOW + 1000
    call = begin(peer, b"x" * size)
    sent = await peer.wire.received()

    assert sum(one.size for one in sent if one.kind == DATA) == DEFAULT_WINDOW
    assert max(one.size for one in sent) <= LARGEST_FRAME
    peer.send(frames.window_update(1, 10_000))
    assert await peer.wire.received() == []
    peer.send(frames.window_update(0, 10_000))
    [last] = await peer.wire.received()
    assert last.size == size + 5 - DEFAULT_WINDOW
    assert last.flags & END_STREAM
    peer.answer(1, b"done")
    assert await call == b"done"


async def test_a_changed_setting_changes_the_window_of_open_streams(peer: Peer) -> None:
    """Also downwards: then the stream waits until its window is positive again."""
    call = begin(peer, b"x" * DEFAULT_WINDOW)
    await peer.wire.received()
    peer.send(frames.window_update(0, 100_000))
    peer.settle(INITIAL_WINDOW_SIZE=DEFAULT_WINDOW + 5)
    sent = await peer.wire.received()

    assert [one.size for one in sent if one.kind == DATA] == [5]
    call.cancel()


async def test_calls_wait_for_a_free_stream(peer: Peer) -> None:
    """The peer says how many calls it takes at once."""
    peer.settle(MAX_CONCURRENT_STREAMS=1)
    first, second = begin(peer, b"one"), begin(peer, b"two")
    sent = [one.stream for one in await peer.wire.received() if one.kind == HEADERS]

    assert sent == [1]
    peer.answer(1, b"ONE")
    assert await first == b"ONE"
    assert {one.stream for one in await peer.wire.received()} >= {3}
    peer.answer(3, b"TWO")
    assert await second == b"TWO"


async def test_calls_wait_while_the_transport_is_full(peer: Peer) -> None:
    """Back-pressure of the socket holds requests, and nothing is lost."""
    peer.connection.pause_writing()
    call = begin(peer)
    assert await peer.wire.received() == []

    peer.connection.resume_writing()

    assert [one.kind for one in await peer.wire.received()] == [HEADERS, DATA]
    peer.answer(1, b"done")
    assert await call == b"done"


async def test_answers_are_credited_while_they_arrive(peer: Peer) -> None:
    """An answer larger than the windows passes: stream and connection are credited."""
    call = begin(peer)
    await peer.wire.received()
    message = packed(b"x" * (CONNECTION_WINDOW + STREAM_WINDOW))
    peer.send(headers(1, (b":status", b"200")))
    credited = {0: CONNECTION_WINDOW, 1: STREAM_WINDOW}
    for at in range(0, len(message), LARGEST_FRAME):
        part = message[at : at + LARGEST_FRAME]
        assert min(credited.values()) >= len(part)
        peer.send(frame(DATA, 0, 1, part))
        credited = {stream: left - len(part) for stream, left in credited.items()}
        for one in await peer.wire.received():
            assert one.kind == WINDOW_UPDATE
            credited[one.stream] += frames.read_number(one.payload)
    peer.send(headers(1, (b"grpc-status", b"0"), flags=END_STREAM))

    assert len(await call) == CONNECTION_WINDOW + STREAM_WINDOW


async def test_a_slow_reader_holds_its_own_stream_only(peer: Peer) -> None:
    """Unread messages are not credited beyond a limit, and are when they are read."""
    stream = peer.connection.stream(PATH)
    stream.write(b"watch")
    await peer.wire.received()
    peer.send(headers(1, (b":status", b"200")))
    message, sent, left = packed(b"x" * 10_000), 0, STREAM_WINDOW
    while left >= len(message):
        peer.send(frame(DATA, 0, 1, message))
        sent, left = sent + 1, left - len(message)
        for one in await peer.wire.received():
            left += frames.read_number(one.payload) if one.stream else 0
        assert sent * len(message) < 2 * MOST_UNREAD

    assert await stream.read() == b"x" * 10_000
    assert not await peer.wire.received(), "one that was read does not make room for a megabyte"
    for _ in range(sent - 1):
        assert await stream.read() == b"x" * 10_000

    assert any(one.stream == 1 for one in await peer.wire.received())


async def test_more_data_than_the_window_is_refused(peer: Peer) -> None:
    """A peer that ignores flow control cannot fill our memory."""
    stream = peer.connection.stream(PATH)
    stream.write(b"watch")
    await peer.wire.received()
    peer.send(headers(1, (b":status", b"200")))
    message = packed(b"x" * 10_000)
    for _ in range(2 * MOST_UNREAD // len(message)):
        peer.send(frame(DATA, 0, 1, message))

    assert peer.wire.closed
