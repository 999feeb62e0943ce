"""Work that may take long goes to a thread, so that it does not hold up everybody else.

Decoding and comparing are fast, but a body made to be slow is not. The thread shares the
interpreter, so the work takes no less time; the others are served in between. There are few such
threads: what they hold in memory at once, and the turns they take from the event loop, are bounded.

`offload` is told how much there is to do, in bytes. Whoever knows that some bytes stand for more
work than others says so in that number: see `body_weight`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 16 * 1024  # what takes about ten milliseconds at worst
THREADS: Final = 4

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="offload")


async def offload(weight: int, work: Callable[[], T]) -> T:
    """Do the work here, or in a thread if it is about more bytes than one should."""
    if weight <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


def body_weight(body: bytes, *, may_be_yaml: bool) -> int:
    """The bytes of a body; any YAML counts as large, since aliases unfold to much more."""
    if may_be_yaml and body.lstrip()[:1] not in (b"{", b"["):
        return len(body) + LARGE_BYTES
    return len(body)
