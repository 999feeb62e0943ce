"""Requests that repeat the one before them may be answered without a handler (`AtOnce`)."""

import pytest

from orchid.server.sockets.messages import HttpRequest, Response
from tests.unit.server.listening import serving
from tests.unit.server.readers import new_reader

PROBE = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"


def test_only_the_same_head_without_a_body_repeats() -> None:
    """Another path, other headers and whatever has a body are requests of their own."""
    sent = {
        PROBE: True,
        PROBE.replace(b"livez", b"other"): False,
        PROBE.replace(b"Host", b"host"): False,
        PROBE.replace(b"GET", b"PUT"): False,
    }
    found = {}
    for data in sent:
        reader = new_reader()
        for piece in (PROBE, PROBE, data):
            reader.feed(piece)
        found[data] = reader.ready[-1].repeats

    assert found == sent


def test_the_first_requests_repeat_nothing() -> None:
    """A head is remembered once it has come twice."""
    reader = new_reader()
    for _ in range(4):
        reader.feed(PROBE)

    assert [arrived.repeats for arrived in reader.ready] == [False, False, True, True]


@pytest.mark.parametrize(("body", "repeats"), [(b"{}", False), (b"", True)])
def test_a_body_makes_a_request_of_its_own(body: bytes, repeats: bool) -> None:
    """Also if it is the same body as before."""
    reader = new_reader()
    for _ in range(3):
        reader.feed(POST % (len(body), body))

    assert reader.ready[-1].repeats is repeats


async def test_what_is_answered_at_once_reaches_no_handler() -> None:
    """The first two requests do; what is not answered at once does as well."""
    handled, asked = [], []

    async def handler(request: HttpRequest) -> Response:
        handled.append(request.target)
        return Response(200, b"", b"by the handler")

    def at_once(request: HttpRequest) -> Response | None:
        asked.append(request.target)
        return Response(200, b"", b"at once") if len(asked) != 2 else None

    async with serving(handler, at_once=at_once) as running:
        client = await running.connect()
        bodies = []
        for path in ("/a", "/a", "/a", "/a", "/a", "/b", "/a"):
            client.get(path)
            bodies.append((await client.answer()).body)

    by_handler, now = b"by the handler", b"at once"
    assert bodies == [by_handler, by_handler, now, by_handler, now, by_handler, now]
    assert handled == ["/a", "/a", "/a", "/b"]
    assert asked == ["/a"] * 4
    assert running.listener.requests == 7


async def test_repeated_requests_in_one_piece_are_answered_in_order() -> None:
    """Answers at once do not overtake those that were waited for."""

    def at_once(_request: HttpRequest) -> Response:
        return Response(200, b"", b"at once")

    async with serving(at_once=at_once) as running:
        client = await running.connect()
        for _ in range(2):
            client.get("/a")
            await client.answer()
        client.get("/a")
        client.get("/b")
        client.get("/a")

        bodies = [(await client.answer()).body for _ in range(3)]

    assert bodies[1] == b"GET /b "
    assert {bodies[0], bodies[2]} <= {b"at once", b"GET /a "}
