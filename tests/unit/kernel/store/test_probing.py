"""A store that hangs, fails or is closed is reported, and one that answers again is well."""

import asyncio
import logging

import pytest

from orchid.kernel.store import probing
from orchid.kernel.store.interface import Revision, StoreClosed, StoreUnavailable
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.probing import ANSWER_SECONDS, INTERVAL_SECONDS, StoreProbe

PROMISED_SECONDS = 10


class FickleStore(MemoryStore):
    """A store that does not answer while it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.failure: StoreUnavailable | None = None

    async def revision(self) -> Revision:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure
        return await super().revision()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ANSWER_SECONDS", 0.01)


def test_a_hang_is_reported_within_the_promised_time() -> None:
    """It may begin right after an answer, and the next question is given all its time."""
    assert INTERVAL_SECONDS + ANSWER_SECONDS < PROMISED_SECONDS


@pytest.mark.usefixtures("impatient")
async def test_store_that_hangs_is_reported_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both ends of the trouble are logged, once each."""
    caplog.set_level(logging.INFO)
    store = FickleStore()
    probe = StoreProbe(store)
    await probe.ask()
    assert probe.problem is None

    store.hangs = True
    await probe.ask()
    await probe.ask()
    assert probe.problem is not None
    assert not probe.closed

    store.hangs = False
    await probe.ask()
    assert probe.problem is None
    logged = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert logged == ["store.silent", "store.answers_again"]


async def test_store_that_fails_needs_no_restart() -> None:
    """It may answer later, by itself."""
    store = FickleStore()
    probe = StoreProbe(store)
    store.failure = StoreUnavailable("no majority")

    await probe.ask()

    assert probe.problem == "the store does not answer: no majority"
    assert not probe.closed


async def test_store_that_is_closed_needs_a_restart() -> None:
    """Nothing opens it again while the process runs."""
    store = FickleStore()
    probe = StoreProbe(store)
    store.failure = StoreClosed("the store is closed")

    await probe.ask()

    assert probe.problem is not None
    assert probe.closed
