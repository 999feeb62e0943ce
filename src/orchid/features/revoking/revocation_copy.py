"""A copy of all revocations in a file, so that an old backup makes no revoked credential valid.

Each change is appended as a line (features/revoking/revocation_file.py). When a server starts on a
restored database, it stores every revocation of the file that the database lacks, unless it has
expired, together with an entry of the ledger, which the restore has rolled back too. A hold that
was lifted right before a crash may still be in the file: what the database itself has deleted, by
its history, which a restore clears, stays deleted. If the database has another revocation of the
same name, the one of the file gets a new name, and both count. A file with lines that cannot be
read is set aside, since the next write would lose them. A file that cannot be written is tried
again. With etcd there is no file: a restore of etcd loses revocations.
"""

import asyncio
import contextlib
import logging
from contextlib import aclosing
from pathlib import Path

import msgspec

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    restored,
    revoked_keys,
)
from orchid.features.revoking import revocation_file
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.files import set_aside
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import ObjectChange
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.tombstones import tombstone_changes
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Span, Store

RETRY_SECONDS = 5.0
REWRITTEN_AFTER = 32 << 20  # bytes of changes; a file that is too large cannot be read again

log = logging.getLogger(__name__)


class RevocationCopy:
    """The file of one server."""

    def __init__(
        self,
        path: Path,
        feed: Feed,
        store: Store,
        clock: Clock,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._path = path
        self._retry_seconds = retry_seconds
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
        copied = await asyncio.to_thread(self._read)
        entries = self._cache.entries
        unlike = [k for k, data in copied.items() if k not in entries or entries[k].data != data]
        deleted = await self._deleted() if unlike else ()
        for key in unlike:
            if key in deleted or not key.startswith(self._cache.kind.key_prefix):
                continue
            try:
                revocation = self._cache.kind.decoder.stored(copied[key])
            except msgspec.MsgspecError:
                log.error("revocation.unreadable", extra={"key": key})
                continue
            existing = entries.get(key)
            if revocation.has_expired(now) or (
                existing and existing.meta.uid == revocation.metadata.uid
            ):
                continue
            store_key = key
            if existing:  # a hold of that name was lifted after the backup; the name is taken
                revocation = revocation.with_meta(
                    name=f"{revocation.name[:200]}-{revocation.metadata.uid[:8]}"
                )
                store_key = self._cache.kind.key("", revocation.name)
            more = store_keys.pending([restored(revocation)], revocation.metadata.uid, now)
            more += await tombstone_changes(self._store, revoked_keys(revocation, None))
            try:
                await self._store.commit(
                    [Change(store_key, stored_form(revocation), ABSENT), *more]
                )
            except RevisionConflict:
                continue  # another server was faster
            log.warning("revocation.put_back", extra={"revocation": revocation.name})
        await self._feed.fresh()

    def _read(self) -> dict[str, bytes]:
        """The revocations in the file; one that is damaged is reported and set aside."""
        try:
            objects, unreadable = revocation_file.read_counted(self._path)
        except OSError as failure:
            log.error("revocation.copy_unreadable", extra={"problem": str(failure)})
            return {}
        if unreadable:
            log.error("revocation.copy_unreadable", extra={"problem": f"{unreadable} lines"})
            with contextlib.suppress(OSError):  # not writable: a condition of its own
                set_aside(self._path, self._clock.now())
        return objects

    async def _deleted(self) -> set[str]:
        """The keys of revocations that were deleted in the history of this database."""
        span = Span.prefix(self._cache.kind.key_prefix)
        page = await self._store.read(span, limit=1)
        keys: set[str] = set()
        reached = page.oldest
        async with aclosing(self._store.watch(span, after=reached)) as batches:
            while reached < page.revision:
                batch = await anext(batches)
                reached = batch.revision
                keys.update(event.key for event in batch.events if event.value is None)
        return keys

    async def run(self) -> None:
        """Keep the file current until cancelled."""
        await self._feed.fresh()
        self._cache.listen(self, self._on_changes, self._lost)
        try:
            while True:
                try:
                    await self._keep_current()
                except OSError as problem:  # no room; the server goes on, and the file catches up
                    log.error("revocation.copy_not_written", extra={"problem": problem.strerror})
                    await asyncio.sleep(self._retry_seconds)
        finally:
            self._cache.forget(self)

    async def _keep_current(self) -> None:
        """Write the whole file, then append changes, until it has to be written whole again."""
        self._lines.clear()
        await asyncio.to_thread(revocation_file.write, self._path, self._whole())
        appended = 0
        while appended < REWRITTEN_AFTER:
            await self._changed.wait()
            self._changed.clear()
            lines, self._lines = self._lines, []
            if not lines:
                return
            await asyncio.to_thread(revocation_file.append, self._path, lines)
            appended += sum(map(len, lines))

    def _whole(self) -> list[bytes]:
        return [revocation_file.line(key, entry.data) for key, entry in self._cache.entries.items()]

    def _on_changes(self, changes: list[ObjectChange[CredentialRevocation]]) -> None:
        self._lines += [
            revocation_file.line(one.key, one.new.data if one.new else None) for one in changes
        ]
        self._changed.set()

    def _lost(self) -> None:
        self._lines.clear()
        self._changed.set()
