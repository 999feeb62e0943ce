"""Encryption at rest: a store around a store that encrypts values under certain prefixes.

Start with `EncryptedStore`. Each prefix has `Provider`s: one of them seals (`sealer`), all of them
open. The mark of a value names its provider, so that keys can be rotated; an encrypted value that
no provider can decrypt is passed on unchanged, and its decoding fails. So does a value in clear
text without an `IdentityProvider`.

Of several servers, each seals with the first of its keys that every live server can open
(`is_shared`). So their files can be changed one by one. `use` replaces the providers;
kernel/store/resealing.py then writes the values again that another key sealed.

The store key of a value is authenticated with it: a value that was copied to another key cannot be
decrypted. Keys, revisions and deletions are not hidden.
"""

import hmac
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from orchid.kernel.store.interface import (
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
from orchid.kernel.store.sealed_values import Locked, SealedValues

NO_VALUE = b"\0"  # replaces a value that must not be read: nothing decodes it
NONCE_BYTES = 12  # NIST SP 800-38D, 8.2.2: random, for at most 2^32 values under one key
IDENTITY: Final = "identity"  # the name of clear text among the keys
UNNAMED: Final = "unknown"  # the name of a key if a value has no readable mark
FINGERPRINT_BYTES: Final = 8

_key_in_mark = re.compile(rb"[^:]{1,64}:[^:]{1,64}:([^:]{1,256}):").match


class NotOpened(Exception):
    """A value of this provider cannot be decrypted: it has another key, or was changed."""


def key_id(mark: bytes, key: bytes) -> str:
    """A public id of a key: its name, and a fingerprint that does not reveal it."""
    name = mark.rstrip(b":").rpartition(b":")[2].decode(errors="replace")
    fingerprint = hmac.digest(key, b"sealing key " + mark, "sha256")[:FINGERPRINT_BYTES]
    return f"{quote(name, safe='')}-{fingerprint.hex()}"


def key_name(id_: str) -> str:
    """The name of a key in the configuration, from its id."""
    return unquote(id_.rpartition("-")[0]) or id_


class Provider(Protocol):
    """An encryption with one key."""

    mark: bytes  # prefix of its encrypted values; empty: clear text
    key_id: str  # the same on every server that has this key

    def seal(self, value: bytes, store_key: str) -> bytes: ...

    def open(self, sealed: bytes, store_key: str) -> bytes:
        """Decrypt a value; raises NotOpened."""


class IdentityProvider:
    """Leaves values unencrypted: to read older values, or to go back.

    A value with the prefix `sealed` is not in clear text.
    """

    mark = b""
    key_id = IDENTITY

    def __init__(self, sealed: bytes) -> None:
        self._sealed = sealed

    def seal(self, value: bytes, store_key: str) -> bytes:
        return value

    def open(self, sealed: bytes, store_key: str) -> bytes:
        if sealed.startswith(self._sealed):
            raise NotOpened
        return sealed


class AesGcm:
    """AES in Galois/Counter Mode with a random nonce; keys of 16, 24 or 32 bytes."""

    def __init__(self, mark: bytes, key: bytes) -> None:
        self.mark = mark
        self.key_id = key_id(mark, key)
        self._cipher = AESGCM(key)

    def seal(self, value: bytes, store_key: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return self.mark + nonce + self._cipher.encrypt(nonce, value, store_key.encode())

    def open(self, sealed: bytes, store_key: str) -> bytes:
        start = len(self.mark) + NONCE_BYTES
        nonce = sealed[len(self.mark) : start]
        try:
            return self._cipher.decrypt(nonce, sealed[start:], store_key.encode())
        except (InvalidTag, ValueError):
            raise NotOpened from None


Providers = Mapping[str, Sequence[Provider]]
IsShared = Callable[[str, Provider], bool]


class SealedCount(NamedTuple):
    """Number of current values under a prefix that a key has sealed."""

    prefix: str
    key: str  # its name
    number: int


def _shared_by_all(prefix: str, provider: Provider) -> bool:
    return True


class EncryptedStore:
    """A store whose values under some prefixes are encrypted on write and decrypted on read."""

    def __init__(self, store: Store, providers: Providers, *, sealed: bytes = b"") -> None:
        """`sealed` is the prefix of every encrypted value, whatever its provider."""
        self._store = store
        self._any_mark = sealed
        self._working: set[bytes] = set()  # marks of providers that have decrypted a value
        self._values = SealedValues()
        self._load: _Load | None = None  # while everything is read
        # Whether every other live server can open values of a provider, under a prefix.
        self.is_shared: IsShared = _shared_by_all
        self.use(providers)
        # These need no encryption; the first is called in every read, so it is bound directly.
        self.revision = store.revision
        self.may_compact = store.may_compact
        self.compact = store.compact
        self.close = store.close

    # -- keys --------------------------------------------------------------------------------

    def use(self, providers: Providers) -> None:
        """Replace the providers. Values under new prefixes are counted from the next full read."""
        self._providers = {prefix: tuple(some) for prefix, some in providers.items()}
        self._prefixes = tuple(self._providers)

    @property
    def prefixes(self) -> tuple[str, ...]:
        return self._prefixes

    def key_ids(self) -> list[str]:
        """Prefix and id of every key that can open values here."""
        return [f"{prefix}{one.key_id}" for prefix, some in self._providers.items() for one in some]

    def sealing_ids(self) -> list[str]:
        """Prefix and id of the keys that seal new values."""
        return [f"{prefix}{self.sealer(prefix).key_id}" for prefix in self._prefixes]

    def sealer(self, prefix: str) -> Provider:
        """The first provider whose values every live server can open.

        If there is none (a server of an earlier version reports no keys), it is the first one that
        has sealed a value, so that nothing changes. Clear text is only written if it is configured
        first.
        """
        providers = self._providers[prefix]
        encrypting = [provider for provider in providers if provider.mark]
        candidates = encrypting if providers[0].mark else providers
        for provider in candidates:
            if self.is_shared(prefix, provider):
                return provider
        for provider in encrypting:
            if self.has_sealed(prefix, provider):
                return provider
        return candidates[0]

    def has_sealed(self, prefix: str, provider: Provider) -> bool:
        """Whether current values were sealed by a provider."""
        return self._values.count(prefix, provider.key_id) > 0

    def is_stale(self, key: str) -> bool:
        """Whether the value should be written again, to be sealed with the current key."""
        for prefix in self._prefixes:
            if key.startswith(prefix):
                return self._values.is_by_another(prefix, self.sealer(prefix).key_id, key)
        return False

    def stale_keys(self, limit: int) -> list[str]:
        """Some keys whose values should be written again."""
        keys: list[str] = []
        for prefix in self._prefixes:
            left = limit - len(keys)
            keys += self._values.not_by(prefix, self.sealer(prefix).key_id, left) if left else []
        return keys

    async def reseal(self, key: str) -> bool:
        """Write a value again if another key sealed it; return whether it was written."""
        page = await self.read(Span.key(key))
        if not page.records or not self.is_stale(key):
            return False
        (record,) = page.records
        try:
            await self.commit([Change(key, record.value, record.revision)])
        except RevisionConflict:
            return False  # it has been written by somebody else
        return True

    def counts(self) -> list[SealedCount]:
        """The number of values by prefix and key, also of keys that are not here."""
        totals: Counter[tuple[str, str]] = Counter()
        for prefix, sealed_by, count in self._values.counts():
            totals[prefix, key_name(sealed_by)] += count
        for locked in self._values.locked.values():
            totals[locked.prefix, locked.key] += 1
        return [SealedCount(prefix, name, count) for (prefix, name), count in totals.items()]

    def needed_beside(self, providers: Providers) -> Iterator[SealedCount]:
        """Keys that have sealed current values and are not among other providers."""
        for prefix, sealed_by, count in self._values.counts():
            key_ids = {provider.key_id for provider in providers.get(prefix, ())} or {IDENTITY}
            if count and sealed_by not in key_ids:
                yield SealedCount(prefix, key_name(sealed_by), count)

    def missing_keys(self, is_unreadable: Callable[[str], bool]) -> set[str]:
        """The names of keys that have sealed current values and are not configured."""
        locked = self._values.locked.items()
        return {one.key for key, one in locked if not one.mark and is_unreadable(key)}

    def lacks_key(self, is_unreadable: Callable[[str], bool]) -> bool:
        """Whether a current value was encrypted with a key that we do not have.

        A value that cannot be decrypted although others with the same mark can is damaged: a key
        would not help.
        """
        return any(
            value.mark not in self._working and is_unreadable(key)
            for key, value in self._values.locked.items()
        )

    # -- the store ---------------------------------------------------------------------------

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        page = await self._store.read(span, at=at, limit=limit)
        sealed, indexes = self._prefixes, self._indexes(span, at, page)
        records = [
            self._opened_record(record, indexes) if record.key.startswith(sealed) else record
            for record in page.records
        ]
        if self._load is not None and self._load.values in indexes and not page.more:
            self._values, self._load = self._load.values, None
        return Page(records, page.revision, page.more, page.oldest)

    def _indexes(self, span: Span, at: Revision, page: Page) -> tuple[SealedValues, ...]:
        """The indexes that the records of a page belong to; a read of everything makes a new one,
        so that values which were deleted unseen do not stay in it.
        """
        if at == LATEST:
            if not all(prefix in span for prefix in self._prefixes):
                return (self._values,)
            self._load = _Load(page.revision, SealedValues())
        elif self._load is None or at != self._load.revision:
            return ()  # values of the past
        return (self._values, self._load.values)

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
                conflict.key, self._opened_record(actual, ()) if actual else None
            ) from None

    def watch(self, span: Span, *, after: Revision) -> StoreWatch:
        return _OpenedWatch(self._store.watch(span, after=after), self._opened_batch)

    def _opened_batch(self, batch: Batch) -> Batch:
        for event in batch.events:
            if event.key.startswith(self._prefixes):
                return Batch(tuple(map(self._opened_event, batch.events)), batch.revision)
        return batch

    def _prefix_of(self, key: str) -> str:
        return next(prefix for prefix in self._prefixes if key.startswith(prefix))

    def _sealed(self, change: Change) -> Change:
        if change.value is None or not change.key.startswith(self._prefixes):
            return change
        sealer = self.sealer(self._prefix_of(change.key))
        return Change(change.key, sealer.seal(change.value, change.key), change.expected)

    def _opened_record(self, record: Record, indexes: Sequence[SealedValues]) -> Record:
        if not record.key.startswith(self._prefixes):
            return record
        value = self._opened(record.key, record.value, indexes)
        return Record(record.key, value, record.revision)

    def _opened_event(self, event: StoreEvent) -> StoreEvent:
        if not event.key.startswith(self._prefixes):
            return event
        value, previous = event.value, event.previous
        if value is None:
            self._values.remove(self._prefix_of(event.key), event.key)
        else:
            value = self._opened(event.key, value, (self._values,))
        if previous is not None:
            previous = self._opened(event.key, previous, ())
        return replace(event, value=value, previous=previous)

    def _opened(self, key: str, value: bytes, indexes: Sequence[SealedValues]) -> bytes:
        """Decrypt a value, and record its key in the indexes."""
        prefix = self._prefix_of(key)
        tried = b""
        for provider in self._providers[prefix]:
            if value.startswith(provider.mark):
                try:
                    plain = provider.open(value, key)
                except NotOpened:
                    tried = tried or provider.mark
                    continue
                if provider.mark:
                    self._working.add(provider.mark)
                for index in indexes:
                    index.put(prefix, provider.key_id, key)
                return plain
        is_sealed = bool(self._any_mark) and value.startswith(self._any_mark)
        for index in indexes:
            index.remove(prefix, key)
            if is_sealed:
                index.locked[key] = Locked(prefix, tried, self._key_in(value))
        if self._any_mark and not is_sealed:
            return NO_VALUE  # in clear text, which no provider accepts
        return value

    def _key_in(self, value: bytes) -> str:
        """The name of the key in the mark of an encrypted value."""
        found = _key_in_mark(value, len(self._any_mark))
        return found[1].decode(errors="replace") if found else UNNAMED


class _Load(NamedTuple):
    """A read of everything: its revision, and the index that it builds."""

    revision: Revision
    values: SealedValues


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
