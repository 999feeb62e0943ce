"""Large bodies are worked on beside the event loop, small ones on it."""

import threading
from contextlib import closing

from orchid.engine.offload import LARGE_BYTES, Offload


async def test_small_work_stays_on_the_loop() -> None:
    """A thread would cost more than the work."""
    with closing(Offload()) as offload:
        where = await offload(LARGE_BYTES, threading.current_thread)

    assert where is threading.current_thread()


async def test_large_work_goes_to_a_thread() -> None:
    """Nobody else waits for a body that was made to be slow."""
    with closing(Offload()) as offload:
        where = await offload(LARGE_BYTES + 1, threading.current_thread)

    assert where is not threading.current_thread()
