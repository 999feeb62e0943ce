"""The memory backend does what every store must."""

from collections.abc import AsyncIterator

import pytest

from orchid.store.interface import Store
from orchid.store.memory import MemoryStore
from tests.unit.store.suite import StoreSuite


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = MemoryStore()
    yield store
    await store.close()


class TestMemoryStore(StoreSuite):
    """Everything is in the suite."""
