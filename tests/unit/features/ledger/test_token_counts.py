"""Tokens are counted in memory, and the counts reach the ledger a few entries at a time."""

import asyncio
import json
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from orchid.features.ledger.token_counts import DAY, HOUR, MOST_ROWS, TokenCounts
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import Change, DeleteRange, Revision, StoreUnavailable
from orchid.kernel.store.memory import MemoryStore
from tests.unit.features.ledger.logs import NOW, grow

TEN = int(NOW.timestamp())  # 2026-11-15T10:00:00Z


class CountingStore(MemoryStore):
    """A store that counts commits, and can fail before or after one."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.fails = ""

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self.commits += 1
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise StoreUnavailable("no answer")
        revision = await super().commit(changes, delete)
        if fails == "after":
            raise StoreUnavailable("no answer")
        return revision


def counting(store: MemoryStore) -> TokenCounts:
    return TokenCounts(store, lambda: NOW)


async def pending(store: MemoryStore) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in (await store.read(store_keys.PENDING)).records]


async def test_tokens_are_added_up_by_key_account_and_hour() -> None:
    """Three tokens within an hour are one row; the hour is the one in which they end."""
    store = CountingStore()
    counts = counting(store)
    for expires in (TEN + 1, TEN + 3600, TEN + 1800, TEN + 3601):
        counts.issued("key-1", "uid-1", expires)
    counts.issued("key-2", "uid-1", TEN)

    await counts.write()

    found = {entry["key"]: entry["tokens"] for entry in await pending(store)}
    assert found == {
        "key-1": [["uid-1", "2026-11-15T11:00:00Z", 3], ["uid-1", "2026-11-15T12:00:00Z", 1]],
        "key-2": [["uid-1", "2026-11-15T10:00:00Z", 1]],
    }


async def test_many_tokens_cost_few_commits() -> None:
    """A thousand accounts are written with one commit, and nothing is written twice."""
    store = CountingStore()
    counts = counting(store)
    for number in range(1000):
        counts.issued("key", f"00000000-0000-4000-8000-{number:012d}", TEN)

    await counts.write()
    await counts.write()

    entries = await pending(store)
    assert store.commits == 1
    assert sum(len(entry["tokens"]) for entry in entries) == 1000
    await grow(store, 0, 0)  # every entry fits into the log


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_store_in_trouble_costs_no_count(fails: str) -> None:
    """Counts that could not be written, or may have been, are written once in the end."""
    store = CountingStore()
    counts = counting(store)
    counts.issued("key", "uid", TEN)
    store.fails = fails

    await counts.write()
    counts.issued("key", "uid", TEN)
    await counts.write()

    assert [entry["tokens"][0][2] for entry in await pending(store)] == [1, 1]


async def test_counts_are_written_at_intervals() -> None:
    """Each interval writes what came since the last one."""
    store = CountingStore()
    counts = counting(store)
    rounds = 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 4:
            raise asyncio.CancelledError
        if rounds != 2:
            counts.issued("key", "uid", TEN)

    with pytest.raises(asyncio.CancelledError):
        await counts.run(sleep=sleep)

    assert store.commits == 2


async def test_lifetimes_that_all_differ_make_few_rows() -> None:
    """Whatever lifetimes a caller asks for: the rows are bounded, and no token is missing."""
    store = CountingStore()
    counts = counting(store)
    for number in range(5000):
        counts.issued("key", "uid", TEN + 600 + number * 7919)
        counts.issued("key", "uid", TEN + 600 + number * 800_000)

    await counts.write()

    rows = [row for entry in await pending(store) for row in entry["tokens"]]
    assert len(rows) == MOST_ROWS
    assert sum(count for _, _, count in rows) == 10_000
    assert max(end for _, end, _ in rows) >= timestamp(TEN + 600 + 4999 * 800_000)


@pytest.mark.parametrize(
    ("after", "end"),
    [
        (HOUR, "2026-11-15T11:00:00Z"),
        (2 * DAY, "2026-11-17T10:00:00Z"),
        (2 * DAY + 1, "2026-11-18T00:00:00Z"),
        (365 * DAY, "2027-11-28T00:00:00Z"),
        (100 * 365 * DAY, "2126-11-24T00:00:00Z"),
        (10**12, "9999-12-31T00:00:00Z"),
    ],
)
async def test_the_later_tokens_end_the_coarser_they_are_counted(after: int, end: str) -> None:
    """The time is never before the end of a token."""
    store = CountingStore()
    counts = counting(store)
    counts.issued("key", "uid", TEN + after)

    await counts.write()

    [entry] = await pending(store)
    assert entry["tokens"] == [["uid", end, 1]]
    assert after > 10**11 or timestamp(TEN + after) <= end


async def test_entries_are_not_formatted_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many rows there are, other requests go on; a stop in between loses nothing."""
    loop, threads = threading.get_ident(), []
    real = store_keys.pending

    def noting(facts: Iterable[Fact], uid: str, now: datetime) -> list[Change]:
        threads.append(threading.get_ident())
        return real(facts, uid, now)

    monkeypatch.setattr(store_keys, "pending", noting)
    store = CountingStore()
    counts = counting(store)
    counts.issued("key", "uid", TEN)
    writing = asyncio.create_task(counts.write())
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    await counts.write()

    assert loop not in threads
    assert [entry["tokens"][0][2] for entry in await pending(store)] == [1]


def timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_totals_have_no_account() -> None:
    """However many accounts there are, a key has a row for each hour, every hour of two days."""
    store = CountingStore()
    counts = counting(store)
    count = counts.counter("totals")
    assert count is not None
    for number in range(1000):
        count("key-1", f"uid-{number}", TEN + number % 48 * HOUR)

    await counts.write()

    rows = [row for entry in await pending(store) for row in entry["tokens"]]
    assert {account for account, _, _ in rows} == {""}
    assert len(rows) == 48
    assert sum(number for _, _, number in rows) == 1000


def test_nothing_is_counted_if_it_is_off() -> None:
    """The issuer has nothing to call."""
    counts = counting(CountingStore())

    assert counts.counter("off") is None
    assert counts.counter("counted") == counts.issued
