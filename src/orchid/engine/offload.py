"""Work on a large body goes to a thread, so that it does not hold up everybody else.

Decoding and comparing are fast, but three megabytes made to be slow can take a second. The thread
shares the interpreter, so the work takes no less time; the others are served in between.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

LARGE_BYTES: Final = 1 << 18


async def offload(size: int, work: Callable[[], T]) -> T:
    """Do the work here, or in a thread if it is about more bytes than one should."""
    return work() if size <= LARGE_BYTES else await asyncio.to_thread(work)
