"""Requests that a front proxy and this server would cut in two ways: none is executed as another.

The attacker is a plain user behind a proxy that shares its connections to the server among all
callers, as HAProxy does. What the attacker hides in a body must never be read as a request, since
the next caller's headers, with the next caller's token, would complete it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from orchid.kernel.http.connection import Connection
from tests.api.world import ADMIN, Api
from tests.security.listening import bearer
from tests.system_packages import require_program
from tests.unit.kernel.http.listening import Client, Running, until

VICTIM = "/api/v1/namespaces/default/serviceaccounts/victim"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
# The next request on the connection becomes the value of a header, up to its first line end; the
# rest of it, with its token, belongs to this request.
HIDDEN = f"DELETE {VICTIM} HTTP/1.1\r\nX-Swallowed: ".encode()
LENGTHS = ("%d", "%010d", "%d ", "%d\t", "%020d", "0%d")
PROXY = """
global
  log stdout format raw local0
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend front
  bind fd@{front}
  default_backend back
backend back
  server orchid 127.0.0.1:{port} ssl verify none maxconn 1
"""


def asking(token: str, spelling: str, body: bytes) -> bytes:
    lines = [f"POST {WHO} HTTP/1.1", "Host: h", bearer(token), "Content-Type: application/json"]
    length = f"Content-Length: {spelling % len(body)}"
    return "\r\n".join([*lines, length, "Accept: */*", "", ""]).encode() + body


@asynccontextmanager
async def proxied(running: Running, directory: Path) -> AsyncIterator[int]:
    """HAProxy before a server; gives its port."""
    program = require_program("haproxy")
    with socket.create_server(("127.0.0.1", 0)) as front:
        settings = directory / "haproxy.cfg"
        settings.write_text(PROXY.format(front=front.fileno(), port=running.listener.port))
        process = await asyncio.create_subprocess_exec(
            program,
            "-db",
            "-f",
            str(settings),
            pass_fds=[front.fileno()],
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield front.getsockname()[1]
        finally:
            process.kill()
            await process.wait()


async def sent(running: Running, port: int, *requests: bytes) -> list[int]:
    """Send requests on one connection, and a body only when the server has read the head of it.

    Gives the statuses of the answers; the connection may end before the last.
    """
    statuses = list[int]()
    listener = running.listener
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        for request in requests:
            head, end, body = request.partition(b"\r\n\r\n")
            before = listener.requests + listener.refusals
            client.send(head + end)
            if body:
                await until(partial(has_read_a_head, running, before))
                client.send(body)
            statuses.append((await client.answer()).status)
    await client.close()
    return statuses


def has_read_a_head(running: Running, before: int) -> bool:
    """Whether a request has come after so many others, or waits for its body."""
    listener = running.listener
    connections = cast(set[Connection], listener._service.connections)
    arriving = any(connection._reader.arriving is not None for connection in connections)
    return arriving or listener.requests + listener.refusals > before


@pytest.mark.parametrize("times", [1, 3, 6])
@pytest.mark.parametrize("spelling", LENGTHS)
async def test_a_request_hidden_in_a_body_is_not_executed_behind_a_proxy(
    spelling: str, times: int, server: Api, open_server: Running, tmp_path: Path
) -> None:
    """However the length of that body is spelled, and however often the attacker sends it."""
    await server.account("victim")
    await server.account("robot")
    attack = asking(await server.token("robot"), spelling, HIDDEN)
    administrator = f"GET /version HTTP/1.1\r\nHost: h\r\n{bearer(ADMIN)}\r\n\r\n".encode()

    async with proxied(open_server, tmp_path) as port:
        attacked = await sent(open_server, port, *[attack] * times)
        statuses = await sent(open_server, port, administrator, administrator)

    assert attacked[0] == 400  # for its length, or for a body that is no JSON
    assert (await server.call("GET", VICTIM)).status == 200
    assert statuses == [200, 200]


@pytest.mark.parametrize("spelling", LENGTHS[1:])
async def test_another_spelling_of_a_length_is_refused(
    spelling: str, server: Api, open_server: Running, trust: ssl.SSLContext
) -> None:
    """At once, and also behind requests with the same headers."""
    for before in (0, 4):
        client = await open_server.connect(trust)
        for _ in range(before):
            client.send(asking(ADMIN, "%d", b"{}"))
            assert (await client.answer()).status == 201
        client.send(asking(ADMIN, spelling, b"{}"))
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
