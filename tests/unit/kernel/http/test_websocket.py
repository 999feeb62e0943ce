"""The part of RFC 6455 that watches need: the handshake and the frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.http.websocket import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    BadFrame,
    FrameReader,
    event_frame,
    frame,
    handshake,
    is_asked_for,
)

SECRET = "base64url.bearer.authorization.orch.io."
GOOD = {
    "connection": "keep-alive, Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "origin": "https://console.example.test",
}


def request(**changes: str) -> HttpRequest:
    headers = GOOD | {name.replace("_", "-"): value for name, value in changes.items()}
    kept = {name: value for name, value in headers.items() if value}
    return HttpRequest("GET", "/", "/", "", kept, Peer("127.0.0.1:1"))


def masked(opcode: int, payload: bytes, *, first: int = 0x80) -> bytes:
    """A frame as a client sends it."""
    mask, size = b"\x01\x02\x03\x04", len(payload)
    if size < 126:
        head = bytes((first | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((first | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def test_handshake_answers_the_example_of_the_standard() -> None:
    """The example key of RFC 6455, 1.3 gives the answer in the RFC."""
    headers = handshake(request(), SECRET)

    assert isinstance(headers, bytes)
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in headers
    assert b"Protocol" not in headers


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"origin": ""}, 403),
        ({"sec_websocket_key": ""}, 400),
        ({"sec_websocket_key": "short"}, 400),
        ({"sec_websocket_key": "é"}, 400),
        ({"sec_websocket_version": "8"}, 400),
        ({"sec_websocket_protocol": "one, two"}, 400),
    ],
)
def test_handshake_refuses(changes: dict[str, str], status: int) -> None:
    """No origin is forbidden; whatever else does not fit is a bad request."""
    assert handshake(request(**changes), SECRET) == status


def test_token_is_never_chosen() -> None:
    """Of a token and a subprotocol, the subprotocol is echoed and the token is not."""
    headers = handshake(request(sec_websocket_protocol=f"{SECRET}c2VjcmV0, v1"), SECRET)

    assert isinstance(headers, bytes)
    assert b"Sec-WebSocket-Protocol: v1\r\n" in headers
    assert b"c2VjcmV0" not in headers


def test_what_asks_for_an_upgrade() -> None:
    """Both headers are needed, in any case and among others."""
    assert is_asked_for(request(upgrade="WebSocket"))
    assert not is_asked_for(request(upgrade="h2c"))
    assert not is_asked_for(request(connection="close"))


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_frames_say_their_length(size: int) -> None:
    """Lengths take one, three or nine bytes (RFC 6455, 5.2)."""
    made = frame(TEXT, b"x" * size)

    head = {0: 2, 125: 2, 126: 4, 65535: 4, 65536: 10}[size]
    assert made[0] == 0x81
    assert len(made) == head + size


def test_events_are_text_or_binary() -> None:
    """JSON goes as text; protobuf as binary, without the length in front of it."""
    assert event_frame(b'{"type":"ADDED"}\n')[0] & 0x0F == TEXT
    assert event_frame(b"\x00\x00\x00\x02ab") == frame(BINARY, b"ab")


@given(
    st.lists(
        st.tuples(st.sampled_from((0, TEXT, BINARY, CLOSE, PING)), st.binary(max_size=300)),
        max_size=6,
    ),
    st.integers(1, 50),
)
def test_frames_are_read_however_they_are_cut(frames: list[tuple[int, bytes]], step: int) -> None:
    """Control frames come out whole and in order, messages not at all."""
    frames = [(code, data[:125] if code >= CLOSE else data) for code, data in frames]
    sent = b"".join(masked(code, data) for code, data in frames)
    reader = FrameReader()

    found = [
        frame
        for start in range(0, len(sent), step)
        for frame in reader.feed(sent[start : start + step])
    ]

    assert found == [(code, data) for code, data in frames if code >= CLOSE]


@given(st.binary(max_size=200), st.integers(1, 30))
def test_noise_ends_in_a_refusal_or_silence(noise: bytes, step: int) -> None:
    """Whatever arrives, nothing but BadFrame is raised, and little is kept."""
    reader = FrameReader()
    try:
        for start in range(0, len(noise), step):
            list(reader.feed(noise[start : start + step]))
    except BadFrame:
        return
    assert len(reader._held) < 140


@pytest.mark.parametrize(
    "bad",
    [
        bytes((0x80 | PING, 0)),
        masked(PING, b"", first=0xC0),
        masked(PING, b"", first=0),
        bytes((0x80 | PING, 0x80 | 126, 0, 200)) + bytes(4),
    ],
    ids=["unmasked", "reserved", "fragmented", "long"],
)
def test_bad_frames_are_refused(bad: bytes) -> None:
    """Unmasked frames, reserved bits, and control frames in pieces or too long."""
    with pytest.raises(BadFrame):
        list(FrameReader().feed(bad + bytes(20)))
