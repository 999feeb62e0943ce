"""Requests and answers as bytes, and `Line`: one kept connection over TLS on an event loop."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from benchmarks.setting import HEADERS

Done = Callable[[int, bytes], None]
LOST = 0  # the status of a question whose connection broke


class Line(asyncio.Protocol):
    """One connection; one question at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._held = b""
        self._done: Done | None = None

    @classmethod
    async def open(cls, port: int) -> "Line":
        # The server is ours and on loopback, and its certificate is as new as itself.
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(cls, "127.0.0.1", port, ssl=tls)
        return line

    def ask(self, sent: bytes, done: Done) -> None:
        self._done = done
        if self._transport is None:
            self._settle(LOST, b"")
        else:
            self._transport.write(sent)

    async def answer(self, sent: bytes) -> tuple[int, bytes]:
        """Ask, and wait for the status and the body."""
        waiting: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def settle(status: int, body: bytes) -> None:
            if not waiting.done():  # nobody waits any more for what was cancelled
                waiting.set_result((status, body))

        self.ask(sent, settle)
        return await waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._settle(LOST, b"")

    def data_received(self, data: bytes) -> None:
        self._held += data
        answer = whole_answer(self._held)
        if answer is not None:
            self._held = b""
            self._settle(*answer)

    def _settle(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


def whole_answer(held: bytes) -> tuple[int, bytes] | None:
    """Status and body of an answer, once all of it has come."""
    end = held.find(b"\r\n\r\n")
    if end < 0:
        return None
    at = held.find(b"Content-Length: ", 0, end)
    length = int(held[at + 16 : held.index(b"\r\n", at)]) if at >= 0 else 0
    if len(held) < end + 4 + length:
        return None
    return int(held[9:12]), held[end + 4 :]


def request(method: str, path: str, body: str = "") -> bytes:
    """A request of the administrator, as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", body]).encode()
