"""Heads that are known from other connections: who has part in them, and that they stay few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.server.sockets.known_head import KnownHeads
from orchid.server.sockets.messages import HttpRequest, Peer
from orchid.server.sockets.reader import RequestReader
from tests.unit.server.readers import new_reader, told

HEADERS = b"Host: h\r\nAuthorization: Bearer %b\r\nContent-Length: 2\r\n\r\n"
LATER = "tests show here that a memo is shared"


def sent(token: bytes = b"t", path: bytes = b"/a") -> bytes:
    return b"POST %b HTTP/1.1\r\n" % path + HEADERS % token + b"{}"


def connected(heads: KnownHeads, *, known: bool = True, certificate: bytes | None = None) -> Peer:
    """A connection on which a head was sent three times; `known`: of somebody authenticated."""
    peer = Peer("first", certificate)
    peer.known = known
    reader = new_reader(peer=peer, heads=heads)
    for _ in range(3):
        fed(reader, sent()).head_memo[LATER] = True
    return peer


def fed(reader: RequestReader, data: bytes) -> HttpRequest:
    reader.feed(data)
    [arrived] = reader.ready
    reader.ready.clear()
    return arrived.request


def test_a_head_of_one_connection_is_known_on_the_next() -> None:
    """From its first request on; the peer is its own, and so is the body."""
    heads = KnownHeads()
    connected(heads)
    reader = new_reader(peer=Peer("second"), heads=heads)

    request = fed(reader, sent(path=b"/b?c")[:-2] + b"[]")

    assert request.head_memo == {LATER: True}
    assert (request.peer.address, request.path, request.query) == ("second", "/b", "c")
    assert request.body == b"[]"


def test_a_first_request_is_no_repetition_whatever_others_sent() -> None:
    """It goes the whole way, on which its connection becomes known; the next one repeats it."""
    heads, get = KnownHeads(), b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"
    first, second = new_reader(heads=heads), new_reader(heads=heads)
    first.peer.known = True

    for reader in (first, first, first, second, second):
        reader.feed(get)

    assert [arrived.repeats for arrived in first.ready] == [False, False, True]
    assert [arrived.repeats for arrived in second.ready] == [False, True]
    assert second.ready[0].request.head_memo is first.ready[2].request.head_memo


@pytest.mark.parametrize(("first", "second"), [(b"der", None), (None, b"der"), (b"der", b"der")])
def test_a_connection_with_a_certificate_shares_no_head(
    first: bytes | None, second: bytes | None
) -> None:
    """With a certificate the headers alone do not tell who it is."""
    heads = KnownHeads()
    connected(heads, certificate=first)

    request = fed(new_reader(peer=Peer("second", second), heads=heads), sent())

    assert request.head_memo == {}


def test_a_head_with_another_token_is_another_head() -> None:
    heads = KnownHeads()
    connected(heads)

    request = fed(new_reader(heads=heads), sent(b"u"))

    assert request.head_memo == {}


def test_heads_of_unknown_callers_stay_on_their_connections() -> None:
    """They may send as many as they like."""
    heads = KnownHeads()
    connected(heads, known=False)

    request = fed(new_reader(heads=heads), sent())

    assert request.head_memo == {}
    assert not heads._kept
    assert not heads._seen


def test_a_connection_of_a_proxy_knows_the_heads_of_many_callers() -> None:
    """They come in turn, so that none of them is like the one before it."""
    reader = new_reader(heads=KnownHeads())
    reader.peer.known = True
    tokens = [b"%d" % number for number in range(50)]

    memos = [[fed(reader, sent(token)).head_memo for token in tokens] for _ in range(4)]

    assert [third is fourth for third, fourth in zip(memos[2], memos[3], strict=True)] == [
        True
    ] * 50
    assert len({id(memo) for memo in memos[3]}) == 50


def test_the_head_that_was_not_asked_for_the_longest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their number is bounded, and whoever sends others does not push out those in use."""
    monkeypatch.setattr(KnownHeads, "MOST", 3)
    heads = KnownHeads()
    reader = new_reader(heads=heads)
    reader.peer.known = True
    for token in (b"1", b"2", b"3"):
        for _ in range(2):
            fed(reader, sent(token))
    fed(reader, sent(b"1"))  # asked for
    for _ in range(2):
        fed(reader, sent(b"4"))

    kept = [
        token for token in (b"1", b"2", b"3", b"4") if any(token in head for head in heads._kept)
    ]

    assert kept == [b"1", b"3", b"4"]


def test_few_are_remembered_of_the_heads_that_come_once() -> None:
    heads = KnownHeads()
    reader = new_reader(heads=heads)
    reader.peer.known = True

    for number in range(heads.MOST + 10):
        fed(reader, sent(b"%d" % number))

    assert len(heads._seen) == heads.MOST
    assert not heads._kept


@given(
    st.sampled_from([b"GET /x", b"POST /a", b"PATCH /a?b=c", b"HEAD /", b"CONNECT a", b"?"]),
    st.sampled_from([b"1.1", b"1.0"]),
    st.sampled_from([b"", b"0", b"2", b"02", b"7", b"+2", b"2\r\nContent-Length: 2", b"9" * 10]),
    st.sampled_from([b"", b"{}", b"{}{}{}{", b"{}GET / HTTP/1.1\r\nHost: h\r\n\r\n"]),
)
def test_what_other_connections_sent_changes_no_meaning(
    line: bytes, version: bytes, length: bytes, body: bytes
) -> None:
    """A request means the same, or is refused, as on a server that has just started."""
    heads = KnownHeads()
    connected(heads)
    head = HEADERS.replace(b"Length: 2", b"Length: " + length) % b"t"
    warm, fresh = new_reader(heads=heads), new_reader()

    for reader in (warm, fresh):
        reader.feed(line + b" HTTP/" + version + b"\r\n" + head + body)

    assert told(warm) == told(fresh)
