"""A connection under random actions, against a simple model of what it owes.

The client sends requests in pieces of any size, and reads when it likes. Handlers answer at once or
are kept waiting. Whatever the order: every request gets exactly one answer, in order, and its own.
If the client resets the connection, no request is seen twice, and nothing of it stays.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Iterator, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchid.kernel.http.messages import HttpRequest, Response
from tests.unit.kernel.http.listening import PATIENCE, Client, Running, serving, until

SEND, WAIT, READ, RELEASE = "send", "wait", "read", "release"
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

REQUESTS = st.sampled_from(
    [
        "GET /now/{0} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /later/{0} HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /now/{0} HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS /later/{0} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /now/{0} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
        "POST /later/{0} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n1",
        "PUT /now/{0} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "4\r\nabcd\r\n0\r\nHost: b\r\n\r\n",
        "GET /later/{0} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ]
)
ACTIONS = st.lists(
    st.tuples(st.sampled_from([SEND, SEND, WAIT, READ, RELEASE]), st.integers(1, 90)), max_size=40
)


class Handler:
    """Answers with the target that was asked for, at once or when it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def __call__(self, request: HttpRequest) -> Response:
        self.asked.append(request.target)
        if request.target.startswith("/later"):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return Response(200, b"", request.target.encode())

    def release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def answers(received: bytes, methods: Sequence[str]) -> Iterator[str]:
    """The bodies of the answers that are complete; of HEAD, its length alone."""
    for method in methods:
        while received.startswith(b"HTTP/1.1 100"):
            received = received.partition(b"\r\n\r\n")[2]
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end:
            return
        assert head.startswith(b"HTTP/1.1 200 "), head
        found = LENGTH.search(head)
        assert found
        size = 0 if method == "HEAD" else int(found[1])
        yield rest[:size].decode() if size else f"{int(found[1])} bytes"
        received = rest[size:]
    assert not received, "nobody asked for this"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS, min_size=1, max_size=12), ACTIONS)
def test_every_request_gets_its_own_answer_in_order(
    forms: list[str], actions: list[tuple[str, int]]
) -> None:
    """With any split of the bytes, and any pending request."""
    asyncio.run(driven([form.format(number) for number, form in enumerate(forms)], actions))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS, min_size=1, max_size=12), ACTIONS)
def test_a_reset_at_any_point_leaves_nothing_behind(
    forms: list[str], actions: list[tuple[str, int]]
) -> None:
    """Within a request, while it is answered, with answers unread; the next client is served."""
    asyncio.run(broken_off([form.format(number) for number, form in enumerate(forms)], actions))


class Expected:
    """The requests of a client, and the responses that it must get."""

    def __init__(self, texts: list[str]) -> None:
        self.stream = "".join(texts).encode()
        self.methods, self.targets = zip(*(text.split()[:2] for text in texts), strict=True)
        self.bodies = [
            f"{len(target)} bytes" if method == "HEAD" else target
            for method, target in zip(self.methods, self.targets, strict=True)
        ]


async def driven(texts: list[str], actions: list[tuple[str, int]]) -> None:
    """Act, then send the rest and read until every answer is there."""
    wanted, handler = Expected(texts), Handler()
    async with serving(handler) as running:
        client = await running.connect()
        received, rest = await acted(client, handler, wanted.stream, actions)
        client.send(rest)
        async with asyncio.timeout(PATIENCE):
            while list(answers(received, wanted.methods)) != wanted.bodies:
                handler.release()
                received += await arrived(client)
    assert handler.asked == list(wanted.targets)


async def broken_off(texts: list[str], actions: list[tuple[str, int]]) -> None:
    """Act, then reset the connection, and look for what is left of it."""
    wanted, handler = Expected(texts), Handler()
    async with serving(handler) as running:
        client = await running.connect()
        received, _ = await acted(client, handler, wanted.stream, actions)
        reset(client)
        await until(lambda: is_forgotten(running, handler))
        asked = list(handler.asked)
        other = await running.connect()
        other.get("/now/other")
        assert (await other.answer()).body == b"/now/other"
    found = list(answers(received, wanted.methods))
    assert found == wanted.bodies[: len(found)]
    assert asked == list(wanted.targets[: len(asked)])


async def acted(
    client: Client, handler: Handler, stream: bytes, actions: list[tuple[str, int]]
) -> tuple[bytes, bytes]:
    """The data that the client has received by then, and the data that it has still to send."""
    received = b""
    for action, size in actions:
        if action == SEND:
            client.send(stream[:size])
            stream = stream[size:]
        elif action == RELEASE:
            handler.release()
        elif action == READ:
            received += await arrived(client)
        else:
            await asyncio.sleep(0)
    return received, stream


def reset(client: Client) -> None:
    """Close the socket so that the server gets a reset, whatever is under way."""
    at_once = struct.pack("ii", 1, 0)
    own = client.writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    client.writer.transport.abort()


def is_forgotten(running: Running, handler: Handler) -> bool:
    """Whether no connection, no task and no byte is held for anybody."""
    handler.release()
    service = running.listener._service
    budgets = (service.unknown, service.unread, service.unsent)
    return not service.connections and not service.tasks and not any(map(len, budgets))


async def arrived(client: Client) -> bytes:
    """The data that arrives within a moment."""
    try:
        async with asyncio.timeout(0.002):
            return await client.reader.read(1 << 16)
    except TimeoutError:
        return b""
