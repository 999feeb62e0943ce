"""The longest lifetime of tokens: when it is stored, and which ends follow from it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest

from orchid.features.accounts.kinds import service_account
from orchid.features.accounts.token_lifetimes import HOUR, LONGEST, NAME, SINCE, TokenLifetimes
from orchid.features.objects.kinds import config_map
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.engine.internal_writes import InternalObjects
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.unit.kernel.access.presenting import START
from tests.unit.kernel.access.world import World, world_of

SECOND = timedelta(seconds=1)


class Objects:
    """Writes to a world as a server writes to its store."""

    def __init__(self, here: World) -> None:
        self._here = here

    async def get(self, _type: type, namespace: str, name: str) -> ConfigMap | None:
        entry = self._here.feed.of(ConfigMap).get(namespace, name)
        return entry.object if entry else None

    async def update(self, new: ConfigMap) -> None:
        await self._here.put(new)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world_of(config_map.declare(ORCH), service_account.declare(ORCH)) as made:
        yield made


async def lifetimes(here: World, longest: int) -> TokenLifetimes:
    data = {LONGEST: str(longest), SINCE: timestamp(START)}
    meta = ObjectMeta(name=NAME, namespace=ORCH.system_namespace, uid="u")
    await here.put(ConfigMap(metadata=meta, data=data))
    objects: Any = Objects(here)
    return TokenLifetimes(here.feed, lambda: cast(InternalObjects, objects), ORCH, here.clock)


async def test_a_lifetime_that_is_a_second_longer_is_stored(here: World) -> None:
    """No token lives longer than what is stored, not even for a moment."""
    found = await lifetimes(here, HOUR)

    await found.note(HOUR)
    equal = found.longest
    await found.note(HOUR + 1)

    assert (equal, found.longest) == (HOUR, 2 * HOUR)


async def test_an_end_is_known_of_accounts_as_old_as_the_record(here: World) -> None:
    """Of one that was created a second before it, tokens may have been issued that nobody noted."""
    found = await lifetimes(here, 2 * HOUR)

    assert found.end_of(START, START) == START + timedelta(hours=2)
    assert found.end_of(START, START - SECOND) is None
    assert found.end_of(START, None) is None


async def test_an_end_is_an_hour_away_at_least(here: World) -> None:
    """Also while no token is known: one may be on its way."""
    found = await lifetimes(here, 0)

    assert found.end_of(START, START) == START + timedelta(hours=1)
