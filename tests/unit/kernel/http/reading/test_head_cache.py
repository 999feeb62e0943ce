"""Cached heads of a connection: that they save work, stay few, and change no meaning."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.http.reading.head_cache import HeadCache
from orchid.kernel.http.reading.reader import BETWEEN, BODY, RequestReader
from tests.unit.kernel.http.readers import START, new_reader, only_request, outcome


def test_a_repeated_head_gives_a_request_of_its_own() -> None:
    """Its body is its own; the headers are those of the first."""
    data = b"PUT /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nA: 1\r\nA: 2\r\n\r\n"
    reader = new_reader()
    for body in (b"one", b"two", b"six", b"end"):
        reader.feed(data + body)

    assert [arrived.request.body for arrived in reader.ready] == [b"one", b"two", b"six", b"end"]
    assert reader.ready[-1].request.headers == only_request(data + b"end").headers
    assert reader.ready[-1].request.all("a") == ["1", "2"]


POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nA: 1\r\n\r\n"


def warm_reader(max_body_bytes: int = 1000) -> RequestReader:
    """One that knows the head of POST."""
    reader = new_reader(max_body_bytes=max_body_bytes)
    for body in (b"first", b"another"):
        reader.feed(POST % len(body) + body)
    assert reader._heads.heads
    reader.ready.clear()
    return reader


def test_a_cached_head_is_found_with_a_body_of_another_length() -> None:
    """Each head has its own length, and shares the cached results of the others."""
    reader = warm_reader()

    for body in (b"", b"hi", b"x" * 999):
        reader.feed(POST % len(body) + body)

    lengths = [arrived.request.headers["content-length"] for arrived in reader.ready]
    memos = {id(arrived.request.memo) for arrived in reader.ready}
    assert lengths == ["0", "2", "999"]
    assert [len(arrived.request.body) for arrived in reader.ready] == [0, 2, 999]
    assert len(memos) == 1


def test_a_cached_head_waits_for_a_body_that_comes_later() -> None:
    """Meanwhile its sender can be asked for, and what was kept of it is counted."""
    reader = warm_reader()
    head = POST % 6

    reader.feed(head)
    assert reader.phase == BODY
    assert reader.arriving is not None
    assert reader.arriving.path == "/p"
    reader.feed(b"abc")
    assert reader.unread_bytes == len(head) + 3
    assert reader.ready == []
    reader.feed(b"def" + POST % 2)
    reader.feed(b"hi")

    assert [arrived.request.body for arrived in reader.ready] == [b"abcdef", b"hi"]
    assert reader.phase == BETWEEN


def test_a_client_that_always_sends_heads_alone_is_cached_too() -> None:
    """A head that arrives without its body is cached like one that arrives with it."""
    reader = new_reader()

    for body in (b"one", b"four"):
        reader.feed(POST % len(body))
        reader.feed(body)

    assert reader._heads.heads
    assert [arrived.request.body for arrived in reader.ready] == [b"one", b"four"]


def test_headers_that_differ_in_each_request_are_not_searched_for_repetitions() -> None:
    """A connection of a proxy with request ids gives up after a while, for good."""
    same, differs = (
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nId: %d\r\n\r\n",
    )
    reader = new_reader()
    for number in range(HeadCache.GIVE_UP):
        reader.feed(differs % number)
    for _ in range(3):
        reader.feed(same)

    assert not reader._heads.heads
    assert len(reader.ready) == HeadCache.GIVE_UP + 3


def test_a_connection_whose_headers_are_found_never_gives_up() -> None:
    """A token that changes each hour is a new head each hour."""
    same, differs = (
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nId: %d\r\n\r\n",
    )
    reader = new_reader()
    for number in range(2 * HeadCache.GIVE_UP):
        reader.feed(same)
        reader.feed(same)
        reader.feed(differs % number)
    reader.feed(differs % 9_999)
    reader.feed(differs % 9_999)

    assert len(reader._heads.heads) == 2


def test_a_body_behind_a_cached_head_can_be_given_up() -> None:
    """A caller is refused before the body is read."""
    reader = warm_reader()
    reader.feed(POST % 6)

    reader.give_up_body()
    reader.feed(b"abcdef")

    [arrived] = reader.ready
    assert arrived.request.too_large
    assert not arrived.keep_alive


def test_a_cached_head_with_a_blank_line_before_it_is_no_other_head() -> None:
    """A request line of an earlier head is no header behind another line now."""
    reader = new_reader()
    for _ in range(3):
        reader.feed(b"\r\n" + START + b"Host: h\r\n\r\n")

    reader.feed(b"PUT /x HTTP/1.1\r\n" + START + b"Host: h\r\n\r\n")

    assert reader.refusal == 400
    assert {arrived.request.method for arrived in reader.ready} == {"GET"}


LENGTHS = st.sampled_from([b"0", b"2", b"07", b"1000", b"1001", b"9" * 9, b"9" * 10, b"-1", b"+2"])


@given(
    st.one_of(LENGTHS, st.binary(max_size=4)),
    st.sampled_from([b"", b"hi", b"x" * 7, b"x" * 1000, b"hiGET / HTTP/1.1\r\nHost: h\r\n\r\n"]),
    st.lists(st.integers(0, 1100), max_size=4),
)
def test_a_cached_head_changes_nothing_about_another_length(
    length: bytes, body: bytes, cuts: list[int]
) -> None:
    """A length, valid or not, never depends on earlier requests."""
    sent = (POST % 1).replace(b" 1\r\n", b" " + length + b"\r\n", 1) + body
    edges = sorted({0, *(min(cut, len(sent)) for cut in cuts), len(sent)})
    warm, fresh = warm_reader(), new_reader()

    for start, end in pairwise(edges):
        warm.feed(sent[start:end])
    fresh.feed(sent)

    assert outcome(warm) == outcome(fresh)


def test_bytes_that_look_like_a_cached_head_inside_a_body_are_body() -> None:
    """A head is recognised between requests only."""
    small = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    outer = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(small)
    reader = new_reader()

    for piece in (small, small, outer, small, small):
        reader.feed(piece)

    methods = [(arrived.request.method, arrived.request.body) for arrived in reader.ready]
    assert methods == [("GET", b""), ("GET", b""), ("PUT", small), ("GET", b"")]


def test_a_cached_head_with_a_request_behind_it_gives_both() -> None:
    """A piece that holds more than one request is read by the parser, in order."""
    known = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
    reader = new_reader()

    for piece in (known, known, known + b"PUT /b HTTP/1.1\r\nHost: h\r\n\r\n"):
        reader.feed(piece)

    seen = [(arrived.request.method, arrived.request.path) for arrived in reader.ready]
    assert seen == [("GET", "/a")] * 3 + [("PUT", "/b")]


LINES = st.one_of(
    st.sampled_from(
        [
            b"GET / HTTP/1.1",
            b"DELETE /a/b%20c?d=e&f HTTP/1.1",
            b"PUT //x?y?z HTTP/1.1",
            b"HEAD /a HTTP/1.1",
            b"GET /a#b HTTP/1.1",
            b"GET /a HTTP/1.0",
            b"GET /a HTTP/1.1 ",
            b"GET  /a HTTP/1.1",
            b"get /a HTTP/1.1",
            b"GET http://h/a HTTP/1.1",
            b"GET /\xc3\xa4 HTTP/1.1",
            b"OPTIONS * HTTP/1.1",
            b"CONNECT h:1 HTTP/1.1",
            b"PRI * HTTP/2.0",
            b"",
        ]
    ),
    st.binary(max_size=30),
    st.binary(max_size=12).map(lambda target: b"GET /" + target + b" HTTP/1.1"),
)


@given(LINES, st.sampled_from([b"", b"Content-Length: 2\r\n"]))
def test_cached_headers_change_nothing_about_another_line(line: bytes, extra: bytes) -> None:
    """A request line, valid or not, never depends on earlier requests."""
    headers = b"\r\nHost: h\r\n" + extra + b"\r\n" + (b"hi" if extra else b"")
    warm = new_reader()
    for path in (b"/first", b"/second", b"/third"):
        warm.feed(b"GET " + path + b" HTTP/1.1" + headers)
    assert warm._heads.heads
    warm.ready.clear()
    fresh = new_reader()

    for reader in (warm, fresh):
        reader.feed(line + headers)

    assert outcome(warm) == outcome(fresh)


def sent(token: bytes, path: bytes = b"/a") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\n\r\n" % (path, token)


def test_a_pipelined_request_is_read_with_its_own_headers() -> None:
    """Whatever came in the same piece: each head is compared by itself."""
    reader = new_reader()
    for piece in (sent(b"A") + sent(b"B"), sent(b"A") + sent(b"B"), sent(b"A"), sent(b"B")):
        reader.feed(piece)
    reader.feed(sent(b"B") + sent(b"A") + sent(b"C"))

    tokens = [arrived.request.headers["authorization"][-1] for arrived in reader.ready]
    assert tokens == ["A", "B", "A", "B", "A", "B", "B", "A", "C"]


def test_heads_that_come_in_turn_are_all_cached() -> None:
    """A client that reads and writes in turn has two heads or three."""
    reader = new_reader()
    for _ in range(4):
        for token in (b"A", b"B", b"C"):
            reader.feed(sent(token))

    memos = [id(arrived.request.memo) for arrived in reader.ready]
    assert memos[6:9] == memos[9:]
    assert len(set(memos[9:])) == 3


@pytest.mark.parametrize("padding", [0, 1500])
def test_cached_heads_stay_few_and_small(padding: int) -> None:
    """Idle connections keep little, whatever was sent on them."""
    reader = new_reader()
    for number in range(20):
        for _ in range(3):
            reader.feed(sent(b"%d" % number + b"x" * padding))

    heads = reader._heads.heads
    assert 0 < len(heads) <= HeadCache.MOST
    assert sum(cached.size for cached in heads) <= HeadCache.LARGEST
    assert len(reader._heads._seen) <= HeadCache.MOST


def test_a_head_that_comes_once_is_not_cached() -> None:
    reader = new_reader()
    for number in range(20):
        reader.feed(sent(b"%d" % number))

    assert not reader._heads.heads


@pytest.mark.parametrize("apart", [False, True])
def test_every_client_that_waits_to_send_its_body_is_asked_to_go_on(apart: bool) -> None:
    """However often it sends the same head; only while the body is missing."""
    head = b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    reader, wanted = new_reader(), []
    for _ in range(5):
        for piece in (head, b"hi") if apart else (head + b"hi",):
            reader.feed(piece)
            wanted.append(reader.wants_continue)

    assert wanted == ([True, False] if apart else [False]) * 5
    assert [arrived.request.body for arrived in reader.ready] == [b"hi"] * 5


@pytest.mark.parametrize(
    "length", [b"02", b"0000000002", b"2 ", b"2\t", b"+2", b"2,2", b"2;", b"0x2", b"", b"00", b"-0"]
)
def test_a_length_has_one_spelling(length: bytes) -> None:
    """Any other is refused, also behind a head that is cached, and the first time."""
    framed = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %b\r\nA: 1\r\n\r\nhi" % length
    for reader in (new_reader(), warm_reader()):
        reader.feed(framed)

        assert reader.refusal == 400
        assert reader.ready == []


@pytest.mark.parametrize(
    ("line", "rest", "length"),
    [
        (b"POST /p HTTP/1.1", b"Content-Length: 2\r\n\r\nhi", "2"),  # more than a head
        (b"POST /p HTTP/1.1", b"Content-Length: 2\r\n\r\n", "20"),  # read as another length
        (b"POST /p HTTP/1.1", b"X: y\r\n\r\n", "2"),
        (b"POST /p HTTP/1.1", b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n", "2"),
        (b"POST /p HTTP/1.0", b"Content-Length: 2\r\n\r\n", "2"),
    ],
)
def test_a_head_that_the_parser_read_in_another_way_is_not_cached(
    line: bytes, rest: bytes, length: str
) -> None:
    """The cache cuts bytes, and trusts its cut only if the parser has found the same."""
    request = only_request(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
    request.headers["content-length"] = length
    cache = HeadCache()

    for _ in range(3):
        cache.add(line + b"\r\nHost: h\r\n" + rest, request)

    assert cache.heads == []
