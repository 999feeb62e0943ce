"""The engine that these tests share."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.kernel.engine.world import Engine, engine


@pytest.fixture
async def world() -> AsyncIterator[Engine]:
    async with engine() as made:
        yield made
