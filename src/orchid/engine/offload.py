"""Work that may take long is done in a thread, so that it does not block the event loop.

Decoding and comparing are fast, except for bodies made to be slow. The thread shares the
interpreter lock, so the work takes no less time, but others are served in between. There are few
threads, which bounds the memory and the share of the processor that such work takes.

`Offload` is told how much there is to do, in bytes. A caller that knows that its bytes need more
work than usual gives a larger number: see `body_weight`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 16 * 1024  # what takes about ten milliseconds at worst
ALWAYS: Final = LARGE_BYTES + 1  # the weight of what is never done on the event loop
THREADS: Final = 2  # more do no more work at once, and each takes its turns from the event loop


class Offload:
    """Runs work, in one of its threads if there is much to do. Whoever makes one closes it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="offload")

    async def __call__(self, weight: int, work: Callable[[], T]) -> T:
        """Do the work at once, or in a thread if it is about more than LARGE_BYTES."""
        if weight <= LARGE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the threads; work that was not begun is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def body_weight(body: bytes, *, may_be_yaml: bool) -> int:
    """The bytes of a body; any YAML counts as large, since aliases unfold to much more."""
    if may_be_yaml and body.lstrip()[:1] not in (b"{", b"["):
        return len(body) + LARGE_BYTES
    return len(body)
