"""The tables of an index have the rows of the objects that are there, and no others."""

import random
from collections.abc import AsyncIterator, Iterator

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.engine.cache.entry import Entry
from tests.unit.features.rights.policy_world import meta, policy_world
from tests.unit.kernel.access.world import World

PREFIX = "core/serviceaccounts/"


class Labels:
    """Accounts by their labels, and by the length of their names; those named none have no row."""

    def __init__(self, here: World) -> None:
        self.by_label: Table[str, str] = {}
        self.by_length: Table[int, None] = {}
        self.index = KeyedIndex(here.feed.of(ServiceAccount), self._rows)

    def _rows(self, _: str, entry: Entry[ServiceAccount]) -> Iterator[Row]:
        if entry.meta.name == "none":
            return
        yield self.by_length, len(entry.meta.name), None
        for label, value in entry.meta.labels.items():
            yield self.by_label, label, value
            yield self.by_label, label, value  # once more: it stays one row

    def current(self) -> tuple[Table[str, str], Table[int, None], int]:
        self.index.catch_up()
        return self.by_label, self.by_length, len(self.index)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with policy_world() as made:
        yield made


def account(name: str, **labels: str) -> ServiceAccount:
    return ServiceAccount(metadata=meta(name, "ci", labels=labels))


async def test_the_rows_of_an_object_follow_it(here: World) -> None:
    """A changed object leaves its earlier places; a key without values is in no table."""
    labels = Labels(here)
    key = f"{PREFIX}ci/a"
    await here.put(account("a", team="web"))
    assert labels.current() == ({"team": {key: "web"}}, {1: {key: None}}, 1)

    await here.put(account("a", team="mail", tier="1"))
    assert labels.current()[0] == {"team": {key: "mail"}, "tier": {key: "1"}}
    await here.delete(account("a"))
    assert labels.current() == ({}, {}, 0)


async def test_an_object_without_rows_is_not_counted(here: World) -> None:
    labels = Labels(here)

    await here.put(account("none", team="web"))

    assert labels.current() == ({}, {}, 0)


async def test_the_tables_are_those_of_an_index_that_begins_now(here: World) -> None:
    """Whatever was stored and deleted before, and in which order."""
    labels, chance = Labels(here), random.Random(4)
    names = ["a", "b", "cc", "none"]
    for _ in range(60):
        name = chance.choice(names)
        if chance.random() < 0.3 and f"{PREFIX}ci/{name}" in here.feed.of(ServiceAccount).entries:
            await here.delete(account(name))
        else:
            keys = chance.sample(["team", "tier", "zone"], chance.randint(0, 3))
            await here.put(account(name, **{key: chance.choice("12") for key in keys}))
        if chance.random() < 0.5:
            assert labels.current() == Labels(here).current()
    assert labels.current() == Labels(here).current()


async def test_a_rebuilt_index_has_nothing_twice(here: World) -> None:
    labels = Labels(here)
    await here.put(account("a", team="web"))
    before = labels.current()

    labels.index._build()

    assert labels.current() == before
