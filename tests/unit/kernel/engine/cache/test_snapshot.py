"""A snapshot shows the objects as they stood, whatever has changed since."""

import random

import pytest

from tests.unit.kernel.engine.world import Engine


@pytest.mark.parametrize("seed", range(10))
async def test_the_past_is_shown_as_it_was(world: Engine, seed: int) -> None:
    """Creations, changes and deletions behind a revision do not show at that revision."""
    chance = random.Random(seed)
    cache = world.feed.cache(world.config_maps)
    prefix = cache.kind.key_prefix + "ns/"
    known: set[str] = set()
    past = []
    for number in range(30):
        name = f"m{chance.randrange(12):02d}"
        if name not in known:
            await world.make(name)
        elif chance.random() < 0.5:
            await world.merge(name, {"data": {"k": str(number)}})
        else:
            await world.delete(name)
        revision = await world.feed.fresh()
        known = {entry.meta.name for entry in cache.under(prefix)}
        past.append((revision, [(entry.key, entry.data) for entry in cache.under(prefix)]))

    for revision, entries in past:
        snapshot = cache.as_of(revision, prefix)
        assert [(entry.key, entry.data) for entry in snapshot] == entries
        assert len(snapshot) == len(entries)
        for key in (f"{prefix}m{number:02d}" for number in range(12)):
            found = snapshot.get(key)
            assert (found.data if found else None) == dict(entries).get(key)


async def test_a_later_page_begins_at_its_key(world: Engine) -> None:
    """A snapshot from a key on has that key and those behind it, and counts them alone."""
    for name in ("a", "b", "c", "d"):
        await world.make(name)
    before = await world.feed.fresh()
    await world.delete("b")
    await world.delete("c")
    await world.feed.fresh()
    cache = world.feed.cache(world.config_maps)
    prefix = cache.kind.key_prefix + "ns/"

    now = cache.under(prefix, f"{prefix}b")
    then = cache.as_of(before, prefix, f"{prefix}c")

    assert ([entry.meta.name for entry in now], len(now)) == (["d"], 1)
    assert ([entry.meta.name for entry in then], len(then)) == (["c", "d"], 2)
    assert then.get(f"{prefix}b") is None
