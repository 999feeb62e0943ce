"""Callers whom nobody knows yet: what they may take, and who has to go when it is too much."""

import asyncio
import socket
from pathlib import Path

import pytest

from orchid.kernel.http.listener import ConnectionLimits
from orchid.kernel.http.messages import CallerStatus, HttpRequest, Response
from tests.unit.kernel.http.listening import TEXT, Running, serving, until
from tests.unit.kernel.http.tls.test_tls_files import Authority

HALF = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n%b\r\n" + b"x" * 20_000
KNOWN = b"X-Who: known\r\n"


async def recognize(request: HttpRequest) -> CallerStatus:
    """Know callers by a header, some only after a while."""
    who = request.headers.get("x-who", "unknown")
    if who.startswith("slowly "):
        await asyncio.sleep(0)
    if who == "broken":
        raise RuntimeError
    found = CallerStatus(who.removeprefix("slowly "))
    request.peer.known = found is CallerStatus.KNOWN
    return found


async def handler(request: HttpRequest) -> Response:
    if request.too_large:
        return Response(401, TEXT, b"who are you?")
    found = await recognize(request) if request.headers.get("x-who") == "known" else None
    return Response(200, TEXT, f"{len(request.body)} {found}".encode())


def unread(running: Running) -> int:
    return running.listener._service.unread.total


@pytest.mark.parametrize("who", ["refused", "slowly refused"])
async def test_an_unauthenticated_client_is_refused_before_the_body_is_read(who: str) -> None:
    """The answer comes on the head alone, without an invitation to send the rest."""
    async with serving(handler, recognize=recognize) as running:
        client = await running.connect()
        client.get(
            "/", f"X-Who: {who}", "Content-Length: 900000", "Expect: 100-continue", method="POST"
        )
        answer = await client.answer()

        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert unread(running) == 0


@pytest.mark.parametrize("who", ["known", "slowly known", "unknown", "slowly unknown", "broken"])
async def test_bodies_of_everybody_else_are_read_as_before(who: str) -> None:
    """However long it takes to say who calls, and also when nobody can say it."""
    async with serving(handler, recognize=recognize) as running:
        client = await running.connect()
        for _ in range(2):
            head = ("Content-Length: 50000", "Expect: 100-continue")
            client.get("/", f"X-Who: {who}", *head, method="POST")
            assert (await client.head()).status == 100
            client.send(b"x" * 50_000)
            answer = await client.answer()
            assert answer.body.startswith(b"50000 ")

        assert unread(running) == 0


async def test_who_sends_a_body_is_asked_for_every_request() -> None:
    """A caller who was known says nothing about the next one on the same connection."""
    head = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"
    head += b"X-Who: %b\r\n\r\n"
    async with serving(handler, recognize=recognize) as running:
        client = await running.connect()
        for _ in range(4):
            client.send(head % b"known")
            assert (await client.head()).status == 100
            client.send(b"hello")
            assert (await client.answer()).status == 200
        client.send(head % b"refused")

        answer = await client.answer()

        assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_client_that_leaves_while_it_is_asked_who_it_is_leaves_nothing_behind() -> None:
    """Neither a task nor a count."""
    asked: list[HttpRequest] = []

    async def never(request: HttpRequest) -> CallerStatus:
        asked.append(request)
        await asyncio.get_running_loop().create_future()
        return CallerStatus.KNOWN

    async with serving(handler, recognize=never) as running:
        client = await running.connect()
        client.send(HALF % b"")
        await until(lambda: bool(asked))
        client.reset()
        await until(lambda: running.listener.connections == 0)

        await until(lambda: not running.listener._service.tasks)
        assert unread(running) == 0


async def test_unfinished_requests_of_unknown_callers_have_one_budget() -> None:
    """The oldest has to go, and those who are known do not count."""
    limits = ConnectionLimits(max_unread_bytes=70_000, max_unread_bytes_per_address=70_000)
    async with serving(handler, limits=limits, recognize=recognize) as running:
        known = await running.connect()
        known.send(HALF % KNOWN)
        await until(lambda: running.listener.connections == 1)
        crowd = []
        for number in range(4):
            client = await running.connect()
            client.send(HALF % b"" if number % 2 else (HALF % b"").replace(b"\r\n\r\n", b"\r\nA: "))
            crowd.append(client)
            expected = min(number + 1, 3)
            await until(lambda expected=expected: len(running.listener._service.unread) == expected)
        lost = await crowd[0].rest()
        known.send(b"x" * 30_000)

        assert lost == b""
        assert 60_000 < unread(running) <= 70_000
        assert (await known.answer()).body == b"50000 CallerStatus.KNOWN"
        assert running.listener.dropped == 1
        crowd[1].send(b"x" * 30_000)
        assert (await crowd[1].answer()).status == 200


async def test_the_oldest_unknown_connection_makes_room() -> None:
    """Somebody who has shown who he is stays, however long he is silent."""
    limits = ConnectionLimits(max_unknown=2, max_unknown_per_address=2)
    async with serving(handler, limits=limits) as running:
        known = await running.connect()
        known.get("/", "X-Who: known")
        await known.answer()
        crowd = [await running.connect() for _ in range(3)]
        first = await crowd[0].rest()
        for client in (known, *crowd[1:]):
            client.get("/")

        assert first == b""
        assert [(await client.answer()).status for client in (known, *crowd[1:])] == [200] * 3
        assert running.listener.dropped == 1


async def test_a_full_server_lets_newcomers_in_before_silent_unknowns() -> None:
    """Known callers keep their places; who said nothing gives his up."""
    limits = ConnectionLimits(max_connections=2, linger=0.05)
    async with serving(handler, limits=limits) as running:
        known = await running.connect()
        known.get("/", "X-Who: known")
        await known.answer()
        silent = await running.connect()
        await until(lambda: running.listener.connections == 2)
        newcomer = await running.connect()
        newcomer.get("/", "X-Who: known")

        assert (await newcomer.answer()).status == 200
        assert await silent.rest() == b""
        known.get("/", "X-Who: known")
        assert (await known.answer()).status == 200


async def test_silent_handshakes_have_a_budget(tmp_path: Path) -> None:
    """The oldest is closed; a client that completes its handshake is served."""
    authority = Authority(tmp_path, "ours")
    limits = ConnectionLimits(max_handshakes=3, max_handshakes_per_address=3)
    async with serving(handler, limits=limits, tls=authority.files()) as running:
        address = ("127.0.0.1", running.listener.port)
        silent = [socket.create_connection(address) for _ in range(5)]
        await until(lambda: running.listener.dropped == 2)
        client = await running.connect(authority.client())
        client.get("/")
        answer = await client.answer()
        for one in silent:
            one.close()

        assert answer.status == 200
        assert running.listener.dropped == 3
