"""Requirements for every store backend.

A backend's test module defines an async fixture `store` that gives an empty store, and
subclasses `StoreSuite`. Nothing here knows which backend it talks to.
"""

import asyncio
from contextlib import aclosing, suppress

import pytest

from orchid.kernel.store.interface import (
    ABSENT,
    MAX_CHANGES,
    Batch,
    Change,
    Compacted,
    FutureRevision,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
    StoreEvent,
    StoreUnavailable,
)
from tests.unit.kernel.store.asking import ALL, delete, events_until, put, read_pairs
from tests.unit.kernel.store.range_suite import RangeSuite


def many(prefix: str) -> list[Change]:
    """As many changes as one commit can hold."""
    return [Change(f"{prefix}{n}", b"v", ABSENT) for n in range(MAX_CHANGES)]


class StoreSuite(RangeSuite):
    """Subclass it beside a fixture named `store`."""

    # Commits

    async def test_empty_store_is_at_revision_one(self, store: Store) -> None:
        """A list of nothing never prints revision 0, which means something else to clients."""
        page = await store.read(ALL)

        assert await store.revision() == page.revision == page.oldest == 1
        assert page.records == []
        assert not page.more

    async def test_every_commit_gets_the_next_revision(self, store: Store) -> None:
        """The counter is one for all keys and has no gaps."""
        assert await put(store, "a", b"1") == 2
        assert await put(store, "b", b"1") == 3
        assert await put(store, "a", b"2", 2) == 4
        assert await delete(store, "b", 3) == 5
        assert await store.revision() == 5

    async def test_changes_of_one_commit_share_a_revision(self, store: Store) -> None:
        """Several keys change at one moment for every reader and watcher."""
        gone = await put(store, "gone", b"x")

        revision = await store.commit(
            [Change("b", b"2", ABSENT), Change("a", b"1", ABSENT), Change("gone", None, gone)]
        )

        assert (await store.read(ALL)).records == [
            Record("a", b"1", revision),
            Record("b", b"2", revision),
        ]
        events = await events_until(store, revision, after=gone)
        assert [event.key for event in events] == ["b", "a", "gone"]
        assert {event.revision for event in events} == {revision}

    @pytest.mark.parametrize(
        ("value", "expected"), [(b"2", ABSENT), (b"2", 1), (b"2", 99), (None, 1)]
    )
    async def test_conflict_carries_what_is_there(
        self, store: Store, value: bytes | None, expected: Revision
    ) -> None:
        """The loser of a race learns the present state without another read."""
        revision = await put(store, "a", b"1")

        with pytest.raises(RevisionConflict) as caught:
            await store.commit([Change("a", value, expected)])

        assert caught.value.key == "a"
        assert caught.value.actual == Record("a", b"1", revision)
        assert await store.revision() == revision

    @pytest.mark.parametrize("value", [b"2", None])
    async def test_a_conflict_reports_a_missing_key(
        self, store: Store, value: bytes | None
    ) -> None:
        """Changing what is gone, or never was, is a conflict with None."""
        await delete(store, "a", await put(store, "a", b"1"))

        with pytest.raises(RevisionConflict) as caught:
            await store.commit([Change("a", value, 2)])

        assert caught.value.actual is None

    async def test_commit_with_one_conflict_changes_nothing(self, store: Store) -> None:
        """All or none, at any position of the conflict in the commit."""
        await put(store, "b", b"1")

        with pytest.raises(RevisionConflict):
            await store.commit([Change("a", b"1", ABSENT), Change("b", b"2", ABSENT)])

        assert await read_pairs(store) == [("b", b"1")]
        assert await store.revision() == 2
        assert await put(store, "c", b"1") == 3

    async def test_deleted_key_can_be_created_again(self, store: Store) -> None:
        """Deletion leaves the key ABSENT, and a new value has no link to the old one."""
        deleted = await delete(store, "a", await put(store, "a", b"1"))

        revision = await put(store, "a", b"2")

        [event] = await events_until(store, revision, after=deleted)
        assert event == StoreEvent("a", b"2", revision, None, ABSENT)

    @pytest.mark.parametrize(
        "changes",
        [
            [],
            [Change("a", b"1", ABSENT), Change("a", b"2", ABSENT)],
            [Change("a", None, ABSENT)],
            [Change("a", b"", -1)],
            [Change("", b"1", ABSENT)],
            [Change("a\0b", b"1", ABSENT)],
            [Change("\ud800", b"1", ABSENT)],
            [*many("k"), Change("one more", b"", ABSENT)],
        ],
        ids=["none", "twice", "delete-absent", "negative", "empty", "nul", "surrogate", "many"],
    )
    async def test_meaningless_commit_is_refused(self, store: Store, changes: list[Change]) -> None:
        """A caller's mistake is a ValueError and leaves no trace."""
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            await store.commit(changes)

        assert await store.revision() == 1

    async def test_largest_commit_is_kept_whole(self, store: Store) -> None:
        """The limit itself is allowed, and its order is kept."""
        changes = many("k")

        revision = await store.commit(changes)

        events = await events_until(store, revision, after=1)
        assert [event.key for event in events] == [change.key for change in changes]

    async def test_only_one_of_many_rivals_wins(self, store: Store) -> None:
        """Compare-and-swap holds under concurrency: every increment is counted once."""
        await put(store, "n", b"0")

        async def increment() -> None:
            while True:
                [record] = (await store.read(Span.key("n"))).records
                with suppress(RevisionConflict):
                    await put(store, "n", b"%d" % (int(record.value) + 1), record.revision)
                    return

        await asyncio.gather(*(increment() for _ in range(20)))

        assert await read_pairs(store) == [("n", b"20")]
        assert await store.revision() == 22

    async def test_cancelled_caller_does_not_undo_a_commit(self, store: Store) -> None:
        """A cancelled caller leaves no partial commit and no broken store."""
        waiting = asyncio.create_task(put(store, "a", b"1"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        revision = await put(store, "b", b"1")

        events = await events_until(store, 3, after=1)
        assert sorted(event.key for event in events) == ["a", "b"]
        assert revision in (2, 3)  # the two are at one time: their order is not promised

    # Reads

    async def test_reads_are_in_key_order_within_the_span(self, store: Store) -> None:
        """Order is by code point, the end is left out, and one key is a span too."""
        for key in ["b", "a/2", "é", "a/10", "a0", "\U0001f600", "\uffff", "a/1"]:
            await put(store, key, b"")

        keys = [key for key, _ in await read_pairs(store)]
        assert keys == ["a/1", "a/10", "a/2", "a0", "b", "é", "\uffff", "\U0001f600"]
        keys = [key for key, _ in await read_pairs(store, Span.prefix("a/"))]
        assert keys == ["a/1", "a/10", "a/2"]
        assert [key for key, _ in await read_pairs(store, Span.key("a/1"))] == ["a/1"]
        assert [key for key, _ in await read_pairs(store, Span("a/2", "b"))] == ["a/2", "a0"]
        assert await read_pairs(store, Span.key("nothing")) == []

    async def test_pages_join_to_the_whole(self, store: Store) -> None:
        """Reading on behind the last key, at the first page's revision, gives one snapshot."""
        for n in range(7):
            await put(store, f"k{n}", b"old")
        first = await store.read(ALL, limit=3)
        await put(store, "k5", b"new", 7)
        await delete(store, "k6", 8)
        await put(store, "k55", b"new")

        second = await store.read(ALL.after("k2"), at=first.revision, limit=3)
        third = await store.read(ALL.after("k5"), at=first.revision, limit=3)

        assert (first.more, second.more, third.more) == (True, True, False)
        records = [*first.records, *second.records, *third.records]
        assert [record.key for record in records] == [f"k{n}" for n in range(7)]
        assert {record.value for record in records} == {b"old"}
        assert second.revision == first.revision

    async def test_a_limit_equal_to_the_count_reports_no_more(self, store: Store) -> None:
        """`more` promises at least one further record."""
        await put(store, "a", b"")
        await put(store, "b", b"")

        assert not (await store.read(ALL, limit=2)).more
        assert (await store.read(ALL, limit=1)).more

    async def test_past_can_be_read_at_every_revision(self, store: Store) -> None:
        """Each revision shows exactly what had happened by then."""
        await put(store, "a", b"1")  # 2
        await put(store, "b", b"1")  # 3
        await put(store, "a", b"2", 2)  # 4
        await delete(store, "b", 3)  # 5
        await put(store, "b", b"3")  # 6

        history = [await read_pairs(store, at=revision) for revision in range(1, 7)]

        assert history == [
            [],
            [("a", b"1")],
            [("a", b"1"), ("b", b"1")],
            [("a", b"2"), ("b", b"1")],
            [("a", b"2")],
            [("a", b"2"), ("b", b"3")],
        ]
        assert (await store.read(ALL, at=5)).records == [Record("a", b"2", 4)]

    async def test_future_cannot_be_read_or_watched(self, store: Store) -> None:
        """A later revision comes from another store; waiting for it would hang."""
        with pytest.raises(FutureRevision) as caught:
            await store.read(ALL, at=2)
        assert (caught.value.asked, caught.value.newest) == (2, 1)
        with pytest.raises(FutureRevision):
            await anext(store.watch(ALL, after=2))
        with pytest.raises(FutureRevision):
            await store.compact(2)

    async def test_meaningless_read_is_refused(self, store: Store) -> None:
        """Negative limits and revisions are a caller's mistake."""
        with pytest.raises(ValueError, match="limit"):
            await store.read(ALL, limit=-1)
        with pytest.raises(ValueError, match="revision"):
            await store.read(ALL, at=-2)
        with pytest.raises(ValueError, match="revision"):
            await anext(store.watch(ALL, after=-1))

    async def test_values_are_kept_byte_for_byte(self, store: Store) -> None:
        """Empty, binary and large values come back as they went in."""
        values = {"empty": b"", "binary": bytes(range(256)), "large": b"\0x" * 500_000}
        for key, value in values.items():
            await put(store, key, value)

        assert dict(await read_pairs(store)) == values
        events = await events_until(store, 4, after=1)
        assert {event.key: event.value for event in events} == values

    # Watches

    async def test_a_watch_from_an_old_revision_receives_the_changes_since(
        self, store: Store
    ) -> None:
        """Events carry the new value and the one before, with their revisions."""
        await put(store, "a", b"1")
        await put(store, "a", b"2", 2)
        await delete(store, "a", 3)

        assert await events_until(store, 4, after=1) == [
            StoreEvent("a", b"1", 2, None, ABSENT),
            StoreEvent("a", b"2", 3, b"1", 2),
            StoreEvent("a", None, 4, b"2", 3),
        ]
        assert await events_until(store, 4, after=3) == [StoreEvent("a", None, 4, b"2", 3)]

    async def test_watch_sees_only_its_span_but_all_progress(self, store: Store) -> None:
        """A batch without events still has the revision of the store."""
        async with aclosing(store.watch(Span.prefix("a/"), after=1)) as watch:
            first = asyncio.ensure_future(anext(watch))
            await put(store, "b/1", b"")
            assert await first == Batch((), 2)

            await put(store, "a/1", b"v")
            assert await anext(watch) == Batch((StoreEvent("a/1", b"v", 3, None, ABSENT),), 3)

    async def test_acknowledged_commit_is_there_for_watchers_at_once(self, store: Store) -> None:
        """A caught-up watcher's next batch needs no waiting once the commit has returned."""
        async with aclosing(store.watch(ALL, after=1)) as watch:
            revision = await put(store, "a", b"1")

            batch = await anext(watch)

            assert batch.revision == revision
            received: list[Revision] = []

            async def receive() -> None:
                received.append((await anext(watch)).revision)

            receiving = asyncio.create_task(receive())
            await asyncio.sleep(0)
            revision = await put(store, "b", b"1")
            await asyncio.sleep(0)
            assert received == [revision]
            await receiving

    async def test_watches_hand_over_from_past_to_present(self, store: Store) -> None:
        """Watches begun at any moment among busy writers see each revision once, in order."""
        writers, commits = 8, 40
        final = 1 + writers * commits

        async def write(name: int) -> None:
            revision = ABSENT
            for n in range(commits):
                revision = await put(store, f"w{name}", b"%d" % n, revision)

        async def watch_from(after: Revision) -> list[Revision]:
            return [event.revision for event in await events_until(store, final, after=after)]

        async with asyncio.TaskGroup() as group:
            for name in range(writers):
                group.create_task(write(name))
            watches: dict[Revision, asyncio.Task[list[Revision]]] = {}
            while (revision := await store.revision()) < final:
                if revision not in watches:
                    after = revision // 2 or 1
                    watches[revision] = group.create_task(watch_from(after))
                await asyncio.sleep(0)

        for begun, watch in watches.items():
            assert watch.result() == list(range((begun // 2 or 1) + 1, final + 1))

    async def test_watch_after_a_read_misses_nothing(self, store: Store) -> None:
        """List, then watch from the list's revision: the union is the final state."""

        async def write() -> None:
            for n in range(60):
                await put(store, f"k{n}", b"")

        writing = asyncio.create_task(write())
        for _ in range(5):
            await asyncio.sleep(0)
        page = await store.read(ALL)
        events = await events_until(store, 61, after=page.revision)
        await writing

        keys = [record.key for record in page.records] + [event.key for event in events]
        assert sorted(keys) == sorted(f"k{n}" for n in range(60))

    async def test_slow_watcher_misses_nothing(self, store: Store) -> None:
        """However far a watcher falls behind, it reads on in order at its own pace."""
        async with aclosing(store.watch(ALL, after=1)) as watch:
            begun = await put(store, "first", b"")
            assert (await anext(watch)).revision == begun
            await asyncio.gather(*(store.commit(many(f"{n}/")) for n in range(200)))
            newest = await store.revision()

            events: list[StoreEvent] = []
            async for batch in watch:
                events.extend(batch.events)
                if batch.revision == newest:
                    break

        assert len(events) == (newest - begun) * MAX_CHANGES
        revisions = [event.revision for event in events]
        assert revisions == sorted(revisions)
        assert len({event.key for event in events}) == len(events)

    # Compaction

    async def test_compaction_ends_the_past_but_not_the_present(self, store: Store) -> None:
        """The mark itself can be read at and watched after; before it there is nothing."""
        await put(store, "a", b"1")  # 2
        await put(store, "a", b"2", 2)  # 3
        await put(store, "b", b"1")  # 4
        await delete(store, "b", 4)  # 5
        await put(store, "a", b"3", 3)  # 6

        await store.compact(4)

        with pytest.raises(Compacted) as caught:
            await store.read(ALL, at=3)
        assert (caught.value.asked, caught.value.oldest) == (3, 4)
        with pytest.raises(Compacted):
            await anext(store.watch(ALL, after=3))
        assert await read_pairs(store, at=4) == [("a", b"2"), ("b", b"1")]
        assert await events_until(store, 6, after=4) == [
            StoreEvent("b", None, 5, b"1", 4),
            StoreEvent("a", b"3", 6, b"2", 3),
        ]
        assert (await store.read(ALL)).oldest == 4
        assert await store.revision() == 6

    async def test_compacting_everything_keeps_what_exists(self, store: Store) -> None:
        """Compacting up to now, even when the last change was a deletion, loses no record."""
        await put(store, "a", b"1")
        newest = await delete(store, "b", await put(store, "b", b"1"))

        await store.compact(newest)

        page = await store.read(ALL)
        assert page.records == [Record("a", b"1", 2)]
        assert page.revision == page.oldest == newest
        assert await put(store, "a", b"2", 2) == newest + 1
        assert await events_until(store, newest + 1, after=newest) == [
            StoreEvent("a", b"2", newest + 1, b"1", 2)
        ]

    async def test_compaction_never_goes_back(self, store: Store) -> None:
        """An older mark is no error and changes nothing."""
        await put(store, "a", b"1")
        await put(store, "b", b"1")
        await store.compact(3)

        await store.compact(2)
        await store.compact(0)

        assert (await store.read(ALL)).oldest == 3

    async def test_compaction_step_by_step_equals_compaction_at_once(self, store: Store) -> None:
        """After many small compactions the rest of history still reads as it was."""
        revision = ABSENT
        for n in range(30):
            revision = await put(store, "hot", b"%d" % n, revision)
            await put(store, f"cold{n}", b"")
        newest = await store.revision()
        before = {
            at: (await store.read(ALL, at=at)).records for at in range(newest - 20, newest + 1)
        }

        for mark in range(5, newest - 19, 7):
            await store.compact(mark)
        await store.compact(newest - 20)

        for at, records in before.items():
            assert (await store.read(ALL, at=at)).records == records

    async def test_compaction_does_not_disturb_writers_and_watchers(self, store: Store) -> None:
        """Compaction during writes does not affect a watcher that is up to date."""
        final = 301

        async def write() -> None:
            revision = ABSENT
            for n in range(300):
                revision = await put(store, "hot", b"%d" % n, revision)

        async def compact() -> None:
            while (revision := await store.revision()) < final:
                await store.compact(max(1, revision - 5))
                await asyncio.sleep(0)

        watching = asyncio.create_task(events_until(store, final, after=1))
        await asyncio.sleep(0)
        await asyncio.gather(write(), compact())

        assert [event.revision for event in await watching] == list(range(2, final + 1))

    # The end

    async def test_closing_ends_watches(self, store: Store) -> None:
        """A watch fails instead of waiting."""
        watching = asyncio.ensure_future(anext(store.watch(ALL, after=1)))
        await asyncio.sleep(0)

        await store.close()

        with pytest.raises(StoreUnavailable, match="closed"):
            await watching

    async def test_closing_finishes_commits_that_wait(self, store: Store) -> None:
        """Commits that were passed on before are made and answered; later ones are refused."""
        waiting = [asyncio.ensure_future(put(store, f"k{n}", b"")) for n in range(50)]
        await asyncio.sleep(0)

        await store.close()

        revisions = await asyncio.gather(*waiting)
        assert sorted(revisions) == list(range(2, 52))
        with pytest.raises(StoreUnavailable):
            await put(store, "late", b"")
        with pytest.raises(StoreUnavailable):
            await store.read(ALL)
        with pytest.raises(StoreUnavailable):
            await store.compact(2)
        with pytest.raises(StoreUnavailable):
            await anext(store.watch(ALL, after=1))

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        """Two owners may both clean up, even at once."""
        await asyncio.gather(store.close(), store.close())
        await store.close()
