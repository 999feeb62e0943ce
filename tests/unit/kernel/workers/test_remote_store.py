"""A store in another process does what every store must."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.kernel.store.interface import Store
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.workers import remote_store, store_server
from tests.unit.kernel.store.suite import StoreSuite
from tests.unit.kernel.workers.linked import linked


class TestRemoteStore(StoreSuite):
    """The suite that every backend passes, with a file at the other end."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with linked(await SQLiteStore.open(tmp_path / "orchid.db")) as parent:
            store = await parent.connect()
            yield store
            await store.close()


class TestSmallSteps(TestRemoteStore):
    """The suite again, with pages and pushes so small that all seams show."""

    @pytest.fixture(autouse=True)
    def small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote_store, "RECORDS_PER_READ", 3)
        monkeypatch.setattr(remote_store, "TAIL_BYTES", 64)
        monkeypatch.setattr(store_server, "LARGEST_PAGE", 16)
        monkeypatch.setattr(store_server, "LARGEST_BATCH", 100)
