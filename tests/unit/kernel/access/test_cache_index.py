"""An index over a cache equals the cache, with or without notifications."""

from collections.abc import AsyncIterator

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from tests.unit.features.rights.policy_world import meta, policy_world
from tests.unit.kernel.access.world import World


class Names:
    """The names of all accounts, and the number of rebuilds."""

    def __init__(self, here: World) -> None:
        self.known: dict[str, str] = {}
        self.builds = 0
        self.index = CacheIndex(here.feed.of(ServiceAccount), self._changed, self._cleared)

    def _changed(self, key: str, entry: Entry[ServiceAccount] | None) -> None:
        self.known.pop(key, None)
        if entry is not None:
            self.known[key] = entry.meta.name

    def _cleared(self) -> None:
        self.builds += 1
        self.known.clear()

    def current(self) -> list[str]:
        self.index.catch_up()
        return sorted(self.known.values())


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A world with one account."""
    async with policy_world() as made:
        await made.put(account("first"))
        yield made


def account(name: str) -> ServiceAccount:
    return ServiceAccount(metadata=meta(name, "ci"))


async def test_it_finds_what_is_there_and_follows(here: World) -> None:
    """The index is built once and then updated by notifications."""
    names = Names(here)

    assert names.current() == ["first"]
    await here.put(account("second"))
    await here.delete(account("first"))
    assert names.current() == ["second"]
    assert names.builds == 1


async def test_it_catches_up_without_a_notification(here: World) -> None:
    """The index reads the recent changes of the cache when it is used."""
    names = Names(here)
    names.current()
    names.index.close()

    await here.put(account("second"))

    assert names.known == {"core/serviceaccounts/ci/first": "first"}
    assert names.current() == ["first", "second"]
    assert names.builds == 1


async def test_forgetting_what_was_seen_costs_nothing(here: World) -> None:
    """Compaction drops changes that the index has seen; it must not rebuild."""
    names = Names(here)
    names.current()

    await here.put(account("second"))
    here.feed.forget_before(here.feed.revision)
    await here.put(account("third"))

    assert names.current() == ["first", "second", "third"]
    assert names.builds == 1


async def test_dropped_changes_make_the_index_rebuild(here: World) -> None:
    """An index that missed changes which were dropped reads the cache again."""
    names = Names(here)
    names.current()
    names.index.close()

    await here.delete(account("first"))
    await here.put(account("second"))
    here.feed.forget_before(here.feed.revision)

    assert names.current() == ["second"]
    assert names.builds == 2
