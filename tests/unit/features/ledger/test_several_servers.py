"""Several servers over one etcd write one log, each from what it sees there itself."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from orchid.features.ledger.reading import StoredLog
from orchid.features.ledger.sequencing import Sequencer
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.tlog.audit import audit, entries
from tests.unit.features.ledger.logs import VERIFIER, leave_pending, sequencer
from tests.unit.kernel.store.etcd_process import running

pytestmark = pytest.mark.system_package("etcd")

SERVERS, EACH = 3, 120


async def test_servers_that_append_at_once_write_one_log() -> None:
    """Every entry of every server is in the log once, across full tiles, and the log verifies."""
    with running() as cluster:
        await cluster.wait_healthy()
        async with AsyncExitStack() as closing:
            stores = [await EtcdStore.open(cluster.urls) for _ in range(SERVERS)]
            for store in stores:
                closing.push_async_callback(store.close)
            done = asyncio.Event()
            logging = [asyncio.create_task(_log(sequencer(store), done)) for store in stores]
            writing = (leave_pending(s, n * EACH, EACH) for n, s in enumerate(stores))
            await asyncio.gather(*writing)
            done.set()
            await asyncio.gather(*logging)
            await sequencer(stores[0]).drain()

            log = StoredLog(stores[-1])
            assert (await audit(log, VERIFIER)).size == SERVERS * EACH
            found = [json.loads(entry)["number"] async for entry in entries(log, SERVERS * EACH)]
            assert sorted(found) == list(range(SERVERS * EACH))


async def _log(one: Sequencer, done: asyncio.Event) -> None:
    while not done.is_set():
        await one.step()
        await asyncio.sleep(0)
