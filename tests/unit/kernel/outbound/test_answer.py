"""Answers of servers, piece by piece: what is taken, and where it ends."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.outbound.answer import MAX_HEAD, MAX_HEADERS, AnswerReader
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed, ServerUnreachable
from tests.unit.kernel.outbound.loopback import OK

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"


def read(*pieces: bytes, most: int = 1000) -> AnswerReader:
    answer = AnswerReader(most)
    for piece in pieces:
        answer.feed(piece)
    return answer


@given(
    answer=st.sampled_from([OK, CHUNKED, INTERIM + OK, INTERIM * 3 + CHUNKED]),
    cuts=st.lists(st.integers(0, 200), max_size=5),
)
def test_pieces_do_not_matter(answer: bytes, cuts: list[int]) -> None:
    """An answer is the same however it was cut up on its way."""
    places = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [answer[a:b] for a, b in pairwise(places)]

    found = read(*pieces)

    assert (found.status, found.take_body(), found.complete) == (200, b"{}", True)
    assert found.leaves_open


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_server_that_closes_is_not_asked_again_on_the_same_connection(answer: bytes) -> None:
    """Whether it says so, or is so old that it need not."""
    found = read(answer)

    assert found.complete
    assert not found.leaves_open


def test_end_of_the_connection_ends_an_answer_without_length() -> None:
    """And no other; and the connection is used up."""
    found = read(b"HTTP/1.1 200 OK\r\n\r\n{}", b"")

    assert found.complete
    assert not found.leaves_open
    for cut in (OK[:-1], CHUNKED[:-5], INTERIM, b"HTTP/1.1 2"):
        with pytest.raises(ServerUnreachable):
            read(cut, b"")


@pytest.mark.parametrize(
    "answer",
    [
        OK + OK,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_what_nobody_asked_for_is_refused(answer: bytes) -> None:
    """A second answer, another protocol, no HTTP at all."""
    with pytest.raises(AnswerRefused):
        read(answer)


@pytest.mark.parametrize(
    "piece",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_HEADERS + 1) + b"\r\n",
        INTERIM * (MAX_HEADERS + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
    ],
)
def test_limits_hold_for_every_part(piece: bytes) -> None:
    """Of the head, the headers, the answers before the answer, and the body."""
    with pytest.raises(CallFailed):
        read(piece)


def test_what_was_taken_no_longer_counts() -> None:
    """A stream may be longer than the limit, if it is read."""
    found = read(b"HTTP/1.1 200 OK\r\n\r\n")

    taken = 0
    for _ in range(10):
        found.feed(b"x" * 900)
        taken += len(found.take_body())

    assert taken == 9000
