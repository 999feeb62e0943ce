"""The store: an ordered map from key to bytes with a history.

Every commit gets the next revision, one counter for the whole store, assigned inside the commit:
commit order, revision order and watch order are the same, without gaps. An empty store is at
revision 1, so the first commit makes revision 2. Reading at a revision and watching from one work
until that revision is compacted. The store knows no objects, kinds or JSON;
tests/unit/kernel/store/suite.py specifies every backend.

The life of one key, as an example:

    commit  set a=1, expected ABSENT     revision 2
    commit  set b=7, expected ABSENT     revision 3
    commit  set a=2, expected 2          revision 4
    commit  delete a, expected 4         revision 5
    read(at=3)      a=1 (revision 2), b=7 (revision 3)
    watch(after=3)  a=2 (it was 1, revision 2), then a deleted (it was 2, revision 4)
    compact(4)      oldest is 4: read(at=3) and watch(after=3) raise Compacted,
                    read(at=4) and watch(after=4) still work

Start with `Store`. The errors:

    StoreError
    ├── RevisionConflict   a key is not at the revision its change expects; has the actual record
    ├── Compacted          that revision is gone; list again
    ├── FutureRevision     that revision has not happened yet
    ├── ValueTooLarge      above the backend's limit; the commit did not happen
    ├── StoreUnusable      the data cannot be opened by this program; a retry will not help
    │   ├── AlreadyInUse   another process has it open
    │   └── NewerFormat    a later version wrote it; names the version that is needed
    └── StoreUnavailable   no response; whether the commit happened is unknown
        ├── StoreFull      no room; the commit did not happen, and may succeed once there is room
        └── StoreClosed    it was closed, by us or because it is unusable; only a restart helps

A caller's mistake (an empty key, two changes to one key, a negative limit) is a ValueError.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, runtime_checkable

import msgspec

Revision = int

ABSENT: Final[Revision] = 0
"""The revision of a key that does not exist."""

LATEST: Final[Revision] = -1
"""For `read`: as of now, including every commit acknowledged before the call."""

FIRST: Final[Revision] = 1
"""The revision of an empty store, unless another is given."""

MAX_CHANGES: Final = 127
"""The maximum number of changes in a commit, on every backend.

etcd takes 128 by default, and its backend adds one of its own.
"""


class Span(msgspec.Struct, frozen=True):
    """The keys from `start` up to, but without, `end`, in code point order.

    An empty `end` means no upper bound: `Span("", "")` is every key.
    """

    start: str
    end: str

    @classmethod
    def all(cls) -> "Span":
        """All keys."""
        return cls("", "")

    @classmethod
    def key(cls, key: str) -> "Span":
        """A single key."""
        return cls(key, key + "\0")

    @classmethod
    def prefix(cls, prefix: str) -> "Span":
        """Every key that begins with `prefix`."""
        return cls(prefix, _successor(prefix))

    def after(self, key: str) -> "Span":
        """The rest of the span after `key`: the next page."""
        return Span(max(self.start, key + "\0"), self.end)

    def __contains__(self, key: str) -> bool:
        return self.start <= key and (not self.end or key < self.end)


class Record(NamedTuple):
    """A key's value, and the revision of that value."""

    key: str
    value: bytes
    revision: Revision


class Page(msgspec.Struct, frozen=True):
    """The result of a read, in key order."""

    records: list[Record]
    revision: Revision  # the revision of the records: watch after this one
    more: bool  # the limit was reached and at least one more record follows
    oldest: Revision  # the oldest revision that can still be read at, or watched after


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Set a key, or delete it when `value` is None, if it is still at `expected`."""

    key: str
    value: bytes | None
    expected: Revision  # ABSENT: the key must not exist


class DeleteRange(msgspec.Struct, frozen=True):
    """Delete every key of a span, if none of them has changed after a revision.

    With the revision of a read of the span, only keys that were read are deleted. Keys that were
    deleted since are no conflict: let one of the changes guard against it. Watchers see each key
    deleted, in key order, after the commit's changes.
    """

    span: Span
    unchanged_since: Revision


class StoreEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change that happened; `value` is None when the key was deleted."""

    key: str
    value: bytes | None
    revision: Revision
    previous: bytes | None  # None: the key did not exist before
    previous_revision: Revision  # ABSENT: the key did not exist before


class Batch(NamedTuple):
    """The next events of a watch, in order; all events up to `revision` have now been delivered.

    A batch never ends in the middle of a revision. An empty one reports progress.
    """

    events: tuple[StoreEvent, ...]
    revision: Revision


class StoreWatch(Protocol):
    """The batches of a watch; an async generator is one. Close it with `aclose`."""

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    def __anext__(self) -> Awaitable[Batch]: ...

    def aclose(self) -> Awaitable[object]: ...


@runtime_checkable
class PollableWatch(StoreWatch, Protocol):
    """A watch whose next batch can be read synchronously if it has arrived."""

    def poll(self) -> Batch | None:
        """The next batch, if it is in memory; also while another task waits for one."""
        ...


class Store(Protocol):
    """The interface of a backend. Every method may raise StoreUnavailable."""

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        """Read the span in key order, as of a revision; at most `limit` if not 0.

        Raises Compacted below the oldest revision, FutureRevision above the newest.
        """
        ...

    def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Awaitable[Revision]:
        """Make all the changes as one revision, or raise RevisionConflict and make none.

        `delete` adds a range of keys that no change names; it counts as one change, however many
        keys it has, and it may be empty.

        Once it returns, the changes are on disk, and every watcher finds them without waiting. A
        key may appear once. Deleting an ABSENT key, or changing nothing at all, is a ValueError: a
        revision always changes something. Cancelling the caller does not undo the commit.
        """
        ...

    def watch(self, span: Span, *, after: Revision) -> StoreWatch:
        """Yield every later change to the span, in order, exactly once.

        Nothing happens, and nothing is raised, before the first batch is requested. A caught-up
        watcher gets a batch for every new revision, an empty one if the span was not changed, so
        that its last batch has its progress; several revisions may share a batch. A slow watcher
        costs no memory: it reads from the log, at its own pace.

        Raises Compacted if `after` is below the oldest revision, also later if the watcher falls
        behind it. Raises FutureRevision if `after` is above the newest: such a caller has seen
        another store, or one since restored, and would otherwise wait in silence. Raises
        StoreUnavailable when the store is closed, or has long been unreachable: a new watch after
        the last batch misses nothing. Close it with `aclose` when leaving early.
        """
        ...

    async def revision(self) -> Revision:
        """The newest committed revision."""
        ...

    async def may_compact(self) -> bool:
        """Whether this server compacts; of several servers on one store, one at a time."""
        ...

    async def compact(self, before: Revision) -> None:
        """Drop history older than a revision; current records stay.

        That revision itself can still be read at and watched after. Going back is no error and does
        nothing. Raises FutureRevision above the newest revision.
        """
        ...

    async def close(self) -> None:
        """Finish the queued commits, end the watches, release the data. Idempotent."""
        ...


Outcome = Revision | Exception
"""The result of one of several commits: its revision, or the error of `Store.commit`."""


@runtime_checkable
class GroupingStore(Store, Protocol):
    """A store that takes many commits in one call."""

    def commit_each(self, commits: Sequence[Sequence[Change]]) -> Awaitable[list[Outcome]]:
        """Make each commit by itself, in order, and return the result of each.

        They must satisfy `check_changes`. Raises StoreError if all have failed together.
        """
        ...


class StoreError(Exception):
    """The base class of all errors of the store."""


class RevisionConflict(StoreError):
    """A key is not at the revision that its change expects."""

    def __init__(self, key: str, actual: Record | None) -> None:
        found = f"at revision {actual.revision}" if actual else "absent"
        super().__init__(f"{key!r} is {found}, not as the change expects")
        self.key = key
        self.actual = actual


class Compacted(StoreError):
    """A revision is older than the stored history."""

    def __init__(self, asked: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {asked} has been compacted, the oldest is {oldest}")
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """A revision has not happened yet."""

    def __init__(self, asked: Revision, newest: Revision) -> None:
        super().__init__(f"revision {asked} is in the future, the newest is {newest}")
        self.asked = asked
        self.newest = newest


class ValueTooLarge(StoreError):
    """A commit exceeds the backend's limit; it did not happen."""


class StoreUnusable(StoreError):
    """The data cannot be opened by this program; a retry will not help."""


class NewerFormat(StoreUnusable):
    """The store has a format that this version does not know."""


class AlreadyInUse(StoreUnusable):
    """Another process, or another store in this one, has the data open."""


class StoreUnavailable(StoreError):
    """No response; whether the commit happened is unknown."""


class StoreFull(StoreUnavailable):
    """No room; the commit did not happen, and may succeed once there is room."""


class StoreClosed(StoreUnavailable):
    """The store was closed, by us or because it is unusable; only a restart helps."""


_KEY = attrgetter("key")


def check_changes(changes: Sequence[Change]) -> None:
    """Refuse an invalid commit, for every backend.

    Invalid keys are empty ones, those with NUL, and invalid Unicode.
    """
    if not 0 < len(changes) <= MAX_CHANGES:
        raise ValueError(f"a commit holds 1 to {MAX_CHANGES} changes, not {len(changes)}")
    keys = list(map(_KEY, changes))
    "".join(keys).encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError
    for change in changes:
        if not change.key or "\0" in change.key:
            raise ValueError(f"not a key: {change.key!r}")
        if change.expected < ABSENT:
            raise ValueError(f"{change.key!r}: no key is ever at revision {change.expected}")
        if change.value is None and change.expected == ABSENT:
            raise ValueError(f"{change.key!r}: deleting what is absent changes nothing")
    if len(keys) > 1 and len(set(keys)) < len(keys):
        raise ValueError("a commit may change a key only once")


def check_delete(delete: DeleteRange, changes: Sequence[Change]) -> None:
    """Refuse a range that cannot be deleted beside these changes, for every backend."""
    if len(changes) >= MAX_CHANGES:
        raise ValueError(f"with a range, a commit holds at most {MAX_CHANGES - 1} changes")
    if delete.unchanged_since < FIRST:
        raise ValueError(f"not a revision: {delete.unchanged_since}")
    f"{delete.span.start}{delete.span.end}".encode()
    for change in changes:
        if change.key in delete.span:
            raise ValueError(f"a commit may change a key only once: {change.key!r}")


def check_read(at: Revision, limit: int) -> None:
    """Refuse an invalid read."""
    if limit < 0:
        raise ValueError(f"a limit is not negative: {limit}")
    if at < LATEST:
        raise ValueError(f"not a revision: {at}")


def check_revision(asked: Revision, *, oldest: Revision, newest: Revision) -> None:
    """Raise unless a revision is within the stored history."""
    if asked < oldest:
        raise Compacted(asked, oldest)
    if asked > newest:
        raise FutureRevision(asked, newest)


def _successor(prefix: str) -> str:
    """The first key after all keys with a prefix; empty if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return ""
    last = stem[-1]
    # Surrogates, which lie between these two, are no characters and have no UTF-8 form.
    return stem[:-1] + ("\ue000" if last == "\ud7ff" else chr(ord(last) + 1))
