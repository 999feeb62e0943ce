"""Connections that ask and call back, and a clock that rings on time: what open load is made of.

`Line` is one kept connection over TLS; `Pacer` calls a function at moments of its own, within some
fifty microseconds, which the event loop's own timers, of a millisecond, do not.
"""

import asyncio
import ctypes
import os
import ssl
import time
from collections.abc import Callable
from typing import cast

from benchmarks.setting import HEADERS

Done = Callable[[int, bytes], None]
LOST = 0  # the status of a question whose connection broke

_MONOTONIC, _ABSOLUTE = 1, 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


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
        self._held = held = self._held + data if self._held else data
        end = held.find(b"\r\n\r\n")
        if end < 0:
            return
        at = held.find(b"Content-Length: ", 0, end)
        length = int(held[at + 16 : held.index(b"\r\n", at)]) if at >= 0 else 0
        if len(held) >= end + 4 + length:
            self._held = b""
            self._settle(int(held[9:12]), held[end + 4 :])

    def _settle(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Pacer:
    """Calls `due` at one moment after the other; `due` gives the next, or None at the end.

    Moments are those of time.monotonic.
    """

    def __init__(self, due: Callable[[], float | None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._due = due
        self.over = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._timer, self._ring)

    def start(self, first: float) -> None:
        seconds = int(first)
        spec = _TimerSpec(0, 0, seconds, int((first - seconds) * 1e9) or 1)
        self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None)

    def _ring(self) -> None:
        os.read(self._timer, 8)
        following = self._due()
        if following is None:
            asyncio.get_running_loop().remove_reader(self._timer)
            os.close(self._timer)
            self.over.set()
        else:
            self.start(max(following, time.monotonic()))


def request(method: str, path: str, body: str = "") -> bytes:
    """A request of the administrator, as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", body]).encode()
