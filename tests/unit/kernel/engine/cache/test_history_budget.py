"""The past that is kept in memory weighs no more than its budget, and has no hole."""

from orchid.kernel.engine.cache.kind_cache import weight_of
from tests.unit.kernel.engine.world import Engine

LARGE = "x" * 10_000


async def change_often(world: Engine, name: str, times: int) -> None:
    """Give an object so many large contents, one after the other."""
    await world.make(name)
    for number in range(times):
        await world.merge(name, {"data": {"k": f"{LARGE}{number}"}})
    await world.feed.fresh()


def held(world: Engine) -> int:
    """The bytes of all objects in the changes that are kept, counted one by one."""
    cache = world.feed.cache(world.config_maps)
    entries = {
        id(entry): entry for change in cache.changes for entry in (change.old, change.new) if entry
    }
    return sum(len(entry.tail) for entry in entries.values())


async def test_large_changes_are_forgotten_sooner(world: Engine) -> None:
    """However many large objects are written, what is kept of them stays within the budget."""
    world.feed.history.most = 200_000

    await change_often(world, "large", 100)

    cache = world.feed.cache(world.config_maps)
    assert 0 < held(world) <= world.feed.history.spent <= 200_000
    assert world.feed.history.spent == weight_of(cache.changes)
    assert cache.changes[0].revision == cache.oldest + 1


async def test_a_kind_with_little_past_keeps_it(world: Engine) -> None:
    """One kind's flood of changes does not make the others forget theirs."""
    world.feed.history.most = 200_000
    account = await world.create({"metadata": {"name": "quiet"}}, world.accounts)

    await change_often(world, "large", 100)

    cache = world.feed.cache(world.accounts)
    assert [change.revision for change in cache.changes] == [account.revision]
