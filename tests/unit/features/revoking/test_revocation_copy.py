"""The copy of revocations follows the store, also across a disk that takes nothing for a while."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revoking import revocation_copy, revocation_file
from orchid.features.revoking.revocation_copy import RevocationCopy
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.engine.world import following

KIND = credential_revocation.declare(ORCH)


async def test_a_file_that_cannot_be_written_catches_up_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on meanwhile, and says why; what was revoked then gets into the file."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    async with copied(path, store):
        await until(path.exists)
        path.unlink()
        path.mkdir()  # as good as a full disk: no line can be added, nor the file be replaced
        await revoke(store, "a")
        await until(lambda: "revocation.copy_not_written" in caplog.text)
        await revoke(store, "b")
        path.rmdir()

        await until(lambda: path.exists() and len(revocation_file.read(path)) == 2)

    assert sorted(revocation_file.read(path)) == [KIND.key("", "a"), KIND.key("", "b")]


async def test_a_file_of_many_changes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it never has more than a server reads, however often something is revoked."""
    monkeypatch.setattr(revocation_copy, "REWRITTEN_AFTER", 1)
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    async with copied(path, store):
        await until(path.exists)
        for name in ("a", "b", "c"):
            made = await revoke(store, name)
            await store.commit([Change(KIND.key("", name), None, made)])

        await until(lambda: path.stat().st_size == 0)


async def test_a_file_is_written_again_when_changes_were_missed(tmp_path: Path) -> None:
    """Missed changes are not sent again, so the file is written from the current objects."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    await revoke(store, "a")
    async with copied(path, store) as feed:
        await until(path.exists)
        path.write_bytes(b"")  # as if the change had never come

        for listener in feed.of(credential_revocation.CredentialRevocation).listeners.values():
            if listener.lost is not None:
                listener.lost()

        await until(lambda: list(revocation_file.read(path)) == [KIND.key("", "a")])


async def test_a_file_that_is_too_large_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read it as empty would make revoked credentials valid after a restore."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    revocation_file.write(path, [revocation_file.line(KIND.key("", "a"), b"{}")])
    monkeypatch.setattr(revocation_file, "LONGEST", 10)
    feed = Feed(store, Catalog([KIND]))
    async with following(feed):
        copy = RevocationCopy(path, feed, store, SystemClock())
        with pytest.raises(revocation_file.FileTooLarge, match="may become valid"):
            await copy.put_back()


def asides(directory: Path) -> list[Path]:
    """The damaged files that were set aside."""
    return list(directory.glob("revocations.jsonl.unreadable-*"))


@asynccontextmanager
async def read(store: MemoryStore) -> AsyncIterator[Feed]:
    """A feed that has read everything."""
    feed = Feed(store, Catalog([KIND]))
    async with following(feed):
        await feed.wait_loaded()
        yield feed


async def test_a_damaged_file_is_reported_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its good lines count; the next write does not lose the others."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    made = await revoke(store, "a")
    (record,) = (await store.read(Span.key(KIND.key("", "a")))).records
    await store.commit([Change(record.key, None, made)])
    damaged = b"garbage\n" + revocation_file.line(KIND.key("", "b"), record.value)
    path.write_bytes(damaged)

    async with read(store) as feed:
        await RevocationCopy(path, feed, store, SystemClock()).put_back()
    path.unlink()

    assert [one.read_bytes() for one in asides(tmp_path)] == [damaged]
    assert len((await store.read(Span.key(KIND.key("", "b")))).records) == 1
    assert "revocation.copy_unreadable" in caplog.text


async def test_a_file_that_cannot_be_opened_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server starts with what the database has."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    path.mkdir()

    async with read(store) as feed:
        await RevocationCopy(path, feed, store, SystemClock()).put_back()

    assert "revocation.copy_unreadable" in caplog.text


@pytest.mark.parametrize("restored", [False, True])
async def test_a_lifted_hold_stays_lifted_unless_a_backup_was_restored(
    tmp_path: Path, restored: bool
) -> None:
    """A crash may leave a deleted revocation in the file; only a restore clears the history."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    made = await revoke(store, "a")
    [record] = (await store.read(Span.key(KIND.key("", "a")))).records
    revocation_file.write(path, [revocation_file.line(record.key, record.value)])
    lifted = await store.commit([Change(KIND.key("", "a"), None, made)])
    if restored:
        await store.compact(lifted)
    async with read(store) as feed:
        await RevocationCopy(path, feed, store, SystemClock()).put_back()

    assert len((await store.read(Span.key(KIND.key("", "a")))).records) == restored


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("rbac/clusterrolebindings/admin", b"{}"),
        (KIND.key("", "a"), b'{"expires":"2020-01-01T00:00:00Z"}'),
    ],
)
async def test_only_revocations_that_have_not_expired_are_put_back(
    tmp_path: Path, key: str, status: bytes
) -> None:
    """The file can add revocations, but no other objects."""
    path, store = tmp_path / revocation_file.FILE, MemoryStore()
    body = KIND.head + b'"metadata":{"name":"a","uid":"u"},"status":%b}' % status
    revocation_file.write(path, [revocation_file.line(key, body)])
    feed = Feed(store, Catalog([KIND]))
    async with following(feed):
        await feed.wait_loaded()

        await RevocationCopy(path, feed, store, SystemClock()).put_back()

    assert (await store.read(Span.all())).records == []


@asynccontextmanager
async def copied(path: Path, store: MemoryStore) -> AsyncIterator[Feed]:
    feed = Feed(store, Catalog([KIND]))
    async with following(feed):
        await feed.wait_loaded()
        copy = RevocationCopy(path, feed, store, SystemClock(), retry_seconds=0.01)
        running = asyncio.create_task(copy.run())
        try:
            yield feed
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def revoke(store: MemoryStore, name: str) -> int:
    body = KIND.head + b'"metadata":{"name":"%b","uid":"u"}}' % name.encode()
    return await store.commit([Change(KIND.key("", name), body, ABSENT)])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a file sets no event
            await asyncio.sleep(0.001)
