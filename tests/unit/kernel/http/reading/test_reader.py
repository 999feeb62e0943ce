"""The reader: which bytes are requests, which are refused, and that splitting changes nothing."""

from itertools import pairwise
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.http.reading.reader import BETWEEN, CLOSE_SILENTLY, RequestReader
from tests.unit.kernel.http.readers import CHUNKED, START, new_reader, only_request, outcome, read


def test_a_request_is_taken_apart_without_decoding_it() -> None:
    """Target, path and query stay as they were sent; names of headers are folded."""
    request = only_request(b"PUT /a%2Fb?x=%31&y HTTP/1.1\r\nHost: h\r\nX-One:  1 \t\r\n\r\n")

    assert (request.method, request.target) == ("PUT", "/a%2Fb?x=%31&y")
    assert (request.path, request.query) == ("/a%2Fb", "x=%31&y")
    assert request.headers == {"host": "h", "x-one": "1"}


def test_repeated_headers_keep_their_order() -> None:
    """The map has the first value; all values can be read."""
    request = only_request(START + b"Host: h\r\nA: 1\r\nB: x\r\na: 2\r\nA:\r\n\r\n")

    assert request.headers["a"] == "1"
    assert request.all("a") == ["1", "2", ""]
    assert request.all("b") == ["x"]
    assert request.all("c") == []


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://example.com/a/b?c=d", "/a/b", "c=d"),
        ("https://example.com", "/", ""),
        ("http://example.com?c", "/", "c"),
        ("//twice", "//twice", ""),
    ],
)
def test_absolute_targets_give_their_path(target: str, path: str, query: str) -> None:
    """A whole URL as target means the path in it (RFC 9112, 3.2.2)."""
    request = only_request(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    assert (request.target, request.path, request.query) == (target, path, query)


def test_a_star_is_a_target_only_for_options() -> None:
    """OPTIONS may ask about the server as a whole, others may not."""
    assert only_request(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path == "*"
    assert read(b"GET * HTTP/1.1\r\nHost: h\r\n\r\n").refusal == 400


def test_chunked_bodies_are_joined_and_trailers_dropped() -> None:
    """A trailer never shows up as a header, neither of its request nor of the next one."""
    reader = read(
        CHUNKED
        + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Remote-User: root\r\nHost: evil\r\n\r\n"
        + START
        + b"Host: b\r\n\r\n"
    )

    first, second = (arrived.request for arrived in reader.ready)
    assert first.body == b"abcde"
    assert first.headers == {"host": "a", "transfer-encoding": "chunked"}
    assert second.headers == {"host": "b"}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (START + b"Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (START + b"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
        (START + b"Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (START + b"Host: a\r\nContent-Length: 1, 1\r\n\r\nx", 400),
        (START + b"Host: a\r\nContent-Length: +1\r\n\r\nx", 400),
        (START + b"Host: a\r\nContent-Length: -1\r\n\r\nx", 400),
        (START + b"Host: a\r\nContent-Length: 99999999999999999999999\r\n\r\nx", 400),
        (START + b"Host: a\r\nContent-Length:\r\n\r\n", 400),
        (START + b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (START + b"Host: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400),
        (START + b"Host: a\r\nTransfer-Encoding: identity\r\n\r\n", 501),
        (START + b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", 400),
        (CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (CHUNKED + b"0x2\r\nhi\r\n", 400),
        (CHUNKED + b" 2\r\nhi\r\n", 400),
        (CHUNKED + b"2 \r\nhi\r\n", 400),
        (CHUNKED + b"-2\r\nhi\r\n", 400),
        (CHUNKED + b"2\nhi\r\n", 400),
        (CHUNKED + b"2\r\nhiX0\r\n", 400),
        (CHUNKED + b"fffffffffffffffff\r\n", 400),
        (START + b"Host: a\r\nA: b\r\n c\r\n\r\n", 400),
        (START + b" Host: a\r\n\r\n", 400),
        (START + b"Host : a\r\n\r\n", 400),
        (START + b"Host: a\r\nA(: b\r\n\r\n", 400),
        (START + b"Host: a\r\n: b\r\n\r\n", 400),
        (START + b"Host: a\r\nA: b\x00c\r\n\r\n", 400),
        (START + b"Host: a\r\nA: b\rc\r\n\r\n", 400),
        (START + b"Host: a\nA: b\r\n\r\n", 400),
        (START + b"Host: a\r\nHost: a\r\n\r\n", 400),
        (START + b"Accept: a\r\n\r\n", 400),
        (START + b"Host: a\r\nExpect: the unexpected\r\nContent-Length: 1\r\n\r\n", 417),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/3.7\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"NON@SENSE / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET path HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET ftp://h/p HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http:///p HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLOSE_SILENTLY),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", CLOSE_SILENTLY),
        (b"\x00\xff\x80\x01", CLOSE_SILENTLY),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes, status: int) -> None:
    """Nothing of an ambiguous or broken request is handed over."""
    reader = read(data + START + b"Host: smuggled\r\n\r\n")

    assert reader.refusal == status
    assert reader.ready == []


def test_requests_before_a_broken_one_are_kept() -> None:
    """A refusal is due only after what came before it."""
    reader = read(START + b"Host: a\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n")

    assert len(reader.ready) == 1
    assert reader.refusal == 400


def test_an_upgrade_is_ignored_and_what_follows_is_read() -> None:
    """Asking for another protocol changes nothing, in the request or in the next."""
    upgrade = START + b"Host: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    reader = read(upgrade + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")

    assert [arrived.request.path for arrived in reader.ready] == ["/", "/next"]


def test_an_upgrade_with_a_body_is_refused() -> None:
    """The parser skips such a body, so that its bytes could pose as a request."""
    upgrade = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n"

    body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    framings = (
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        b"Transfer-Encoding: chunked\r\n\r\n" + body,
    )

    readers = [read(upgrade + framing) for framing in framings]

    assert [(reader.refusal, reader.ready) for reader in readers] == [(400, [])] * 2


def test_nothing_is_read_behind_a_request_that_closes() -> None:
    """Bytes after `Connection: close` are no request and no mistake."""
    reader = read((START + b"Host: a\r\nConnection: close\r\n\r\n") * 2)

    [arrived] = reader.ready
    assert not arrived.keep_alive
    assert reader.refusal == 0


@pytest.mark.parametrize("framing", [b"Content-Length: 1001\r\n\r\n", b""])
def test_a_body_over_the_limit_is_handed_over_without_it(framing: bytes) -> None:
    """The request is marked as too large and has no body, and reading ends."""
    start = b"POST / HTTP/1.1\r\nHost: a\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n%b\r\n" % (b"x" * 500) * 3

    reader = read(start + (framing or chunks))

    [arrived] = reader.ready
    assert arrived.request.too_large
    assert arrived.request.body == b""
    assert arrived.lingers
    assert not arrived.keep_alive


def test_a_body_at_the_limit_is_whole() -> None:
    """The limit itself is allowed."""
    body = b"x" * 1000

    request = only_request(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + body)

    assert request.body == body
    assert not request.too_large


@pytest.mark.parametrize(
    "head",
    [
        START + b"Host: a\r\nA: " + b"x" * 2000,
        START + b"Host: a\r\nA: " + b"x" * 2000 + b"\r\n\r\n",
        b"GET /" + b"x" * 2000,
        START + b"A" * 2000,
    ],
)
@pytest.mark.parametrize("step", [100, 5000])
def test_a_head_over_the_limit_is_refused_finished_or_not(head: bytes, step: int) -> None:
    """A long line, name or target gets 431, also when it comes in small pieces without an end."""
    reader = new_reader(max_header_bytes=1000)

    for start in range(0, len(head), step):
        reader.feed(head[start : start + step])

    assert reader.refusal == 431
    assert reader.ready == []


def test_too_many_headers_are_refused() -> None:
    """Many short headers cost more than their bytes say."""
    lines = b"".join(b"a%d: b\r\n" % number for number in range(101))

    assert read(START + b"Host: a\r\n" + lines).refusal == 431
    assert read(START + b"Host: a\r\n" + lines + b"\r\n").refusal == 431
    assert read(START + b"Host: a\r\n" + b"a: b\r\n" * 101 + b"\r\n").refusal == 431


def test_endless_trailers_and_chunk_extensions_are_refused() -> None:
    """Trailers and chunk extensions are bounded as the head is."""
    for endless in (b"0\r\nTrailer: ", b"1;"):
        reader = read(CHUNKED + endless, max_header_bytes=1000)
        for _ in range(20):
            reader.feed(b"x" * 100)
        assert reader.refusal == 400


def test_continue_is_wanted_only_while_the_body_is_missing() -> None:
    """A client that has sent its body waits for nothing."""
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    reader = read(head)

    wanted = reader.wants_continue
    reader.feed(b"hi")

    assert wanted
    assert not reader.wants_continue
    assert reader.ready[0].request.body == b"hi"


def test_blank_lines_between_requests_are_no_request() -> None:
    """They end like a head and have its shape, but nothing is asked in them."""
    small = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    reader = new_reader()

    for piece in (small, small, b"\r\n\r\n", b"\r\n\r\n", small):
        reader.feed(piece)

    assert len(reader.ready) == 3


REQUESTS = st.sampled_from(
    [
        b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nA:\r\nB: 1\r\nA: 2\r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n\r\n\r\n\r",
        b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        CHUNKED + b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n",
        CHUNKED + b"0\r\n\r\n",
        b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET /up HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"\r\n\r\n",
        b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"POST /big HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n" + b"y" * 100,
        b"GET /bad HTTP/1.1\r\n\r\n",
        b"GET /bad HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
    ]
)


@given(st.lists(REQUESTS, max_size=8), st.data())
def test_splitting_a_stream_of_requests_changes_nothing(
    requests: list[bytes], data: st.DataObject
) -> None:
    """However the bytes arrive, the same requests come out, and the same refusal."""
    stream = b"".join(requests)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    whole, parts, by_request = read(stream), new_reader(), new_reader()

    for piece in pieces:
        parts.feed(piece)
    for request in requests:
        by_request.feed(request)

    assert outcome(parts) == outcome(whole)
    assert outcome(by_request) == outcome(whole)


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_noise_never_raises(pieces: list[bytes]) -> None:
    """Any bytes are requests, an unfinished one, or a refusal."""
    reader = new_reader()

    for piece in pieces:
        reader.feed(piece)

    assert reader.refusal or reader.phase >= BETWEEN


def test_unknown_method_is_read_as_any_other() -> None:
    """A method that nobody knows is a request all the same; refusing it is routing's business."""
    request = only_request(b"BREW /pot HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")

    assert (request.method, request.path, request.body) == ("BREW", "/pot", b"hi")


def test_a_method_belongs_to_one_request() -> None:
    """Unknown methods are parsed at any position and with any split of the bytes."""
    brew = b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n"
    post = b"POST /tea HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nhot"
    data = brew + START + b"Host: a\r\n\r\n" + brew + post + brew

    for cut in range(len(data)):
        reader = new_reader()
        reader.feed(data[:cut])
        reader.feed(data[cut:])

        methods = [arrived.request.method for arrived in reader.ready]
        assert methods == ["BREW", "GET", "BREW", "POST", "BREW"], cut
        assert reader.refusal == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01", CLOSE_SILENTLY),
        (b"BR\x00W / HTTP/1.1\r\n\r\n", 400),
        (b"A" * 40 + b" / HTTP/1.1\r\n\r\n", 400),
        (b"brew / HTTP/1.1\r\n\r\n", 400),
        (b"GET_DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\r\nSM\r\n\r\n", CLOSE_SILENTLY),
        (CHUNKED + b"1\r\na\r\n0\r\nX: y\r\n\r\n\x16\x03", CLOSE_SILENTLY),
        (CHUNKED + b"3\r\na\nb\r\n0\r\n\r\nGE / HTTP/9.9\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_alike_however_it_is_cut(data: bytes, status: int) -> None:
    """The response to a stranger does not depend on the sizes of packets."""
    for cut in range(len(data)):
        reader = new_reader()
        reader.feed(data[:cut])
        reader.feed(data[cut:])

        assert reader.refusal == status, cut


def test_what_is_kept_beside_headers_is_shared_by_the_same_headers_alone() -> None:
    """Another header, another connection, or the same in between: nothing is handed on."""
    one = b"GET /%d HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\n\r\n"
    other = one.replace(b"Bearer a", b"Bearer b")
    reader, elsewhere = new_reader(), new_reader()
    for number, head in enumerate((one, one, one, one, other, one, one)):
        reader.feed(head % number)
        elsewhere.feed(head % number)

    memos = [arrived.request.memo for arrived in reader.ready]
    memos_elsewhere = [arrived.request.memo for arrived in elsewhere.ready]

    assert memos[2] is memos[3]
    assert memos[4] is not memos[3]
    assert len({id(memo) for memo in memos + memos_elsewhere}) == 2 * len({id(m) for m in memos})


def test_what_is_kept_beside_headers_goes_with_them() -> None:
    """A connection that streams for hours lets go of the head, and of what is beside it."""
    head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    reader = new_reader()
    for _ in range(3):
        reader.feed(head)
    kept = reader.ready[-1].request.memo

    reader.forget()
    for _ in range(3):
        reader.feed(head)

    assert all(arrived.request.memo is not kept for arrived in reader.ready[3:])


@pytest.mark.parametrize("line", [b"4\t", b"4 ", b"0" * 40 + b"4", b"4;a=4\n", b"4\n", b"4;\x00"])
def test_a_size_is_read_as_the_parser_reads_it_or_the_request_is_refused(line: bytes) -> None:
    """The bytes behind the body are another request, wherever the size is cut."""
    rest = b"\r\n\n\n\n\n\r\n0\r\n\r\n"
    for cut in range(len(line)):
        reader = read(CHUNKED + line[:cut])
        reader.feed(line[cut:] + rest)

        assert reader.refusal == 400 or [one.request.body for one in reader.ready] == [b"\n\n\n\n"]


class OtherEnd:
    """A parser that finds another end of a body than its length says."""

    def __init__(self, reader: RequestReader, finds: bytes | None) -> None:
        self._reader = reader
        self._finds = finds  # None: no end yet

    def feed_data(self, _data: bytes) -> None:
        if self._finds is None:
            return
        try:
            self._reader.on_body(self._finds)
            self._reader.on_message_complete()
        except Exception as stop:
            raise httptools.HttpParserCallbackError from stop


@pytest.mark.parametrize("finds", [None, b"hell", b"hello!"])
def test_a_body_that_ends_elsewhere_for_the_parser_is_refused(finds: bytes | None) -> None:
    """Two readings of one length are how requests are smuggled; nobody may rely on either."""
    reader = new_reader()
    reader.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    parser: Any = OtherEnd(reader, finds)
    reader._parser = parser

    reader.feed(b"hello")

    assert reader.ready == []
    assert reader.refusal == 400
