"""Several commits in one batch: each is checked separately, in order."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    GroupingStore,
    RevisionConflict,
    StoreUnavailable,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, events_until


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GroupingStore]:
    made: GroupingStore
    made = MemoryStore() if request.param == "memory" else await SQLiteStore.open(tmp_path / "db")
    yield made
    await made.close()


async def test_each_commit_has_its_own_outcome_in_order(store: GroupingStore) -> None:
    """A conflict is an outcome like another; those behind it see what those before it did."""
    outcomes = await store.commit_each(
        [
            [Change("a", b"1", ABSENT), Change("b", b"1", ABSENT)],
            [Change("a", b"2", ABSENT)],
            [Change("a", b"3", 2)],
        ]
    )

    assert [outcomes[0], outcomes[2]] == [2, 3]
    conflict = outcomes[1]
    assert isinstance(conflict, RevisionConflict)
    assert (conflict.key, conflict.actual and conflict.actual.value) == ("a", b"1")
    events = await events_until(store, 3, after=1)
    assert [(event.key, event.value, event.revision) for event in events] == [
        ("a", b"1", 2),
        ("b", b"1", 2),
        ("a", b"3", 3),
    ]


async def test_closed_store_takes_no_commits(store: GroupingStore) -> None:
    """Nothing was begun, so there is one failure for all."""
    await store.close()

    with pytest.raises(StoreUnavailable):
        await store.commit_each([[Change("a", b"1", ABSENT)]])


async def test_outcomes_are_known_to_watchers(store: GroupingStore) -> None:
    """As with a single commit, everything that was made is there to be read."""
    await store.commit_each([[Change(key, b"", ABSENT)] for key in "abc"])

    assert [record.key for record in (await store.read(ALL)).records] == ["a", "b", "c"]
    assert await store.revision() == 4
