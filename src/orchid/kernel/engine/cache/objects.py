"""Objects in the store: read one fresh, insert, replace, remove. Bytes out, entries back.

Nothing here knows rules or permissions. A lost race raises `Raced`; the verb decides whether to
retry.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from orchid.kernel.engine.cache.entry import Entry, as_kind, with_note
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.kind import Kind, Note
from orchid.kernel.engine.ledger.store_keys import pending
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.tombstones import Tombstone, tombstone_changes
from orchid.kernel.store import interface as store
from orchid.kernel.wire.codec.bounds import MOST_STORED, require_few_values
from orchid.kernel.wire.codec.documents import Malformed, encode
from orchid.kernel.wire.errors import ApiError, TooLarge, Unavailable
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.struct import replace

T = TypeVar("T", bound=Object)

PATIENCE = 2.0  # seconds; a failing feed must not delay the response to a finished write
LARGEST_OBJECT = 1_572_864  # bytes of one stored object, as etcd's own request limit


class Raced(Exception):
    """Another write changed the object first; `revision` is the new one, 0 if it was deleted."""

    def __init__(self, revision: store.Revision) -> None:
        super().__init__(f"changed at revision {revision}")
        self.revision = revision


def stored_form(new: Object) -> bytes:
    """The bytes to store: the object without its resourceVersion, which the commit assigns."""
    if new.metadata.resource_version or new.metadata.self_link:
        new = replace(new, metadata=replace(new.metadata, resource_version="", self_link=""))
    data = encode(new)
    if len(data) > LARGEST_OBJECT:
        raise TooLarge(f"the object takes {len(data)} bytes, limit is {LARGEST_OBJECT}")
    if len(data) > MOST_STORED:
        _require_few_values(data)
    return data


def _require_few_values(data: bytes) -> None:
    """Limit the values of an object, however many patches built it: others will decode it."""
    try:
        require_few_values(data, MOST_STORED)
    except Malformed as problem:
        raise TooLarge(str(problem)) from None


IsStale = Callable[[str], bool]


def never_stale(key: str) -> bool:
    return False


class Objects:
    """The current objects and their changes.

    `is_stale` reports a key whose value should be written again unchanged: encrypted with an old
    key.
    """

    def __init__(self, backend: store.Store, feed: Feed, is_stale: IsStale = never_stale) -> None:
        self._store = backend
        self.feed = feed
        self.is_stale = is_stale

    def cache(self, kind: Kind[T]) -> KindCache[T]:
        return self.feed.cache(kind)

    async def current(self, kind: Kind[T], namespace: str, name: str) -> Entry[T]:
        """The object after every write before this request arrived; raises NotFound.

        A later write makes the commit of a change fail, which is then computed again.
        """
        await self.feed.fresh_for_request()
        return self.feed.cache(kind).find(kind, namespace, name)

    async def remove(self, old: Entry[T], request: Request) -> store.Revision:
        changes = [store.Change(old.key, None, old.revision)]
        changes += _recorded(old.kind, None, old, request)
        if old.kind.tombstones is not None:
            changes += await self._remembered(old.kind.tombstones(None, old.object))
        return await self._commit(changes)

    async def remove_unreadable(self, kind: Kind[T], namespace: str, name: str) -> bool:
        """Delete a stored object if it cannot be decoded; return whether it was deleted."""
        await self.feed.fresh()
        key = kind.key(namespace, name)
        revision = self.feed.cache(kind).unreadable.get(key)
        if revision is None:
            await self.current(kind, namespace, name)
            return False
        await self._commit([store.Change(key, None, revision)])
        return True

    async def write(
        self,
        kind: Kind[T],
        new: T,
        old: Entry[T] | None,
        request: Request,
        *,
        value: bytes | None = None,
        companions: Iterable[Object] = (),
    ) -> Entry[T]:
        """Store an object, a new one or instead of an `old` one.

        `value` is the encoded object, if the caller has it. Its companions are new objects in the
        same commit.
        """
        stored = kind.stored
        key = old.key if old else kind.key(new.metadata.namespace, new.metadata.name)
        if value is None or stored is not kind:
            value = stored_form(new if stored is kind else as_kind(stored, new))
        if kind.note is not None:
            value = with_note(stored, value, _note(kind.note, new, old, request))
        change = store.Change(key, value, old.revision if old else store.ABSENT)
        changes = [change]
        if kind.records is not None:
            changes += _recorded(kind, new, old, request)
        if kind.tombstones is not None:
            changes += await self._remembered(kind.tombstones(new, old.object if old else None))
        for companion in companions:
            changes += self._inserted(companion, request)
        revision = await self._commit(changes)
        entry = self.feed.cache(kind).entries.get(key)
        if entry is None or entry.revision != revision:  # it has changed again
            entry = Entry.stored(stored, key, value, revision)
        return entry if entry.kind.head == kind.head else entry.served_as(kind)

    def _inserted(self, new: Object, request: Request) -> list[store.Change]:
        kind = self.feed.of(type(new)).kind
        value = stored_form(new if new.api_version == kind.api_version else as_kind(kind, new))
        meta = new.metadata
        change = store.Change(kind.key(meta.namespace, meta.name), value, store.ABSENT)
        return [change, *_recorded(kind, new, None, request)]

    async def _remembered(self, tombstones: Iterable[Tombstone]) -> list[store.Change]:
        added = tuple(tombstones)
        try:
            return await tombstone_changes(self._store, added) if added else []
        except store.StoreError as failure:
            raise refusal_of(failure) from failure

    async def _commit(self, changes: list[store.Change]) -> store.Revision:
        try:
            revision = await self._store.commit(changes)
        except store.StoreError as failure:
            raise refusal_of(failure) from failure
        # A write is effective before its response: a binding grants, a deleted account is refused.
        if revision > self.feed.revision:
            await self.feed.reach_within(revision, PATIENCE)
        return revision

    async def catch_up(self, raced: Raced) -> None:
        """Wait until the feed shows the winner of the race."""
        await self.feed.fresh()
        await self.feed.reach(raced.revision)
        await asyncio.sleep(0)


def _note(note: Note[T], new: T, old: Entry[T] | None, request: Request) -> bytes:
    """The stored note, with the values that this change adds or replaces."""
    if old is None:
        said = note(new, None, request)
        return encode(said) if said else b""
    said = note(new, old.object, request)
    return encode({**old.notes(), **said}) if said else old.note


def _recorded(
    kind: Kind[T], new: T | None, old: Entry[T] | None, request: Request
) -> list[store.Change]:
    """The ledger entries of a change, as the kind declares them; part of the same commit."""
    if kind.records is None:
        return []
    before = old.object if old else None
    recorded = new or before
    assert recorded is not None
    facts = tuple(kind.records(new, before, request))
    return pending(facts, recorded.metadata.uid, request.now) if facts else []


def refusal_of(failure: store.StoreError) -> Exception:
    """The error of a failed commit for the verb: a lost race, or a response."""
    if isinstance(failure, store.RevisionConflict):
        return Raced(failure.actual.revision if failure.actual else 0)
    if isinstance(failure, store.ValueTooLarge):
        return TooLarge(str(failure))
    return unavailable(failure)


def unavailable(failure: store.StoreError) -> ApiError:
    return Unavailable(f"the store does not answer: {failure}")
