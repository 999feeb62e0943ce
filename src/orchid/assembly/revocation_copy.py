"""A copy of all revocations in a file, so that an old backup makes no revoked credential valid.

Each change is appended as a line (`{"key": …, "object": …}`, the object null when it is gone). When
a server starts on a restored database, it puts back what the file has and the database lacks,
unless the revocation has expired. With etcd there is no file: whoever restores etcd has to take
care of that.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from orchid.clock import Clock
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.kind_cache import ObjectChange
from orchid.engine.cache.objects import stored_form
from orchid.kinds.credential_revocation import CredentialRevocation
from orchid.settings import Settings
from orchid.store.interface import ABSENT, Change, RevisionConflict, Store

log = logging.getLogger(__name__)

FILE: Final = "revocations.jsonl"
LONGEST: Final = 512 << 20  # bytes; far more than any number of revocations needs


class RevocationCopy:
    """The file of one server."""

    def __init__(self, path: Path, feed: Feed, store: Store, clock: Clock) -> None:
        self._path = path
        self._feed = feed
        self._store = store
        self._clock = clock
        self._cache = feed.of(CredentialRevocation)
        self._lines: list[bytes] = []
        self._changed = asyncio.Event()

    async def put_back(self) -> None:
        """Store what the file has and the database lacks."""
        await self._feed.fresh()
        now = self._clock.now()
        for key, data in (await asyncio.to_thread(read, self._path)).items():
            if key in self._cache.entries or not key.startswith(self._cache.kind.key_prefix):
                continue
            try:
                found = self._cache.kind.decoder.stored(data)
            except msgspec.MsgspecError:
                log.error("revocation.unreadable", extra={"key": key})
                continue
            if found.status.expires is not None and found.status.expires <= now:
                continue
            try:
                await self._store.commit([Change(key, stored_form(found), ABSENT)])
            except RevisionConflict:
                continue  # another server was faster
            log.warning("revocation.put_back", extra={"revocation": found.name})
        await self._feed.fresh()

    async def run(self) -> None:
        """Keep the file current until cancelled."""
        await self._feed.fresh()
        self._cache.listen(self, self._told, self._lost)
        try:
            while True:
                self._lines.clear()
                await asyncio.to_thread(write, self._path, self._whole())
                await self._follow()
        finally:
            self._cache.forget(self)

    async def _follow(self) -> None:
        """Append changes, until the whole file has to be written again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            lines, self._lines = self._lines, []
            if not lines:
                return
            await asyncio.to_thread(append, self._path, lines)

    def _whole(self) -> list[bytes]:
        return [line(key, entry) for key, entry in self._cache.entries.items()]

    def _told(self, changes: list[ObjectChange[CredentialRevocation]]) -> None:
        self._lines += [line(change.key, change.new) for change in changes]
        self._changed.set()

    def _lost(self) -> None:
        self._lines.clear()
        self._changed.set()


def copy_of(settings: Settings, feed: Feed, store: Store, clock: Clock) -> RevocationCopy | None:
    """The copy, if the store is the embedded database."""
    given = settings.given
    if given.etcd_servers or given.store != "sqlite":
        return None
    return RevocationCopy(settings.data_dir / FILE, feed, store, clock)


def line(key: str, entry: Entry[Any] | None) -> bytes:
    data = msgspec.Raw(entry.data) if entry else None
    return msgspec.json.encode({"key": key, "object": data}) + b"\n"


class _Line(msgspec.Struct):
    key: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(_Line).decode


def read(path: Path) -> dict[str, bytes]:
    """What the file says is revoked, by key. A line that was cut off by a crash is left out."""
    found: dict[str, bytes] = {}
    if not path.exists() or path.stat().st_size > LONGEST:
        return found
    for text in path.read_bytes().splitlines():
        try:
            told = _decode(text)
        except msgspec.MsgspecError:
            continue
        if bytes(told.object) == b"null":
            found.pop(told.key, None)
        else:
            found[told.key] = bytes(told.object)
    return found


def write(path: Path, lines: list[bytes]) -> None:
    """Replace the file."""
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def append(path: Path, lines: list[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
