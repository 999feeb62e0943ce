"""Watches: where they begin, and what each watcher sees of a change."""

from typing import Any

import pytest

from orchid.kernel.engine.verbs import read
from orchid.kernel.wire.errors import Invalid
from tests.unit.kernel.engine.world import Engine, seen


def first(watch: Any) -> list[str]:
    return [entry.meta.name for entry in watch.initial]


async def test_begins_with_what_is_there(world: Engine) -> None:
    """Without a version, the current objects come first, in order, each with its own version."""
    for name in "ba":
        await world.make(name)
    watch = await world.watch(allow_watch_bookmarks=True)
    later = await world.make("c")
    await world.feed.fresh()

    assert first(watch) == ["a", "b"]
    assert watch.ends_initial
    assert seen(watch) == [("ADDED", "c", later.revision)]


async def test_an_end_is_marked_only_for_who_asked_for_bookmarks(world: Engine) -> None:
    """Without allowWatchBookmarks nothing marks the end of the initial events."""
    assert not (await world.watch()).ends_initial


async def test_goes_on_behind_a_version(world: Engine) -> None:
    """From a version on, every later change comes once, and what is there is not repeated."""
    one = await world.make("a")
    two = await world.merge("a", {"data": {"x": "1"}})
    gone = await world.delete("a")
    await world.feed.fresh()
    watch = await world.watch(resource_version=str(one.revision))

    assert first(watch) == []
    assert seen(watch) == [
        ("MODIFIED", "a", two.revision),
        ("DELETED", "a", gone.entry.revision),
    ]


async def test_without_initial_events_only_changes_come(world: Engine) -> None:
    """sendInitialEvents=false begins now."""
    await world.make("a")
    watch = await world.watch(send_initial_events=False, resource_version_match="NotOlderThan")

    assert (first(watch), seen(watch), watch.after) == ([], [], world.feed.revision)


async def test_initial_events_not_older_than_a_version(
    world: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a version, the state is at least that new; a version that does not come is an error."""
    monkeypatch.setattr(read, "FUTURE_PATIENCE", 0.001)
    made = await world.make("a")
    options = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
    watch = await world.watch(resource_version=str(made.revision), **options)
    future = await world.watch(resource_version="99999", **options)

    assert first(watch) == ["a"]
    assert future.error is not None
    assert future.error.status().code == 504


async def test_the_future_is_accepted_and_what_comes_before_it_withheld(world: Engine) -> None:
    """A watch from a future version receives only later changes."""
    made = await world.make("a")
    watch = await world.watch(resource_version=str(made.revision + 1))
    await world.make("b")
    later = await world.make("c")
    await world.feed.fresh()

    assert watch.error is None
    assert seen(watch) == [("ADDED", "c", later.revision)]


async def test_a_version_too_old_says_from_where_one_can(world: Engine) -> None:
    """Behind compaction there is one error, 410, with both numbers."""
    made = await world.make("a")
    newest = await world.make("b")
    await world.feed.fresh()
    world.feed.forget_before(newest.revision)
    watch = await world.watch(resource_version=str(made.revision))
    still = await world.watch(resource_version=str(newest.revision))

    assert watch.error is not None
    status = watch.error.status()
    assert (status.code, status.reason) == (410, "Expired")
    assert status.message == (f"too old resource version: {made.revision} ({newest.revision})")
    assert still.error is None


async def test_into_and_out_of_a_selector(world: Engine) -> None:
    """A change that makes an object match is ADDED, one that ends it DELETED, as it was."""
    made = await world.make("a", labels={"x": "0"})
    watch = await world.watch(resource_version=str(made.revision), label_selector="x=1")
    steps = [
        (await world.merge("a", {"metadata": {"labels": {"x": value}}})).revision
        for value in ("1", "2", "1")
    ]
    touched = await world.merge("a", {"data": {"k": "v"}})
    gone = await world.delete("a")
    await world.make("b", labels={"x": "9"})
    await world.feed.fresh()

    assert seen(watch) == [
        ("ADDED", "a", steps[0]),
        ("DELETED", "a", steps[1]),
        ("ADDED", "a", steps[2]),
        ("MODIFIED", "a", touched.revision),
        ("DELETED", "a", gone.entry.revision),
    ]
    turns = list(watch.cache.since(made.revision))
    shown = watch.event(turns[1])
    assert shown is not None
    assert shown[1].meta.labels == {"x": "1"}


async def test_one_namespace_or_one_name(world: Engine) -> None:
    """A watch of a namespace does not see its neighbours; one of a name sees it everywhere."""
    narrow = await world.watch("ns", resource_version="1")
    named = await world.watch("", resource_version="1", field_selector="metadata.name=x")
    a = await world.make("x")
    b = await world.create({"metadata": {"name": "x"}}, namespace="ns2")
    await world.create({"metadata": {"name": "y"}}, namespace="ns2")
    await world.feed.fresh()

    assert seen(narrow) == [("ADDED", "x", a.revision)]
    assert seen(named) == [("ADDED", "x", a.revision), ("ADDED", "x", b.revision)]


async def test_writes_that_change_nothing_are_not_seen(world: Engine) -> None:
    """No-op writes and dry runs make no event."""
    made = await world.make("a", labels={"x": "1"})
    watch = await world.watch(resource_version=str(made.revision))
    await world.merge("a", {"metadata": {"labels": {"x": "1"}}})
    await world.merge("a", {"data": {"k": "v"}}, dry_run=True)
    await world.delete("a", dry_run=True)
    await world.feed.fresh()

    assert seen(watch) == []


async def test_old_watch_paths_are_judged_as_lists(world: Engine) -> None:
    """/watch/ without the parameter shows the state first, but never an end bookmark."""
    await world.make("a")
    watch = await world.watch(watch=False, allow_watch_bookmarks=True)

    assert (first(watch), watch.ends_initial) == (["a"], False)
    with pytest.raises(Invalid, match="sendInitialEvents is forbidden for list"):
        await world.watch(watch=False, send_initial_events=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"send_initial_events": True},
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"resource_version_match": "NotOlderThan", "resource_version": "1"},
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"resource_version_match": "Exact", "send_initial_events": True},
            'Unsupported value: "Exact": supported values: "NotOlderThan"',
        ),
        ({"continue_": "x"}, "resourceVersionMatch is forbidden when continue is provided"),
    ],
)
async def test_options_that_contradict_each_other(
    world: Engine, options: dict[str, Any], message: str
) -> None:
    """Each senseless combination is refused by name, before the stream begins."""
    with pytest.raises(Invalid) as refused:
        await world.watch(**options)

    assert message in str(refused.value)
