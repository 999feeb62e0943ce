"""Stores that earlier commits wrote are opened by this version, and nothing in them is lost."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchid.kernel.base.version import __version__
from orchid.kernel.store import format as store_format
from orchid.kernel.store.interface import Span
from orchid.kernel.store.sqlite.store import SQLiteStore
from tests.e2e.https import Https
from tests.e2e.serving import running_server, sealing_flags
from tests.unit.kernel.store import etcd_process
from tests.upgrades.population import ADMIN, CORE, FLAGS, SIGNING, decoded, problems
from tests.upgrades.recording import Recording, put, recordings

LARGEST_FILE = 250_000
# Decided requests and Events end after a while, Leases of servers when their process is gone.
ENDING = ("certificates/certificatesigningrequests/", "core/events/", "coordination/leases/")
every_recording = pytest.mark.parametrize(
    "recording", recordings(), ids=lambda recording: recording.commit
)


@pytest.fixture
def etcd() -> Iterator[str]:
    """The address of a new etcd."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        yield cluster.urls[0]


@every_recording
def test_data_directory_is_opened_and_nothing_is_lost(recording: Recording, tmp_path: Path) -> None:
    """Every object, the key of tokens, and every credential; a revoked one stays revoked."""
    data, made = recording.copy_data(tmp_path / "data"), recording.population("sqlite")
    before = asyncio.run(keys_of(data / "orchid.db"))

    with running_server(data, *FLAGS, *SIGNING) as server, Https(server.port) as https:
        found = problems(https, server.port, made)
        issued = https.send(
            "POST", f"{CORE}/team/serviceaccounts/builder/token", {"spec": {}}, token=ADMIN
        ).json["status"]["token"]

    after = asyncio.run(keys_of(data / "orchid.db"))
    assert found == []
    assert json.loads(decoded(issued.split(".")[0]))["kid"] == made.key_id
    assert {key for key in before - after if not key.startswith(ENDING)} == set()
    assert store_format.KEY in after


async def keys_of(path: Path) -> set[str]:
    """The keys of all objects, and of the server's own records; the ledger moves its entries."""
    store = await SQLiteStore.open(path)
    try:
        page = await store.read(Span.all())
        return {one.key for one in page.records if not one.key.startswith("~ledger")}
    finally:
        await store.close()


@pytest.mark.parametrize(
    "recording", [recordings()[0], recordings()[-1]], ids=lambda recording: recording.commit
)
@pytest.mark.system_package("etcd")
def test_etcd_is_opened_and_nothing_is_lost(
    recording: Recording, tmp_path: Path, etcd: str
) -> None:
    """The same for servers over etcd, with the same files of keys."""
    data, made = recording.copy_data(tmp_path / "data"), recording.population("etcd")
    asyncio.run(put(etcd, recording.writes()))
    flags = (*FLAGS, *SIGNING, *sealing_flags(data), "--etcd-servers", etcd)

    with running_server(data, *flags) as server, Https(server.port) as https:
        found = problems(https, server.port, made)

    assert found == []


@every_recording
def test_recording_is_small_and_of_an_earlier_version(recording: Recording) -> None:
    """A recording that this version has touched would prove nothing."""
    large = [
        path.name
        for path in recording.path.rglob("*")
        if path.is_file() and path.stat().st_size > LARGEST_FILE
    ]
    written = dict(recording.writes()).get(store_format.KEY, b"{}")

    assert large == []
    assert json.loads(written).get("writtenBy", "") != __version__


def test_there_is_a_recording_of_the_time_before_the_format() -> None:
    """Those stores have no record of a format."""
    formats = [store_format.KEY in dict(recording.writes()) for recording in recordings()]

    assert False in formats
