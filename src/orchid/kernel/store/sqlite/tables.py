"""The tables of a data file, and the few transactions that read and write it.

Plain blocking functions over an apsw connection: no threads, no event loop (see store.py).

    log       every change in the history, in order; `previous` is the position it replaced
    current   the position in the log of each existing key
    replaced  when an older value was current: from `position` until `until`
    ranges    deletions of the log that deleted more keys than the one they name
    state     one row: the oldest revision, and the progress of compaction

A *position* is a revision and the number of the change within its commit, in one integer, so that
the log is append-only and needs no second index. A value is written once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, cast

import apsw
import msgspec

from orchid.kernel.store.interface import (
    ABSENT,
    LATEST,
    MAX_CHANGES,
    Batch,
    Change,
    DeleteRange,
    Outcome,
    Page,
    Record,
    Revision,
    RevisionConflict,
    Span,
    StoreEvent,
    check_revision,
)

SHIFT = (MAX_CHANGES - 1).bit_length()  # a commit's changes are numbered within these bits
RANGE_NUMBER = (1 << SHIFT) - 1  # of a commit's range: after all of its changes
ROWS_PER_INSERT = 64
ROWS_PER_SWEEP = 256
EVENTS_PER_REPLAY = 1024
BYTES_PER_REPLAY = 4 << 20

SCHEMA = """
CREATE TABLE log (
    position INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    value BLOB,
    previous INTEGER NOT NULL
);
CREATE TABLE current (key TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE replaced (
    key TEXT NOT NULL,
    until INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (key, until)
) WITHOUT ROWID;
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    oldest INTEGER NOT NULL,
    swept INTEGER NOT NULL
);
INSERT INTO state VALUES (1, 1, 0);
"""
# Added later: an older file gets it when it is opened. An older program treats a range as the
# deletion of its first key, and never compacts the history of the others.
RANGES_SCHEMA = """
CREATE TABLE IF NOT EXISTS ranges (
    position INTEGER PRIMARY KEY,
    start TEXT NOT NULL,
    end TEXT NOT NULL
);
"""


class Extent(NamedTuple):
    """The oldest and newest revision of a file."""

    oldest: Revision
    newest: Revision


class CommitOutcome(NamedTuple):
    """The result of a group of commits: one for each, and the events for watchers."""

    answers: list[Outcome]
    batch: Batch


class _Held(msgspec.Struct, frozen=True, gc=False):
    position: int
    value: bytes


def extent(db: apsw.Connection) -> Extent:
    """The oldest and newest revision."""
    oldest, last = db.execute("SELECT oldest, (SELECT max(position) FROM log) FROM state").get
    # A deletion's row is removed by compaction, so the log alone may end too early.
    return Extent(oldest, max(oldest, (last or 0) >> SHIFT))


def apply(
    db: apsw.Connection, newest: Revision, commits: Sequence[Sequence[Change]]
) -> CommitOutcome:
    """Check each commit in turn and write all valid ones, in one durable transaction.

    Every call into SQLite releases the interpreter lock, and a busy event loop is slow to return
    it; so the calls are few and large.
    """
    db.execute("BEGIN IMMEDIATE")
    group = _Group(newest, _held(db, [change.key for changes in commits for change in changes]))
    answers: list[Outcome] = [group.judge(changes) for changes in commits]
    group.write(db)
    db.execute("COMMIT")
    return CommitOutcome(answers, Batch(tuple(group.events), group.newest))


def apply_with_range(
    db: apsw.Connection, newest: Revision, changes: Sequence[Change], delete: DeleteRange
) -> CommitOutcome:
    """Check and write one commit that deletes a range, in a transaction of its own.

    A range is one row of the log, however many keys it has, and names the first of them: so its
    positions do not run out. The other keys are found in `replaced`.
    """
    db.execute("BEGIN IMMEDIATE")
    group = _Group(newest, _held(db, [change.key for change in changes]))
    in_range = list(db.execute(_IN_SPAN, _bindings(delete.span, newest)))
    answer = group.judge(changes)
    if isinstance(answer, Revision):
        answer = _changed_since(delete, in_range) or answer
    if isinstance(answer, RevisionConflict):
        db.execute("ROLLBACK")
        return CommitOutcome([answer], Batch((), newest))
    group.write(db)
    if in_range:
        group.events += _delete_range(db, answer, in_range)
    db.execute("COMMIT")
    return CommitOutcome([answer], Batch(tuple(group.events), answer))


def _changed_since(
    delete: DeleteRange, in_range: Sequence[tuple[str, int, bytes]]
) -> RevisionConflict | None:
    for key, position, value in in_range:
        if position >> SHIFT > delete.unchanged_since:
            return RevisionConflict(key, Record(key, value, position >> SHIFT))
    return None


def _delete_range(
    db: apsw.Connection, revision: Revision, in_range: Sequence[tuple[str, int, bytes]]
) -> list[StoreEvent]:
    (first, previous, _), (last, *_) = in_range[0], in_range[-1]
    position = revision << SHIFT | RANGE_NUMBER
    bindings = _bindings(Span(first, last + "\0"), revision)
    bindings |= {"position": position, "previous": previous}
    for statement in _DELETE_RANGE:
        db.execute(statement, bindings)
    return [StoreEvent(key, None, revision, value, was >> SHIFT) for key, was, value in in_range]


class _Group:
    """Commits that share a transaction; each sees the changes of those before it."""

    def __init__(self, newest: Revision, held: dict[str, _Held | None]) -> None:
        self.newest = newest
        self.events: list[StoreEvent] = []
        self._held = held
        self._log: list[tuple[int, str, bytes | None, int]] = []
        self._replaced: list[tuple[str, int, int]] = []
        self._touched: set[str] = set()

    def judge(self, changes: Sequence[Change]) -> Revision | RevisionConflict:
        """Accept a commit as a whole, or return its conflict and accept nothing."""
        for change in changes:
            held = self._held.get(change.key)
            if change.expected != (held.position >> SHIFT if held else ABSENT):
                return RevisionConflict(change.key, _record(change.key, held))
        self.newest += 1
        for number, change in enumerate(changes):
            self._take(change, self.newest << SHIFT | number)
        return self.newest

    def _take(self, change: Change, position: int) -> None:
        key, value = change.key, change.value
        held = self._held.get(key)
        if held is None:
            self._log.append((position, key, value, 0))
            self.events.append(StoreEvent(key, value, self.newest, None, ABSENT))
        else:
            self._log.append((position, key, value, held.position))
            self._replaced.append((key, position, held.position))
            self.events.append(
                StoreEvent(key, value, self.newest, held.value, held.position >> SHIFT)
            )
        self._held[key] = None if value is None else _Held(position, value)
        self._touched.add(key)

    def write(self, db: apsw.Connection) -> None:
        _insert(db, "INSERT INTO log VALUES", self._log)
        _insert(db, "INSERT INTO replaced VALUES", self._replaced)
        existing = [(key, held.position) for key in self._touched if (held := self._held[key])]
        _insert(db, "REPLACE INTO current VALUES", existing)
        if gone := [key for key in self._touched if self._held[key] is None]:
            db.execute(
                "DELETE FROM current WHERE key IN (SELECT value FROM json_each(?))",
                (_json(gone),),
            )


# The inner part finds positions in key order, the outer one reads them in log order: a scan of many
# values then reads the file sequentially.
_NOW = """
    SELECT key, value, position >> :shift FROM log WHERE position IN (
        SELECT position FROM current WHERE key >= :start AND key < :end
        ORDER BY key LIMIT :limit
    )
"""
_THEN = """
    SELECT key, value, position >> :shift FROM log WHERE position IN (
        SELECT position FROM (
            SELECT key, position FROM current
            WHERE key >= :start AND key < :end AND position <= :last
            UNION ALL
            SELECT key, position FROM replaced
            WHERE key >= :start AND key < :end AND position <= :last AND until > :last
            ORDER BY key LIMIT :limit
        )
    )
"""
_IN_SPAN = """
    SELECT c.key, c.position, l.value FROM current AS c CROSS JOIN log AS l USING (position)
    WHERE c.key >= :start AND c.key < :end ORDER BY c.key
"""
_DELETE_RANGE = (
    "INSERT INTO log VALUES (:position, :start, NULL, :previous)",
    "INSERT INTO ranges VALUES (:position, :start, :end)",
    """
    INSERT INTO replaced SELECT key, :position, position FROM current
    WHERE key >= :start AND key < :end
    """,
    "DELETE FROM current WHERE key >= :start AND key < :end",
)
# Both parts are sorted, so that reading may stop anywhere without sorting the rest. The plus keeps
# SQLite from creating an index for `until`: the keys of a range are adjacent.
_HISTORY = """
    SELECT new.position, new.key, new.value, old.value, new.previous
    FROM log AS new LEFT JOIN log AS old ON old.position = new.previous
    WHERE new.position > :last AND new.key >= :start AND new.key < :end
        AND new.position NOT IN (SELECT position FROM ranges)
    UNION ALL
    SELECT ranges.position, gone.key, NULL, old.value, gone.position
    FROM ranges CROSS JOIN replaced AS gone
        ON gone.key >= max(ranges.start, :start) AND gone.key < ranges.end
        AND +gone.until = ranges.position
    CROSS JOIN log AS old ON old.position = gone.position
    WHERE ranges.position > :last AND ranges.start < :end AND ranges.end > :start
        AND gone.key < :end
    ORDER BY 1, 2
"""


def read(db: apsw.Connection, span: Span, at: Revision, limit: int) -> Page:
    """Read a span from one consistent snapshot."""
    with _snapshot(db) as (oldest, newest):
        if at in (LATEST, newest):
            at, query = newest, _NOW
        else:
            check_revision(at, oldest=oldest, newest=newest)
            query = _THEN
        bindings = _bindings(span, at) | {"limit": limit + 1 if limit else -1}
        records = sorted(map(Record._make, db.execute(query, bindings)))
    more = 0 < limit < len(records)
    return Page(records[:limit] if more else records, at, more=more, oldest=oldest)


def replay(db: apsw.Connection, span: Span, after: Revision) -> Batch:
    """Read the next part of the history, never ending in the middle of a revision."""
    events: list[StoreEvent] = []
    size = 0
    with _snapshot(db) as (oldest, newest):
        check_revision(after, oldest=oldest, newest=newest)
        for position, key, value, before, previous in db.execute(_HISTORY, _bindings(span, after)):
            event = StoreEvent(key, value, position >> SHIFT, before, previous >> SHIFT)
            full = len(events) >= EVENTS_PER_REPLAY or size >= BYTES_PER_REPLAY
            if full and event.revision != events[-1].revision:
                return Batch(tuple(events), events[-1].revision)
            events.append(event)
            size += len(event.value or b"") + len(event.previous or b"")
    return Batch(tuple(events), newest)


# For the rows of the log in a sweep: the rows they have replaced, and deletions themselves.
_FORGET_REPLACED = """
    DELETE FROM replaced WHERE (key, until) IN (
        SELECT key, position FROM log
        WHERE position > :swept AND position <= :reached AND previous != 0
    )
"""
_FORGET_LOGGED = """
    DELETE FROM log WHERE position IN (
        SELECT previous FROM log
        WHERE position > :swept AND position <= :reached AND previous != 0
        UNION ALL
        SELECT position FROM log WHERE position > :swept AND position <= :reached AND value IS NULL
    )
"""


# For the ranges in a sweep, the same: the values that they deleted.
_FORGET_RANGES = (
    """
    DELETE FROM log WHERE position IN (
        SELECT gone.position FROM ranges CROSS JOIN replaced AS gone
            ON gone.key >= ranges.start AND gone.key < ranges.end AND +gone.until = ranges.position
        WHERE ranges.position <= :reached
    )
    """,
    """
    DELETE FROM replaced WHERE (key, until) IN (
        SELECT gone.key, gone.until FROM ranges CROSS JOIN replaced AS gone
            ON gone.key >= ranges.start AND gone.key < ranges.end AND +gone.until = ranges.position
        WHERE ranges.position <= :reached
    )
    """,
    "DELETE FROM ranges WHERE position <= :reached",
)


def sweep(db: apsw.Connection, before: Revision) -> bool:
    """Set the oldest revision, and do a small part of the compaction; return whether work is left.

    Scans the log from the end of the last sweep: each row has replaced an older one, which no read
    or watch can reach any more, and a deletion's own row is no longer needed. As with commits, the
    calls into SQLite are few and large.
    """
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE state SET oldest = max(oldest, ?)", (before,))
    oldest, swept = db.execute("SELECT oldest, swept FROM state").get
    last = _last_position(oldest)
    next_position = db.execute(
        "SELECT position FROM log WHERE position > ? AND position <= ?"
        " ORDER BY position LIMIT 1 OFFSET ?",
        (swept, last, ROWS_PER_SWEEP - 1),
    ).get
    walked = {"swept": swept, "reached": next_position or last}
    if db.execute("SELECT 1 FROM ranges WHERE position <= :reached", walked).get:
        for statement in _FORGET_RANGES:
            db.execute(statement, walked)
    db.execute(_FORGET_REPLACED, walked)
    db.execute(_FORGET_LOGGED, walked)
    db.execute("UPDATE state SET swept = max(swept, ?)", (walked["reached"],))
    db.execute("COMMIT")
    return next_position is not None


@contextmanager
def _snapshot(db: apsw.Connection) -> Iterator[Extent]:
    """One view of the file, whatever is written meanwhile."""
    db.execute("BEGIN")
    try:
        yield extent(db)
    finally:
        db.execute("ROLLBACK")  # nothing was written; also ends an open cursor


def _held(db: apsw.Connection, keys: list[str]) -> dict[str, _Held | None]:
    rows = db.execute(
        "SELECT c.key, c.position, l.value FROM json_each(?) AS wanted"
        " CROSS JOIN current AS c ON c.key = wanted.value CROSS JOIN log AS l USING (position)",
        (_json(keys),),
    )
    return {key: _Held(position, value) for key, position, value in rows}


def _insert(db: apsw.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows in batches of few sizes, so that the prepared statements are reused."""
    done = 0
    while done < len(rows):
        size = min(ROWS_PER_INSERT, 1 << ((len(rows) - done).bit_length() - 1))
        bindings = list(chain.from_iterable(rows[done : done + size]))
        text = _with_rows(statement, len(rows[0]), size)
        db.execute(text, cast("tuple[str, ...]", bindings))
        done += size


@lru_cache(maxsize=32)  # three statements in seven sizes
def _with_rows(statement: str, columns: int, size: int) -> str:
    one = "(" + ",".join("?" * columns) + ")"
    return f"{statement} {','.join([one] * size)}"


def _json(keys: list[str]) -> str:
    return msgspec.json.encode(keys).decode()


def _record(key: str, held: _Held | None) -> Record | None:
    return Record(key, held.value, held.position >> SHIFT) if held else None


def _last_position(revision: Revision) -> int:
    return (revision + 1 << SHIFT) - 1


def _bindings(span: Span, revision: Revision) -> dict[str, str | bytes | int]:
    # SQLite sorts every blob after every text: an unlimited upper bound.
    end = span.end or b""
    last = _last_position(revision)
    return {"start": span.start, "end": end, "last": last, "shift": SHIFT}
