"""Fixtures of unit tests: a server over files that are made once, and a world with a feed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.access.world import World
from tests.unit.kernel.access.world import world as empty_world


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("controlled") / "data"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """An empty world with a feed."""
    async with empty_world() as made:
        yield made
