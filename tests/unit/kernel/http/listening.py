"""A listener on loopback and a client that speaks bytes, for the tests of the server's sockets."""

import asyncio
import gc
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from orchid.kernel.http.earlier_writes import Refresh
from orchid.kernel.http.listener import ConnectionLimits, Listener
from orchid.kernel.http.messages import Handler, HttpRequest, Recognize, Response
from orchid.kernel.http.tls.files import TlsFiles

T = TypeVar("T")
PATIENCE = 10.0  # seconds until a test that hangs fails; no test waits for it to pass
TEXT = b"Content-Type: text/plain\r\n"

TIMED_OUT = Response(504, TEXT, b"too late")


def failure(request: HttpRequest, error: BaseException) -> Response:
    return Response(500, TEXT, type(error).__name__.encode())


async def echo(request: HttpRequest) -> Response:
    """Answer at once with what was asked."""
    return Response(200, TEXT, f"{request.method} {request.target} ".encode() + request.body)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection; every wait has an end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def get(self, target: str, *lines: str, method: str = "GET") -> None:
        head = [f"{method} {target} HTTP/1.1", "Host: test", *lines, "", ""]
        self.send("\r\n".join(head).encode("latin-1"))

    async def head(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return Answer(int(status.split()[1]), headers, b"")

    async def answer(self) -> Answer:
        answer = await self.head()
        answer.body = await self.exactly(int(answer.headers.get("content-length", "0")))
        return answer

    async def exactly(self, count: int) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        """Read until the server closes; a reset counts as closed."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def stop_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    def keep_little(self) -> None:
        """Have the kernel hold little of what comes, as a slow line does."""
        connected = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)

    def reset(self) -> None:
        """Leave without a word: the server sees a reset, not the end of a stream."""
        leave_at_once = struct.pack("ii", 1, 0)
        connected = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, leave_at_once)
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.writer.wait_closed()
        except OSError:
            pass


@dataclass
class Running:
    listener: Listener
    clients: list[Client]

    async def connect(self, tls: ssl.SSLContext | None = None) -> Client:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                self.listener.port,
                ssl=tls,
                server_hostname="localhost" if tls else None,
            )
        client = Client(reader, writer)
        self.clients.append(client)
        return client


@asynccontextmanager
async def serving(
    handler: Handler = echo,
    *,
    limits: ConnectionLimits | None = None,
    tls: TlsFiles | None = None,
    recognize: Recognize | None = None,
    refresh: Refresh | None = None,
    after_rush: Callable[[], None] = lambda: None,
) -> AsyncIterator[Running]:
    listener = Listener(
        handler,
        timeout_response=TIMED_OUT,
        failure=failure,
        monotonic=time.monotonic,
        limits=limits,
        tls=tls,
        recognize=recognize,
        refresh=refresh,
        after_rush=after_rush,
    )
    async with started(listener) as running:
        yield running


@asynccontextmanager
async def started(listener: Listener) -> AsyncIterator[Running]:
    """A listener on loopback; at the end its clients leave, then it stops."""
    await listener.start("127.0.0.1", 0)
    running = Running(listener, [])
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        await listener.drain(grace=0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something has happened."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition sets no event
            await asyncio.sleep(0.001)


@contextmanager
def without_collections() -> Iterator[None]:
    """Nothing but the last reference frees an object; older garbage is collected before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living(sort: type[T]) -> list[T]:
    """All objects of a class that are in memory now."""
    return [each for each in gc.get_objects() if isinstance(each, sort)]
