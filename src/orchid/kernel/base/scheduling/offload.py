"""Expensive work runs in a thread, so that it does not block the event loop.

Decoding and comparing are fast, except for hostile bodies. The thread shares the interpreter lock,
so the work takes no less time, but other requests are served in between. There are few threads,
which limits memory and processor time of such work.

The threads are shared fairly between callers, as seats are (seat.py): no caller has all of them,
and waiting callers are served in turn. So expensive bodies of one caller delay only the next ones
of the same caller.

`Offload` gets the amount of work in bytes. A caller whose bytes need more work than usual passes a
larger number: see `body_weight`. The steps of every create compare with LARGE_BYTES themselves: to
await costs each of them 1 to 3 µs (docs/decisions/0026-cheap-writes.md).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from orchid.kernel.base.scheduling.seat import SEAT, Seat

T = TypeVar("T")

LARGE_BYTES: Final = 16 * 1024  # about ten milliseconds of work at worst
ALWAYS: Final = LARGE_BYTES + 1  # the weight of work that never runs on the event loop
THREADS: Final = 2  # more do no more work in parallel, and each competes with the event loop
MOST_PER_CALLER: Final = THREADS - 1


class Offload:
    """Runs work, in a thread if it is expensive. Its creator must close it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="offload")
        self._free = THREADS
        # By caller: busy threads, and queued turns, the next caller first. Work without a seat,
        # such as that of pages, counts as one more caller.
        self._busy: dict[Seat | None, int] = {}
        self._waiting: dict[Seat | None, deque[asyncio.Future[None]]] = {}

    async def __call__(self, weight: int, work: Callable[[], T]) -> T:
        """Do the work here, or in a thread if it is about more than LARGE_BYTES."""
        if weight <= LARGE_BYTES:
            return work()
        loop, caller = asyncio.get_running_loop(), SEAT.get()
        if self._free and self._busy.get(caller, 0) < MOST_PER_CALLER:
            self._take(caller)
        else:
            await self._turn(loop, caller)
        job = self._threads.submit(work)

        def done(_job: Future[T]) -> None:
            """Release the thread when it is free, which is later than a cancellation."""
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._give_back, caller)

        job.add_done_callback(done)
        return await asyncio.wrap_future(job)

    def close(self) -> None:
        """End the threads; queued work is cancelled."""
        for turns in self._waiting.values():
            for turn in turns:
                turn.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, caller: Seat | None) -> None:
        self._free -= 1
        self._busy[caller] = self._busy.get(caller, 0) + 1

    def _give_back(self, caller: Seat | None) -> None:
        self._free += 1
        self._busy[caller] -= 1
        if not self._busy[caller]:
            del self._busy[caller]
        self._hand_out()

    async def _turn(self, loop: asyncio.AbstractEventLoop, caller: Seat | None) -> None:
        """Wait for a thread."""
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the thread was assigned to us just now
                self._give_back(caller)
            raise

    def _hand_out(self) -> None:
        """Assign free threads to waiting callers, in turn."""
        while self._free:
            for caller in self._waiting:
                if self._busy.get(caller, 0) < MOST_PER_CALLER:
                    break
            else:
                return
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind all others
            if not turn.done():
                self._take(caller)
                turn.set_result(None)


def body_weight(body: bytes, *, may_be_yaml: bool) -> int:
    """The bytes of a body; any YAML counts as large, since aliases expand to much more."""
    if may_be_yaml and body.lstrip()[:1] not in (b"{", b"["):
        return len(body) + LARGE_BYTES
    return len(body)
