"""A watch returns batches from memory first, and each batch once."""

import asyncio

import pytest

from orchid.kernel.store.interface import ABSENT, Batch, PollableWatch, Revision, Span, StoreEvent
from orchid.kernel.store.tail import Following, Tail


def batch(revision: Revision) -> Batch:
    return Batch((StoreEvent("a", b"%d" % revision, revision, None, ABSENT),), revision)


class Log:
    """A history that is read when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.read = asyncio.Event()

    async def replay(self, span: Span, after: Revision) -> Batch:
        self.asked.set()
        await self.read.wait()
        return batch(after + 1)


async def test_what_is_at_hand_is_not_given_again_to_the_one_who_waits() -> None:
    """A task waits for the next batch; another caller takes it before the task runs."""
    tail = Tail(1, 1)
    watch = Following(tail, Span.all(), 1, Log().replay)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)

    tail.append(batch(2))
    taken = watch.poll()
    tail.append(batch(3))

    assert isinstance(watch, PollableWatch)
    assert taken == batch(2)
    assert await waiting == batch(3)
    assert watch.poll() is None


async def test_nothing_is_at_hand_before_the_history_that_is_being_read() -> None:
    """Batches stay in order: what is in memory comes behind what is in the log."""
    tail, log = Tail(1, 1), Log()
    watch = Following(tail, Span.all(), 1, log.replay)
    tail.jump(2)
    waiting = asyncio.ensure_future(anext(watch))
    await log.asked.wait()

    tail.append(batch(3))
    early = watch.poll()
    log.read.set()

    assert early is None
    assert await waiting == batch(2)
    assert watch.poll() == batch(3)


@pytest.mark.parametrize("end", ["close", "interrupt"])
async def test_nothing_is_at_hand_once_the_watch_has_to_end(end: str) -> None:
    """A watch fails first when the store is closed or interrupted."""
    tail = Tail(1, 1)
    watch = Following(tail, Span.all(), 1, Log().replay)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    tail.append(batch(2))
    if end == "close":
        tail.close()
    else:
        tail.interrupt("the line was cut")

    poll = watch.poll()
    waiting.cancel()

    assert poll is None
