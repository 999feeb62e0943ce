"""Requirements for every store backend when a commit deletes a range; a part of suite.py."""

import pytest

from orchid.kernel.store.interface import (
    ABSENT,
    MAX_CHANGES,
    Change,
    Compacted,
    DeleteRange,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
    StoreEvent,
)
from tests.unit.kernel.store.asking import ALL, delete, events_until, put, read_pairs

WAITING = Span.prefix("w/")
MANY = 2 * MAX_CHANGES + 50


async def leave_many(store: Store) -> Revision:
    """More keys than a commit has changes, and the revision of the last."""
    for first in range(0, MANY, MAX_CHANGES):
        numbers = range(first, min(first + MAX_CHANGES, MANY))
        await store.commit([Change(f"w/{n:04}", b"%d" % n, ABSENT) for n in numbers])
    return await store.revision()


class RangeSuite:
    """Needs a fixture named `store`, as the whole suite does."""

    async def test_range_is_deleted_with_the_changes(self, store: Store) -> None:
        """One revision for readers and watchers, and keys beside the range stay."""
        for key in ["w/2", "v", "w/1", "x"]:
            await put(store, key, key.encode())

        changes = [Change("head", b"1", ABSENT), Change("v", None, 3)]
        revision = await store.commit(changes, DeleteRange(WAITING, 5))

        assert revision == 6
        assert await read_pairs(store) == [("head", b"1"), ("x", b"x")]
        assert await events_until(store, 6, after=5) == [
            StoreEvent("head", b"1", 6, None, ABSENT),
            StoreEvent("v", None, 6, b"v", 3),
            StoreEvent("w/1", None, 6, b"w/1", 4),
            StoreEvent("w/2", None, 6, b"w/2", 2),
        ]

    @pytest.mark.parametrize(("key", "expected"), [("w/3", ABSENT), ("w/1", 2)])
    async def test_range_that_has_changed_since_is_not_deleted(
        self, store: Store, key: str, expected: Revision
    ) -> None:
        """A key that came or changed behind the reader's back is never deleted unread."""
        await put(store, "w/1", b"")
        read = await put(store, "w/2", b"")
        late = await put(store, key, b"late", expected)

        with pytest.raises(RevisionConflict) as caught:
            await store.commit([Change("head", b"", ABSENT)], DeleteRange(WAITING, read))

        assert caught.value.key == key
        assert caught.value.actual == Record(key, b"late", late)
        assert await store.revision() == late
        assert (key, b"late") in await read_pairs(store)

    async def test_key_that_came_beside_the_range_is_no_matter(self, store: Store) -> None:
        """Only the range itself must be as it was."""
        read = await put(store, "w/1", b"")
        await put(store, "w/2", b"")

        span = Span("w/", "w/2")
        revision = await store.commit([Change("head", b"", ABSENT)], DeleteRange(span, read))

        assert [key for key, _ in await read_pairs(store)] == ["head", "w/2"]
        assert revision == 4

    async def test_range_stays_when_a_change_conflicts(self, store: Store) -> None:
        """All or none, and the change is named first."""
        await put(store, "head", b"1")
        read = await put(store, "w/1", b"")
        await put(store, "w/2", b"")

        with pytest.raises(RevisionConflict) as caught:
            await store.commit([Change("head", b"", ABSENT)], DeleteRange(WAITING, read))

        assert caught.value.key == "head"
        assert [key for key, _ in await read_pairs(store, WAITING)] == ["w/1", "w/2"]

    async def test_range_may_be_empty(self, store: Store) -> None:
        """Then the changes are all that happens."""
        revision = await store.commit([Change("a", b"1", ABSENT)], DeleteRange(WAITING, 1))

        assert await events_until(store, revision, after=1) == [
            StoreEvent("a", b"1", 2, None, ABSENT)
        ]

    async def test_range_of_one_key_is_deleted(self, store: Store) -> None:
        """A key by itself is a span too, and its neighbours are not in it."""
        await put(store, "w/1", b"")
        await put(store, "w/12", b"")

        change = Change("a", b"", ABSENT)
        await store.commit([change], DeleteRange(Span.key("w/1"), 3))

        assert [key for key, _ in await read_pairs(store)] == ["a", "w/12"]

    async def test_range_of_very_many_keys_keeps_its_history(self, store: Store) -> None:
        """Reads and watches at an old revision return each key as it was."""
        newest = await leave_many(store)
        before = (await store.read(WAITING)).records

        gone = await store.commit([Change("head", b"", ABSENT)], DeleteRange(WAITING, newest))
        last = await put(store, "w/0007", b"again")

        assert (await store.read(WAITING, at=newest)).records == before
        assert (await store.read(WAITING, at=gone)).records == []
        assert await read_pairs(store, WAITING) == [("w/0007", b"again")]
        events = await events_until(store, last, after=newest, span=WAITING)
        assert events == [
            *[StoreEvent(key, None, gone, value, was) for key, value, was in before],
            StoreEvent("w/0007", b"again", last, None, ABSENT),
        ]
        assert await events_until(store, last, after=newest, span=Span.key("w/0300")) == [
            StoreEvent("w/0300", None, gone, b"300", newest)
        ]

    async def test_deleted_range_is_compacted(self, store: Store) -> None:
        """Before the mark it is as if the keys had never been; from the mark on nothing changes."""
        newest = await leave_many(store)
        other = await put(store, "x", b"")
        gone = await store.commit([Change("head", b"", ABSENT)], DeleteRange(WAITING, newest))

        await store.compact(other)
        kept = await read_pairs(store, WAITING, at=other)
        await store.compact(gone)

        assert len(kept) == MANY
        with pytest.raises(Compacted):
            await store.read(WAITING, at=other)
        assert await read_pairs(store) == [("head", b""), ("x", b"")]
        assert await put(store, "w/0001", b"new") == gone + 1
        assert await delete(store, "w/0001", gone + 1) == gone + 2
        assert len(await events_until(store, gone + 2, after=gone, span=ALL)) == 2

    @pytest.mark.parametrize(
        ("changes", "delete_range"),
        [
            ([], DeleteRange(WAITING, 1)),
            ([Change("w/1", b"", ABSENT)], DeleteRange(WAITING, 1)),
            ([Change("a", b"", ABSENT)], DeleteRange(WAITING, 0)),
            ([Change("a", b"", ABSENT)], DeleteRange(Span("\ud800", ""), 1)),
            (
                [Change(f"a{n}", b"", ABSENT) for n in range(MAX_CHANGES)],
                DeleteRange(WAITING, 1),
            ),
        ],
        ids=["alone", "twice", "no-revision", "surrogate", "many"],
    )
    async def test_meaningless_range_is_refused(
        self, store: Store, changes: list[Change], delete_range: DeleteRange
    ) -> None:
        """A caller's mistake is a ValueError and leaves no trace."""
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            await store.commit(changes, delete_range)

        assert await store.revision() == 1

    async def test_largest_commit_with_a_range_is_kept_whole(self, store: Store) -> None:
        """As many changes as fit beside a range, and the range."""
        read = await put(store, "w/1", b"")
        changes = [Change(f"a{n}", b"", ABSENT) for n in range(MAX_CHANGES - 1)]

        revision = await store.commit(changes, DeleteRange(WAITING, read))

        keys = [event.key for event in await events_until(store, revision, after=read)]
        assert keys == [*[change.key for change in changes], "w/1"]
