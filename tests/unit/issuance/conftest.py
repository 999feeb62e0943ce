"""Fixtures of the tests in this directory; the world is that of the tests of access."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.access.world import World, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """An empty world with a feed."""
    async with world() as made:
        yield made
