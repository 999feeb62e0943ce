"""Where a request ends never depends on the cache of heads: a reader without one agrees.

A reader that cuts a stream in another place than the proxy before it lets requests be smuggled
(RFC 9112, 11.2). tests/fuzz has the same comparison for bytes that nobody chose.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernel.http.reading.framing import (
    BODIES,
    INNER,
    LINES,
    REQUEST_LINES,
    framed,
    readings,
)

PLAIN = framed(b"POST /a HTTP/1.1", b"X: y", b"")


def assert_agree(pieces: list[bytes]) -> None:
    assert readings(pieces, cached=True) == readings(pieces, cached=False)


@pytest.mark.parametrize("headers", LINES)
def test_a_head_means_the_same_the_third_time_wherever_it_is_cut(headers: bytes) -> None:
    """In every spelling, with every sort of body behind it, cut at every position."""
    for body in BODIES:
        request = framed(b"POST /a HTTP/1.1", headers, body)
        for cut in range(len(request)):
            assert_agree([request, request, request[:cut], request[cut:], INNER])


@pytest.mark.parametrize("line", REQUEST_LINES)
@pytest.mark.parametrize("headers", [LINES[1], LINES[35], LINES[-1], b"Connection: keep-alive"])
def test_a_request_line_means_the_same_with_cached_headers(line: bytes, headers: bytes) -> None:
    """Whatever method, target and version it has."""
    for body in BODIES:
        before, request = (framed(each, headers, body) for each in (b"PUT /b HTTP/1.1", line))
        assert_agree([before, before, before, request, INNER])
        assert_agree([before, before, request + request + INNER])
        assert_agree([before, before, *[request] * 4, INNER, request])


@pytest.mark.parametrize("headers", LINES)
def test_a_head_means_the_same_behind_a_cached_one_with_another_length(headers: bytes) -> None:
    """The cached head differs in the value of Content-Length alone."""
    known = framed(b"POST /a HTTP/1.1", b"Content-Length: 2", b"hi")
    for body in BODIES:
        assert_agree([known, known, known, framed(b"POST /a HTTP/1.1", headers, body), INNER])


REQUESTS = st.builds(
    framed, st.sampled_from(REQUEST_LINES), st.sampled_from(LINES), st.sampled_from(BODIES)
)


@given(
    st.lists(st.tuples(REQUESTS, st.integers(1, 4)), min_size=1, max_size=5),
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_a_stream_of_requests_means_the_same_however_it_comes(
    requests: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    """Repeated, pipelined, and cut anywhere."""
    stream = PLAIN + b"".join(request * times for request, times in requests)
    edges = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})

    assert_agree([stream[start:end] for start, end in pairwise(edges)])
    assert_agree([request for request, times in requests for _ in range(times)])
