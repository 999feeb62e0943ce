"""The memory backend does what every store must."""

from collections.abc import AsyncIterator

import pytest

from orchid.kernel.store.interface import Store
from orchid.kernel.store.memory import MemoryStore
from tests.unit.kernel.store.suite import StoreSuite


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = MemoryStore()
    yield store
    await store.close()


class TestMemoryStore(StoreSuite):
    """Everything is in the suite."""
