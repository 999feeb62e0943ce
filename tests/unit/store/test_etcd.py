"""The etcd backend does what every store must."""

from collections.abc import AsyncIterator

import pytest

from orchid.store.etcd import EtcdStore
from tests.unit.store.etcd_process import Cluster, running
from tests.unit.store.suite import StoreSuite

pytestmark = pytest.mark.system_package("etcd")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with running() as cluster:
        await cluster.wait_healthy()
        yield cluster


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(cluster.urls)
    yield store
    await store.close()


class TestEtcdStore(StoreSuite):
    """The suite that every backend passes."""
