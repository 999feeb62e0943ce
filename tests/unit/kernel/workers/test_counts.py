"""Every worker returns the sum of the counters of all workers."""

from collections.abc import AsyncIterator

import pytest

from orchid.kernel.base.metrics import Counter, Durations, Family, Gauge, Histogram, Joining, joined
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.workers import counts as counts_module
from orchid.kernel.workers.counts import WorkerCounts
from orchid.kernel.workers.remote_store import RemoteStore
from tests.unit.kernel.workers.linked import Parent, linked


class CountingWorker:
    """A worker that has counted some requests, and how long they took."""

    def __init__(self, store: RemoteStore, requests: int) -> None:
        self.store = store
        self.requests = Counter("requests_total", "Requests.", "code")
        self.seconds = Durations("took_seconds", "How long.", (1.0, 2.0))
        self.open = Gauge("open", "Open now.")
        self.objects = Gauge("objects", "Objects, the same for all.", joins=Joining.MOST)
        for _ in range(requests):
            self.requests.count("200")
            self.seconds.observe(1.5)
        self.open.set(requests)
        self.objects.set(7)
        self.counts = WorkerCounts(store)
        self.counts.report(self.families, self.requests.reset)

    def families(self) -> list[Family]:
        metrics = (self.requests, self.seconds, self.open, self.objects)
        return [metric.family() for metric in metrics]

    async def shown(self) -> dict[str, float | Histogram]:
        """The metrics page of this worker."""
        own = self.families()
        every = joined([own, *await self.counts.gather(own)])
        return {family.name: sample.value for family in every for sample in family.samples}


@pytest.fixture
async def parent() -> AsyncIterator[Parent]:
    async with linked(MemoryStore()) as parent:
        yield parent


async def test_every_worker_shows_the_sum_of_all(parent: Parent) -> None:
    """Counters and histograms add up; what all of them know is shown as it is."""
    workers = [CountingWorker(await parent.connect(), requests) for requests in (1, 10, 100)]

    shown = [await worker.shown() for worker in workers]

    assert shown[0] == shown[1] == shown[2]
    assert (shown[0]["requests_total"], shown[0]["open"], shown[0]["objects"]) == (111, 111, 7)
    assert shown[0]["took_seconds"] == Histogram((1.0, 2.0), [0, 111, 0], 166.5)


async def test_what_an_ended_worker_has_counted_stays(parent: Parent) -> None:
    """A counter does not go back when a worker is replaced; what was open with it is not."""
    first, second = [CountingWorker(await parent.connect(), requests) for requests in (1, 10)]
    await first.shown()

    await second.store.close()
    await parent.sessions[1].ended
    third = CountingWorker(await parent.connect(), 100)
    shown = await third.shown()

    assert (shown["requests_total"], shown["open"]) == (111, 101)
    assert await first.shown() == shown


async def test_a_worker_that_is_silent_is_shown_as_it_was(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page does not wait for a stopped worker, and no counter decreases."""
    monkeypatch.setattr(counts_module, "PATIENCE_SECONDS", 0.01)
    first, second = [CountingWorker(await parent.connect(), requests) for requests in (1, 10)]
    await first.shown()
    transport = second.store.link._transport
    assert transport is not None
    transport.pause_reading()
    second.requests.count("200")

    shown = await first.shown()
    transport.resume_reading()

    assert shown["requests_total"] == 11


async def test_a_worker_that_is_still_loading_has_counted_nothing(parent: Parent) -> None:
    """One that has no counts yet does not keep the others waiting."""
    await parent.connect()
    worker = CountingWorker(await parent.connect(), 5)

    assert (await worker.shown())["requests_total"] == 5


async def test_all_begin_from_nothing_together(parent: Parent) -> None:
    """A reset on one worker reaches the others, and those that have ended."""
    first, second, third = [CountingWorker(await parent.connect(), 1) for _ in range(3)]
    await first.shown()
    await third.store.close()
    await parent.sessions[2].ended

    first.requests.reset()
    first.counts.reset()
    await first.counts.gather([])  # the same line: what came before has arrived
    second.requests.count("200")

    assert (await first.shown())["requests_total"] == 1


async def test_without_its_parent_a_worker_shows_its_own(parent: Parent) -> None:
    """While it ends, it answers all the same."""
    worker = CountingWorker(await parent.connect(), 3)
    await worker.store.close()

    assert (await worker.shown())["requests_total"] == 3
