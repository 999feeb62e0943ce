"""Open load: requests at moments that are laid down beforehand, whatever became of those before.

Start with `OpenLoad.run`. The moments are those of a Poisson process. The time of a request runs
from the moment at which it was due, so a slow answer is paid for by all that wait behind it, and
nothing is left out (no coordinated omission).

One thread, and sockets without an event loop, which takes less of its core. How late the generator
was itself is told too (`Taken.late`): a time that is not well above says nothing about the server.
"""

import random
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle

from benchmarks.lines import LOST, whole_answer
from tests.unit.server.listening import without_collections

CONNECTIONS = 64
PATIENCE = 60.0  # seconds for the answers that are due at the end
_AT_ONCE = 64 << 10


@dataclass
class Taken:
    """What came of it; all times in milliseconds."""

    due: list[float] = field(default_factory=list)  # seconds of the monotonic clock
    answered: list[float] = field(default_factory=list)  # from when it was due to its answer
    late: list[float] = field(default_factory=list)  # from when it was due until we saw to it
    refused: int = 0  # answers other than 2xx


class _Line:
    """One kept connection; one request at a time."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(raw)
        self.socket.setblocking(False)
        self.number = self.socket.fileno()
        self.due = 0.0
        self._held = b""

    def receive(self) -> int | None:
        """The status of an answer that is whole now."""
        try:
            data = self.socket.recv(_AT_ONCE)
        except ssl.SSLWantReadError:
            return None  # a ticket for the next session, or a part of a record
        if not data:
            return LOST
        self._held = held = self._held + data if self._held else data
        answer = whole_answer(held)
        if answer is None:
            return None
        self._held = b""
        return answer[0]


class OpenLoad:
    """Requests in turn, at a rate, over connections that are taken when they are free."""

    def __init__(self, requests: Sequence[bytes], rate: float, seconds: float, port: int) -> None:
        self._requests = cycle(requests)
        self._rate, self._seconds = rate, seconds
        self._chance = random.Random(1)  # noqa: S311 -- spread, not secrecy
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        self._lines = [_Line(port, tls) for _ in range(CONNECTIONS)]
        self._free = deque(self._lines)
        self._asked: dict[int, _Line] = {}  # by the number of their file
        self._waiting: deque[float] = deque()
        self.taken = Taken()

    def run(self) -> Taken:
        with without_collections():
            self._run()
        for line in self._lines:
            line.socket.close()
        return self.taken

    def _run(self) -> None:
        clock, late, asked = time.monotonic, self.taken.late, self._asked
        due = clock() + 0.1
        end = due + self._seconds
        while due < end or self._waiting or asked:
            now = clock()
            if now > end + PATIENCE:
                raise SystemExit(f"no answer for {PATIENCE:g} s")
            while due <= now and due < end:
                self._waiting.append(due)
                late.append((now - due) * 1000)
                due += self._chance.expovariate(self._rate)
            self._send()
            pause = due - clock() if due < end else 1.0
            for number in select.select(asked, (), (), max(0.0, pause))[0]:
                self._receive(number)

    def _send(self) -> None:
        while self._waiting and self._free:
            line = self._free.popleft()
            line.due = self._waiting.popleft()
            line.socket.send(next(self._requests))
            self._asked[line.number] = line

    def _receive(self, number: int) -> None:
        line = self._asked[number]
        status = line.receive()
        if status is None:
            return
        if status == LOST:
            raise SystemExit("the server closed a connection")
        self.taken.due.append(line.due)
        self.taken.answered.append((time.monotonic() - line.due) * 1000)
        self.taken.refused += not 200 <= status < 300
        self._free.append(self._asked.pop(number))
