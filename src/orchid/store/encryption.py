"""Encryption at rest: a store around a store that encrypts values under certain prefixes.

Start with `EncryptedStore`. Each prefix has `Provider`s: the first encrypts writes, all of them
decrypt reads. The prefix of a value names its provider, so that keys can be rotated; an encrypted
value that no provider can decrypt is passed on unchanged, and its decoding fails. So does a value
in clear text without an `IdentityProvider`.

The store key of a value is authenticated with it: a value that was copied to another key cannot be
decrypted. Keys, revisions and deletions are not hidden.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from orchid.store.interface import (
    LATEST,
    Batch,
    Change,
    DeleteRange,
    Page,
    PollableWatch,
    Record,
    Revision,
    RevisionConflict,
    Span,
    Store,
    StoreEvent,
    StoreWatch,
)

NO_VALUE = b"\0"  # replaces a value that must not be read: nothing decodes it
NONCE_BYTES = 12  # NIST SP 800-38D, 8.2.2: random, for at most 2^32 values under one key


class NotOpened(Exception):
    """A value of this provider cannot be decrypted: it has another key, or was changed."""


class Provider(Protocol):
    """An encryption with one key."""

    mark: bytes  # prefix of its encrypted values; empty: any

    def seal(self, value: bytes, place: str) -> bytes: ...

    def open(self, sealed: bytes, place: str) -> bytes:
        """Decrypt a value; raises NotOpened."""


class IdentityProvider:
    """Leaves values unencrypted: to read older values, or to go back.

    A value with the prefix `sealed` is not in clear text.
    """

    mark = b""

    def __init__(self, sealed: bytes) -> None:
        self._sealed = sealed

    def seal(self, value: bytes, place: str) -> bytes:
        return value

    def open(self, sealed: bytes, place: str) -> bytes:
        if sealed.startswith(self._sealed):
            raise NotOpened
        return sealed


class AesGcm:
    """AES in Galois/Counter Mode with a random nonce; keys of 16, 24 or 32 bytes."""

    def __init__(self, mark: bytes, key: bytes) -> None:
        self.mark = mark
        self._cipher = AESGCM(key)

    def seal(self, value: bytes, place: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return self.mark + nonce + self._cipher.encrypt(nonce, value, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        start = len(self.mark) + NONCE_BYTES
        nonce = sealed[len(self.mark) : start]
        try:
            return self._cipher.decrypt(nonce, sealed[start:], place.encode())
        except (InvalidTag, ValueError):
            raise NotOpened from None


class EncryptedStore:
    """A store whose values under some prefixes are encrypted on write and decrypted on read.

    `is_stale` reports a current value that the first provider did not encrypt.
    """

    def __init__(
        self, store: Store, providers: Mapping[str, Sequence[Provider]], *, sealed: bytes = b""
    ) -> None:
        """`sealed` is the prefix of every encrypted value, whatever its provider."""
        self._store = store
        self._any_mark = sealed
        self._working: set[bytes] = set()  # marks of providers that have decrypted a value
        # keys of encrypted values, with the mark that was tried
        self._locked: dict[str, bytes] = {}
        self._providers = {prefix: tuple(some) for prefix, some in providers.items()}
        self._prefixes = tuple(self._providers)
        self._stale: set[str] = set()
        # These need no encryption; the first is called in every read, so it is bound directly.
        self.revision = store.revision
        self.may_compact = store.may_compact
        self.compact = store.compact
        self.close = store.close

    def is_stale(self, key: str) -> bool:
        """Whether the value should be written again, to be encrypted with the newest key."""
        return key in self._stale

    def lacks_key(self, is_unreadable: Callable[[str], bool]) -> bool:
        """Whether a current value was encrypted with a key that we do not have.

        A value that cannot be decrypted although others with the same mark can is damaged: a key
        would not help.
        """
        return any(
            mark not in self._working and is_unreadable(key) for key, mark in self._locked.items()
        )

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await self._store.read(span, at=at, limit=limit)
        sealed = self._prefixes
        records = [
            self._opened_record(record) if record.key.startswith(sealed) else record
            for record in page.records
        ]
        return Page(records, page.revision, page.more, page.oldest)

    def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Awaitable[Revision]:
        if delete is not None:
            return self._commit_sealed(changes, delete)
        for change in changes:
            if change.key.startswith(self._prefixes):
                return self._commit_sealed(changes)
        return self._store.commit(changes)

    async def _commit_sealed(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        try:
            return await self._store.commit([self._sealed(change) for change in changes], delete)
        except RevisionConflict as conflict:
            actual = conflict.actual
            raise RevisionConflict(
                conflict.key, self._opened_record(actual) if actual else None
            ) from None

    def watch(self, span: Span, *, after: Revision) -> StoreWatch:
        return _OpenedWatch(self._store.watch(span, after=after), self._opened_batch)

    def _opened_batch(self, batch: Batch) -> Batch:
        for event in batch.events:
            if event.key.startswith(self._prefixes):
                return Batch(tuple(map(self._opened_event, batch.events)), batch.revision)
        return batch

    def _providers_of(self, key: str) -> tuple[Provider, ...]:
        return next(some for prefix, some in self._providers.items() if key.startswith(prefix))

    def _sealed(self, change: Change) -> Change:
        if change.value is None or not change.key.startswith(self._prefixes):
            return change
        first = self._providers_of(change.key)[0]
        return Change(change.key, first.seal(change.value, change.key), change.expected)

    def _opened_record(self, record: Record) -> Record:
        if not record.key.startswith(self._prefixes):
            return record
        value = self._opened(record.key, record.value, is_current=True)
        return Record(record.key, value, record.revision)

    def _opened_event(self, event: StoreEvent) -> StoreEvent:
        if not event.key.startswith(self._prefixes):
            return event
        value, previous = event.value, event.previous
        if value is None:
            self._stale.discard(event.key)
            self._locked.pop(event.key, None)
        else:
            value = self._opened(event.key, value, is_current=True)
        if previous is not None:
            previous = self._opened(event.key, previous, is_current=False)
        return replace(event, value=value, previous=previous)

    def _opened(self, key: str, value: bytes, *, is_current: bool) -> bytes:
        providers = self._providers_of(key)
        tried = b""
        for position, provider in enumerate(providers):
            if value.startswith(provider.mark):
                try:
                    plain = provider.open(value, key)
                except NotOpened:
                    tried = tried or provider.mark
                    continue
                if provider.mark:
                    self._working.add(provider.mark)
                if is_current:
                    (self._stale.add if position else self._stale.discard)(key)
                    self._locked.pop(key, None)
                return plain
        if not value.startswith(self._any_mark):
            return NO_VALUE  # in clear text, which no provider accepts
        if is_current and self._any_mark:
            self._locked[key] = tried
        return value


class _OpenedWatch:
    """A watch of another store, with decrypted values."""

    def __init__(self, sealed: StoreWatch, opened: Callable[[Batch], Batch]) -> None:
        self._sealed = sealed
        self._prompt = sealed if isinstance(sealed, PollableWatch) else None
        self._opened = opened

    def __aiter__(self) -> "_OpenedWatch":
        return self

    async def __anext__(self) -> Batch:
        return self._opened(await anext(self._sealed))

    def poll(self) -> Batch | None:
        batch = self._prompt.poll() if self._prompt is not None else None
        return None if batch is None else self._opened(batch)

    async def aclose(self) -> None:
        await self._sealed.aclose()


_: type[Store] = EncryptedStore
