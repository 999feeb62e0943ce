"""The SQLite store and the memory store agree, whatever is done to them.

Hypothesis makes up commits (good and bad), groups of them, compactions and restarts; after each
step every answer of one store equals the other's.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    Compacted,
    DeleteRange,
    FutureRevision,
    RevisionConflict,
    Span,
    Store,
    StoreError,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.unit.kernel.store.asking import ALL, events_until

KEYS = st.sampled_from(["a", "a/1", "a/2", "b", "é", "\U0001f600"])
VALUES = st.none() | st.binary(max_size=3)
SPANS = st.builds(Span.prefix, KEYS) | st.builds(Span.key, KEYS) | st.just(ALL)
# How far a change's expectation is off: mostly not at all.
OFFSETS = st.sampled_from([0, 0, 0, 0, 1, 3])
COMMITS = st.lists(
    st.tuples(KEYS, VALUES, OFFSETS), min_size=1, max_size=4, unique_by=lambda each: each[0]
)
Answer = tuple[str, object]


async def answer(question: Coroutine[Any, Any, object]) -> Answer:
    """The answer of a store, a result or a refusal, in a comparable form."""
    try:
        return "result", await question
    except RevisionConflict as error:
        return "conflict", (error.key, error.actual)
    except Compacted as error:
        return "compacted", (error.asked, error.oldest)
    except FutureRevision as error:
        return "future", (error.asked, error.newest)
    except (StoreError, ValueError) as error:
        return "error", type(error)


async def watched(store: Store, span: Span, after: int) -> object:
    return await events_until(store, await store.revision(), after=after, span=span)


class TwoStores(RuleBasedStateMachine):
    """Does the same to both and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryStore()
        self.prepare()
        self.lasting: Store = self.run(self.open())

    def prepare(self) -> None:
        self.directory = Path(tempfile.mkdtemp())

    async def open(self) -> Store:
        return await SQLiteStore.open(self.directory / "orchid.db")

    def discard(self) -> None:
        shutil.rmtree(self.directory)

    def run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(doing)

    def both(self, ask: Any) -> Answer:
        first, second = self.run(answer(ask(self.memory))), self.run(answer(ask(self.lasting)))
        assert first == second
        return first

    def changes(self, wanted: list[tuple[str, bytes | None, int]]) -> list[Change]:
        records = self.run(self.memory.read(ALL)).records
        present = {record.key: record.revision for record in records}
        return [
            Change(key, value, present.get(key, ABSENT) + offset) for key, value, offset in wanted
        ]

    @rule(wanted=COMMITS)
    def commit(self, wanted: list[tuple[str, bytes | None, int]]) -> None:
        changes = self.changes(wanted)
        self.both(lambda store: store.commit(changes))

    @rule(group=st.lists(COMMITS, min_size=2, max_size=6))
    def commit_together(self, group: list[list[tuple[str, bytes | None, int]]]) -> None:
        commits = [self.changes(wanted) for wanted in group]

        async def together(store: Store) -> list[Answer]:
            return list(await asyncio.gather(*(answer(store.commit(each)) for each in commits)))

        self.both(together)

    @rule(wanted=COMMITS, span=SPANS, back=st.sampled_from([0, 0, 0, 1, 5]))
    def delete_range(
        self, wanted: list[tuple[str, bytes | None, int]], span: Span, back: int
    ) -> None:
        changes = [change for change in self.changes(wanted) if change.key not in span]
        since = self.run(self.memory.revision()) - back
        self.both(lambda store: store.commit(changes, DeleteRange(span, since)))

    @rule(back=st.integers(-2, 12))
    def compact(self, back: int) -> None:
        mark = self.run(self.memory.revision()) - back
        self.both(lambda store: store.compact(mark))

    @rule()
    def restart(self) -> None:
        self.run(self.lasting.close())
        self.lasting = self.run(self.open())

    @rule(span=SPANS, back=st.integers(-2, 12), limit=st.integers(0, 3))
    def read(self, span: Span, back: int, limit: int) -> None:
        at = max(0, self.run(self.memory.revision()) - back)
        self.both(lambda store: store.read(span, at=at, limit=limit))
        self.both(lambda store: store.read(span, limit=limit))

    @rule(span=SPANS, back=st.integers(0, 12))
    def watch(self, span: Span, back: int) -> None:
        after = max(0, self.run(self.memory.revision()) - back)
        self.both(lambda store: watched(store, span, after))

    @invariant()
    def same_revision_and_records(self) -> None:
        self.both(lambda store: store.revision())
        self.both(lambda store: store.read(ALL))

    def teardown(self) -> None:
        self.run(self.lasting.close())
        self.runner.close()
        self.discard()


TestAgreement = TwoStores.TestCase
TestAgreement.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
