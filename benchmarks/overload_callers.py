"""The callers of `make overload`, each class in a process of its own: those who measure, the rest.

Start with `CALLERS`. A caller is a coroutine function that gets its `Part`, calls `ready` when it
is set up, runs until it is stopped, and returns its results. Callers that measure send one request
at a time and record its duration; the others only send load.
"""

import asyncio
import os
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import uvloop

REVIEW = "/apis/authorization.orch.io/v1/selfsubjectaccessreviews"
BODY = (
    b'{"apiVersion":"authorization.orch.io/v1","kind":"SelfSubjectAccessReview","spec":'
    b'{"resourceAttributes":{"verb":"list","resource":"serviceaccounts"}}}'
)
PATIENCE = 20.0  # seconds after which a request counts as unanswered
STEP = 0.05  # seconds between two batches of one connection that pushes
HALF_BODY = 500_000
OPENING_AT_ONCE = 40


@dataclass(frozen=True)
class Part:
    """Task of one process."""

    port: int
    core: int
    count: int = 1  # connections, or how many a second
    tokens: tuple[str, ...] = ()
    path: str = ""
    rate: float = 0.0  # requests a second, all connections together
    nice: int = 0


@dataclass
class Seen:
    """Responses to one class of callers."""

    milliseconds: list[tuple[float, float]] = field(default_factory=list)  # when, how long
    statuses: dict[int, int] = field(default_factory=dict)  # 0: no answer

    def note(self, status: int, started: float | None = None) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if started is not None:
            now = time.monotonic()
            self.milliseconds.append((now, (now - started) * 1000))


Ready = Callable[[], None]
Caller = Callable[[Part, Seen, Ready], Awaitable[None]]


def run(pipe: Connection, name: str, part: Part) -> None:
    """Main function of one process: set up, report ready, run until stopped, send the results."""
    os.sched_setaffinity(0, {part.core})
    os.nice(part.nice)
    uvloop.run(_run(pipe, CALLERS[name], part))


async def _run(pipe: Connection, caller: Caller, part: Part) -> None:
    loop = asyncio.get_running_loop()
    seen, stop = Seen(), asyncio.Event()
    loop.add_reader(pipe.fileno(), stop.set)
    calling = asyncio.ensure_future(caller(part, seen, lambda: pipe.send(True)))
    await asyncio.wait((calling, asyncio.ensure_future(stop.wait())), return_when="FIRST_COMPLETED")
    loop.remove_reader(pipe.fileno())
    os.set_blocking(pipe.fileno(), True)
    if calling.done():
        calling.result()
    calling.cancel()
    pipe.send(seen)


def tls() -> ssl.SSLContext:
    # The server is ours and on loopback, and its certificate is as new as itself.
    return ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback


def request(token: str, method: str, path: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: overload"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def somewhere(network: int, number: int) -> tuple[str, int]:
    """One of many loopback addresses, because limits hold per address."""
    return f"127.{network}.{number // 200}.{number % 200 + 1}", 0


# --- those who measure ----------------------------------------------------------------------------


async def ask_steadily(part: Part, seen: Seen, ready: Ready) -> None:
    """Send one request after the other, each token on its own connection, at a low rate."""
    tokens = part.tokens or ("",)
    pause = len(tokens) / part.rate
    question = [
        request(token, "POST", REVIEW, BODY) if token else request("", "GET", "/livez")
        for token in tokens
    ]
    ready()
    await asyncio.gather(
        *(_ask(part, seen, sent, pause, number) for number, sent in enumerate(question))
    )


async def _ask(part: Part, seen: Seen, sent: bytes, pause: float, number: int) -> None:
    await asyncio.sleep(random.random() * pause)  # noqa: S311 -- spread, not secrecy
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while True:
        started = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                if streams is None:
                    streams = await asyncio.open_connection(
                        "127.0.0.1", part.port, ssl=tls(), local_addr=somewhere(1, number)
                    )
                seen.note(await _answer(*streams, sent), started)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            seen.note(0, started)
            streams = None
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - started)))


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> int:
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or b"0"))
    return int(head[9:12])


# --- those who push -------------------------------------------------------------------------------


class _Pushing(asyncio.Protocol):
    """Counts answers by their status lines; asks for more than anybody could answer."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._tail = b""
        self.blocked = self.lost = False

    def data_received(self, data: bytes) -> None:
        joined = self._tail + data
        for status in (200, 201, 401, 403, 429):
            mark = b"HTTP/1.1 %d" % status
            count = joined.count(mark) - self._tail.count(mark)
            if count:
                self._seen.statuses[status] = self._seen.statuses.get(status, 0) + count
        self._tail = joined[-11:]

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


async def push(part: Part, seen: Seen, ready: Ready) -> None:
    """Send pipelined requests at a rate, whatever comes back, as far as the socket takes them."""
    ready()
    await asyncio.gather(*(_push(part, seen, number) for number in range(part.count)))


async def _push(part: Part, seen: Seen, number: int) -> None:
    loop = asyncio.get_running_loop()
    one = request(part.tokens[number % len(part.tokens)], "POST", REVIEW, BODY)
    each = part.rate / part.count * STEP  # requests in one step
    while True:
        try:
            transport, pushing = await loop.create_connection(
                lambda: _Pushing(seen), "127.0.0.1", part.port, ssl=tls(),
                local_addr=somewhere(2, number),
            )  # fmt: skip
        except OSError:
            seen.note(0)
            await asyncio.sleep(STEP)
            continue
        owed = 0.0
        while not pushing.lost:
            owed = min(owed + each, 10 * each + 1)
            if not pushing.blocked and owed >= 1:
                transport.write(one * int(owed))
                seen.statuses[4] = seen.statuses.get(4, 0) + int(owed)  # sent
                owed -= int(owed)
            await asyncio.sleep(STEP)
        seen.note(0)


async def saturate(part: Part, seen: Seen, ready: Ready) -> None:
    """Find the sustainable rate: each connection sends its next request after each response."""
    ready()

    async def one(number: int) -> None:
        token = part.tokens[number % len(part.tokens)]
        sent = request(token, "POST", REVIEW, BODY)
        streams = await asyncio.open_connection("127.0.0.1", part.port, ssl=tls())
        while True:
            started = time.monotonic()
            seen.note(await _answer(*streams, sent), started)

    await asyncio.gather(*(one(number) for number in range(part.count)))


# --- those who hold -------------------------------------------------------------------------------


class _Holding(asyncio.Protocol):
    """Keeps a connection open and counts what comes."""

    def __init__(self, seen: Seen, sent: bytes = b"") -> None:
        self._seen = seen
        self._sent = sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._seen.note(1)  # open
        if self._sent:
            self.transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        events = data.count(b'"type":"')
        if events:
            self._seen.statuses[2] = self._seen.statuses.get(2, 0) + events

    def connection_lost(self, error: Exception | None) -> None:
        self._seen.note(3)  # ended by the server


async def hold(part: Part, seen: Seen, ready: Ready) -> None:
    """Open many connections and keep them: idle after a question, or watching.

    Every tenth watcher reads slowly.
    """
    loop = asyncio.get_running_loop()
    held: list[_Holding] = []

    async def open_(numbers: Iterator[int]) -> None:
        for number in numbers:
            token = part.tokens[number % len(part.tokens)] if part.tokens else ""
            sent = request(token, "GET", part.path or "/livez")
            address = somewhere(3 if part.path else 4, number)
            try:
                _, holding = await loop.create_connection(
                    partial(_Holding, seen, sent), "127.0.0.1", part.port, ssl=tls(),
                    local_addr=address,
                )  # fmt: skip
            except OSError:
                seen.note(0)
            else:
                held.append(holding)

    numbers = iter(range(part.count))
    await asyncio.gather(*(open_(numbers) for _ in range(OPENING_AT_ONCE)))
    ready()
    slow = held[::10] if part.path else []
    while True:  # for one second of every ten, the slow ones read
        for holding in slow:
            holding.transport.pause_reading()
        await asyncio.sleep(9)
        for holding in slow:
            if not holding.transport.is_closing():
                holding.transport.resume_reading()
        await asyncio.sleep(1)


async def half_shake_hands(part: Part, seen: Seen, ready: Ready) -> None:
    """Start many handshakes per second and finish none: cheap for the client only."""
    hello = _client_hello()
    ready()
    open_: list[socket.socket] = []
    while True:
        started = time.monotonic()
        for number in range(max(1, part.count // 20)):
            one = socket.socket()
            one.setblocking(False)
            one.bind(somewhere(5, random.randrange(400)))  # noqa: S311 -- spread, not secrecy
            try:
                await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", part.port))
                one.send(hello if number % 2 else b"")
                seen.note(1)
            except OSError:
                seen.note(0)
            open_.append(one)
        for old in open_[: max(0, len(open_) - 2_000)]:
            old.close()
        open_ = open_[-2_000:]
        await asyncio.sleep(max(0.0, 0.05 - (time.monotonic() - started)))


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = tls().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs an answer")


async def half_send(part: Part, seen: Seen, ready: Ready) -> None:
    """Keep sending half of a body, with a wrong token or without one."""
    ready()

    async def one(number: int) -> None:
        token = "wrong" if number % 2 else ""
        head = request(token, "POST", REVIEW).removesuffix(b"\r\n")
        sent = head + b"Content-Length: 3000000\r\n\r\n" + b" " * HALF_BODY
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", part.port, ssl=tls(), local_addr=somewhere(6, number)
                    )
                    writer.write(sent)
                    answer = await reader.read(12)
                    seen.note(int(answer[9:12] or b"0"))
                    writer.transport.abort()
            except (OSError, TimeoutError, ValueError):
                seen.note(0)
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one(number) for number in range(part.count)))


CALLERS: dict[str, Any] = {
    "saturate": saturate,
    "health": ask_steadily,
    "others": ask_steadily,
    "greedy": push,
    "crowd": push,
    "watchers": hold,
    "idle": hold,
    "handshakes": half_shake_hands,
    "half bodies": half_send,
}
