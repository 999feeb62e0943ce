"""A server for each test, over files that are made once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.accounts.policies import service_account
from orchid.kernel.engine.verbs import read
from tests.api.world import Api, api


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "data"


@pytest.fixture
async def server(server_files: Path) -> AsyncIterator[Api]:
    async with api(server_files) as made:
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a revision or an account that will not come."""
    monkeypatch.setattr(read, "FUTURE_PATIENCE", 0.01)
    monkeypatch.setattr(service_account, "PATIENCE", 0.01)
