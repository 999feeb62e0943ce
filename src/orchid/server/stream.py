"""Watch streams: events out, as fast as the client reads; bookmarks, time-outs and the end.

An event is encoded once per form and shared by every watcher: the `Turn` keeps it. A stream that
falls behind is cut off by the sink; the client comes back with the last version it saw.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from orchid.engine import tables
from orchid.engine.feed import Entry, Turn
from orchid.engine.watching import ADDED, Watch
from orchid.server.exchange import Chunk, Sink
from orchid.server.negotiate import Form, Transform
from orchid.server.respond import Exchange
from orchid.wire.codec import encode
from orchid.wire.naming import INITIAL_EVENTS_END
from orchid.wire.status import ListMeta, Status
from orchid.wire.struct import replace

BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0
CHUNK_SIZE = 65_536


class EventForm:
    """How one watcher wants its events: plain objects, metadata only, or one-row Tables."""

    def __init__(self, watch: Watch[Any], exchange: Exchange) -> None:
        form: Form = exchange.form
        self.transform = form.transform
        self.meta_version = form.meta_version
        self.include = (exchange.query.get("includeObject") or [""])[0]
        self.kind = watch.kind
        self.now = exchange.now
        if self.transform is Transform.TABLE:
            tables.require_known_include(self.include)
        # What two watchers must share for their events to be the same bytes.
        self.key = (self.transform, self.meta_version, self.include)
        self._columns_due = True

    def event(self, type_: str, entry: Entry[Any]) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self._object(entry))

    def shared(self, turn: Turn[Any], type_: str, entry: Entry[Any]) -> Chunk:
        """The event of a turn, encoded by whoever needs it first."""
        if self.transform is Transform.TABLE and self._columns_due:
            return Chunk(self.event(type_, entry))
        key = (type_, self.key)
        found = turn.forms.get(key)
        if found is None:
            found = turn.forms[key] = Chunk(self.event(type_, entry))
        return found

    def _object(self, entry: Entry[Any]) -> bytes:
        if self.transform is Transform.NONE:
            return entry.data
        if self.transform is not Transform.TABLE:
            return tables.partial_metadata(entry, self.meta_version)
        columns = tables.column_definitions(self.kind) if self._columns_due else None
        self._columns_due = False
        return tables.table(
            self.kind,
            [entry],
            encode(ListMeta(resource_version=entry.object.metadata.resource_version)),
            api_version=self.meta_version,
            include=self.include,
            now=self.now,
            columns=columns,
        )

    def bookmark(self, revision: int, *, marked: bool) -> bytes:
        """An empty object that says only how far the stream is."""
        empty = self.kind.type(kind=self.kind.name, api_version=self.kind.api_version)
        annotations = dict.fromkeys(INITIAL_EVENTS_END, "true") if marked else {}
        meta = replace(empty.metadata, resource_version=str(revision), annotations=annotations)
        return self.event("BOOKMARK", Entry.unsaved(self.kind, replace(empty, metadata=meta)))


class WatchStream:
    """One open watch: from the first event to the last."""

    def __init__(self, watch: Watch[Any], exchange: Exchange, seconds: float) -> None:
        self._watch = watch
        self._form = EventForm(watch, exchange)
        self._seconds = seconds
        self._sink: Sink
        self.content_type = b"Content-Type: application/json\r\n"
        self._told = watch.after  # the newest revision this client knows of
        self._end_timer: asyncio.TimerHandle | None = None
        self._bookmark_timer: asyncio.TimerHandle | None = None

    def opened(self, sink: Sink) -> None:
        """Send what is there, then follow. Called once, when the head of the answer is out."""
        self._sink = sink
        watch = self._watch
        if watch.error is not None:
            return self._fail(watch.error.status())
        self._send_all(self._form.event(ADDED, entry) for entry in watch.initial)
        if watch.ends_initial:
            sink.send(Chunk(self._form.bookmark(watch.after, marked=True)))
        watch.initial = ()
        self._catch_up()
        if sink.closed:
            return None
        watch.shelf.listen(self, self.deliver)
        sink.on_close(self._closed)
        self._start_timers()
        return None

    def deliver(self, turns: Iterable[Turn[Any]]) -> None:
        for turn in turns:
            if turn.revision <= self._watch.after:
                continue
            seen = self._watch.event(turn)
            if seen is not None:
                self._sink.send(self._form.shared(turn, *seen))
                self._told = turn.revision

    def _catch_up(self) -> None:
        """Everything between the start position and now."""
        if self._watch.after < self._watch.feed.revision:
            self.deliver(self._watch.shelf.since(self._watch.after))
            self._watch.after = self._watch.feed.revision

    def _send_all(self, events: Iterable[bytes]) -> None:
        """Many events in few writes."""
        waiting: list[bytes] = []
        size = 0
        for event in events:
            waiting.append(event)
            size += len(event)
            if size > CHUNK_SIZE:
                self._sink.send(Chunk(b"".join(waiting)))
                waiting, size = [], 0
        if waiting:
            self._sink.send(Chunk(b"".join(waiting)))

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        self._end_timer = loop.call_later(max(self._seconds, 0.0), self._sink.finish)
        if self._watch.bookmarks:
            self._next_bookmark(self._seconds)

    def _next_bookmark(self, left: float) -> None:
        """Every minute, and once more shortly before the end, which is when it helps most."""
        wait = min(BOOKMARK_EVERY, left - BOOKMARK_BEFORE_END)
        if wait > 0 or left == self._seconds:
            loop = asyncio.get_running_loop()
            self._bookmark_timer = loop.call_later(max(wait, 0.0), self._bookmark, left - wait)

    def _bookmark(self, left: float) -> None:
        self._send_bookmark()
        self._next_bookmark(left)

    def _send_bookmark(self) -> None:
        revision = self._watch.feed.revision
        if revision > self._told:
            self._told = revision
            self._sink.send(Chunk(self._form.bookmark(revision, marked=False)))

    def _fail(self, status: Status) -> None:
        self._sink.send(Chunk(b'{"type":"ERROR","object":%b}\n' % encode(status)))
        self._sink.finish()

    def _closed(self) -> None:
        self._watch.shelf.forget(self)
        for timer in (self._end_timer, self._bookmark_timer):
            if timer is not None:
                timer.cancel()
