"""A server for each test, over files that are made once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.controllers.beside import Beside, beside


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("controlled") / "data"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made
