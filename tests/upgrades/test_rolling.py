"""Servers of two versions over one etcd, one replaced after the other, while clients use them."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.https import Https
from tests.unit.kernel.store import etcd_process
from tests.upgrades import old_code, run
from tests.upgrades.load import Load
from tests.upgrades.recording import put, recordings
from tests.upgrades.rolling import pair

pytestmark = pytest.mark.system_package("etcd")

ROUNDS = int(os.environ.get("ORCHID_UPGRADE_ROUNDS", "20"))


@pytest.fixture
def etcd() -> Iterator[str]:
    """The address of a new etcd."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        yield cluster.urls[0]


def test_writes_of_an_earlier_version_arrive_at_servers_of_this_one(
    etcd: str, tmp_path: Path
) -> None:
    """As in a rolling upgrade: recorded writes of the old server reach running new ones."""
    recording = recordings()[-1]
    before, during = recording.before_and_during()
    asyncio.run(put(etcd, before))
    data = recording.copy_data(tmp_path / "server-0")
    shutil.copy(data / "encryption.yaml", tmp_path)
    with pair(tmp_path, etcd) as servers:
        for number in (0, 1):
            servers.start(number)
        with Load(servers.ports) as load:
            asyncio.run(put(etcd, during))
            load.until_more(ROUNDS)
        found = servers.problems(recording.population("etcd"))
        for port in servers.ports:
            with Https(port) as https:
                found += load.lost(https)

    assert len(during) > 20
    assert found + load.failures == []


def test_two_servers_are_replaced_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real program of an earlier commit, where the clone has it: `make upgrade`."""
    commit = recordings()[-1].commit
    if not old_code.has(commit):
        pytest.skip(f"a clone without the commit {commit}; recorded writes stand for it")
    monkeypatch.setattr(run, "ROUNDS", ROUNDS)

    with old_code.source_of(commit) as old:
        lost = run.on_etcd(tmp_path, old, goes_back=False)

    assert lost == []
