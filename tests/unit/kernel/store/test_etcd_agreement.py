"""The etcd store and the memory store agree, whatever is done to them one after the other."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import Store
from tests.unit.kernel.store.etcd_process import running
from tests.unit.kernel.store.test_agreement import TwoStores


class MemoryAndEtcd(TwoStores):
    """The same game as with SQLite, with a new etcd for every example."""

    def prepare(self) -> None:
        self.stack = ExitStack()
        self.cluster = self.stack.enter_context(running())
        self.run(self.cluster.wait_healthy())

    async def open(self) -> Store:
        return await EtcdStore.open(self.cluster.urls)

    def discard(self) -> None:
        self.stack.close()

    def commit_together(self, **_: Any) -> None:
        """No rule here: side by side, etcd's order is as good as any, but not memory's."""


@pytest.mark.starts
@pytest.mark.system_package("etcd")
class TestEtcdAgreement(MemoryAndEtcd.TestCase):
    """Examples are few, because each starts an etcd."""


TestEtcdAgreement.settings = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
