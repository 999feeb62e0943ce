"""All objects moved to etcd and back by the command, and the reasons to refuse it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from orchid.features.revoking import revocation_file
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.migrate import MOVED
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.wire.naming import SEALED_VALUE
from tests.unit.kernel.store import etcd_process


def migrate(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Type the command; a traceback is never seen."""
    command = [sys.executable, "-m", "orchid", "migrate", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr or done.stdout
    return done


async def fill(directory: Path, count: int) -> None:
    await asyncio.to_thread(directory.mkdir, 0o700)
    store = await SQLiteStore.open(directory / "orchid.db")
    for number in range(count):
        await store.commit([Change(f"/things/{number:04}", b"%d" % number, ABSENT)])
    await store.close()


async def contents(directory: Path) -> list[tuple[str, bytes]]:
    store = await SQLiteStore.open(directory / "orchid.db")
    try:
        found = (await store.read(Span.all())).records
        return [(each.key, each.value) for each in found if each.key != MOVED]
    finally:
        await store.close()


async def test_revocations_that_wait_for_the_server_are_not_left_behind(tmp_path: Path) -> None:
    """After a restore they are in the file beside the database alone."""
    await fill(tmp_path / "first", 3)
    key, waiting = "identity/credentialrevocations/", b'{"metadata":{"uid":"1"}}'
    place = tmp_path / "first" / revocation_file.FILE
    revocation_file.append(place, [revocation_file.line(f"{key}stolen", waiting)])

    words = ("--from", str(tmp_path / "first"), "--to-etcd", "http://127.0.0.1:1")
    done = await asyncio.to_thread(migrate, *words, code=1)

    assert "revocations that the database lacks: stolen" in done.stderr


@pytest.mark.system_package("etcd")
async def test_what_is_sealed_needs_its_key_on_the_other_side_too(tmp_path: Path) -> None:
    """Sealed values are moved as they are, and the command says with what they are read."""
    await fill(tmp_path / "first", 3)
    store = await SQLiteStore.open(tmp_path / "first" / "orchid.db")
    await store.commit([Change("/secret", SEALED_VALUE + b"aesgcm:v1:key1:", ABSENT)])
    await store.close()
    own = tmp_path / "first" / "encryption.yaml"
    own.touch(0o600)
    with etcd_process.running() as cluster:
        await cluster.wait_healthy()
        urls = ",".join(member.url for member in cluster.members)

        there = await asyncio.to_thread(
            migrate, "--from", str(tmp_path / "first"), "--to-etcd", urls
        )
        home = await asyncio.to_thread(
            migrate, "--from-etcd", urls, "--to", str(tmp_path / "second")
        )

    hint = "sealed are 1 of them: start"
    assert there.stdout.splitlines()[1] == (
        f"{hint} every server with --encryption-provider-config {own}"
    )
    assert home.stdout.splitlines()[1].startswith(f"{hint} the server with the same")


@pytest.mark.system_package("etcd")
async def test_objects_go_to_etcd_and_come_back(tmp_path: Path) -> None:
    """The same keys and values arrive, twice; a target that holds something is left alone."""
    await fill(tmp_path / "first", 250)
    with etcd_process.running() as cluster:
        await cluster.wait_healthy()
        urls = ",".join(member.url for member in cluster.members)

        to = ("--from", str(tmp_path / "first"), "--to-etcd", urls)
        back = ("--from-etcd", urls, "--to", str(tmp_path / "second"))
        there = await asyncio.to_thread(migrate, *to)
        again = await asyncio.to_thread(migrate, *to, code=1)
        home = await asyncio.to_thread(migrate, *back)
        await asyncio.to_thread(migrate, "--undo", *to[:2])
        full = await asyncio.to_thread(migrate, *to, code=1)

    assert full.stderr == "orchid: the target is not empty\n"
    assert there.stdout.startswith("moved 250 objects (SHA-256 ")
    assert there.stdout.split(";")[0] == home.stdout.split(";")[0]
    assert again.stderr.startswith("orchid: this store was moved to etcd at http://127.0.0.1:")
    assert await contents(tmp_path / "second") == await contents(tmp_path / "first")
    assert (tmp_path / "second").stat().st_mode & 0o077 == 0


def test_store_in_use_is_not_moved(tmp_path: Path) -> None:
    """A server that runs on the source would go on writing to it."""

    async def while_open() -> subprocess.CompletedProcess[str]:
        await fill(tmp_path / "data", 1)
        store = await SQLiteStore.open(tmp_path / "data" / "orchid.db")
        try:
            words = ("--from", str(tmp_path / "data"), "--to-etcd", "http://127.0.0.1:1")
            return await asyncio.to_thread(migrate, *words, code=1)
        finally:
            await store.close()

    assert "is in use by process" in asyncio.run(while_open()).stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--from", "a"),
        ("--from", "a", "--to", "b"),
        ("--from-etcd", "http://a:1", "--to-etcd", "http://b:1"),
    ],
)
def test_one_side_is_a_directory_and_the_other_etcd(words: tuple[str, ...]) -> None:
    """Everything else is a mistake in typing."""
    migrate(*words, code=2)


@pytest.mark.system_package("etcd")
async def test_a_store_that_was_moved_is_not_served(tmp_path: Path) -> None:
    """Nor is the etcd that was left, after the way back; nothing else uses such a store."""
    first, second = tmp_path / "first", tmp_path / "second"
    await fill(first, 3)
    with etcd_process.running() as cluster:
        await cluster.wait_healthy()
        url = cluster.urls[0]
        etcd = ("--etcd-servers", url, "--data-dir", str(tmp_path / "etcd"))
        await asyncio.to_thread(migrate, "--from", str(first), "--to-etcd", url)
        served = await asyncio.to_thread(orchid, "serve", "--data-dir", str(first))
        saved = await asyncio.to_thread(
            orchid, "backup", str(tmp_path / "copy"), "--data-dir", str(first)
        )
        restored = await asyncio.to_thread(
            orchid, "restore", str(first / "orchid.db"), "--data-dir", str(first)
        )
        looked = await asyncio.to_thread(orchid, "doctor", "--data-dir", str(first))
        await asyncio.to_thread(migrate, "--from-etcd", url, "--to", str(second))
        left = await asyncio.to_thread(orchid, "serve", *etcd)

    assert [one.returncode for one in (served, saved, restored, left)] == [2, 2, 2, 2]
    there = f"this store was moved to etcd at {url} with the prefix /orchid, 20"
    assert all(there in one.stderr for one in (served, saved, restored))
    assert there in looked.stdout
    assert f"this store was moved to {second / 'orchid.db'}, 20" in left.stderr


def orchid(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchid", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
