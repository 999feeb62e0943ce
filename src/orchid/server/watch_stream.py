"""Watch streams: events out, as fast as the client reads; bookmarks, time-outs and the end.

An event is encoded once per form and shared by every watcher: the `ObjectChange` keeps it. A
stream that falls behind is cut off by the sink; the client comes back with the last version it saw.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from orchid.clock import Clock
from orchid.engine import tables
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.kind_cache import ObjectChange
from orchid.engine.verbs.watching import ADDED, Watch, too_old
from orchid.server.exchange import Exchange
from orchid.server.negotiate import PROTOBUF, Form, Transform
from orchid.server.protobuf_bodies import entry_body
from orchid.server.sockets.messages import Chunk, Sink
from orchid.wire.codec.documents import encode
from orchid.wire.codec.protobuf import sealed_status, watch_frame
from orchid.wire.naming import INITIAL_EVENTS_END
from orchid.wire.status import ListMeta, Status
from orchid.wire.struct import replace

BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0
CHUNK_SIZE = 65_536

_JSON_STREAM = b"Content-Type: application/json\r\n"
_PROTOBUF_STREAM = b"Content-Type: %b;stream=watch\r\n" % PROTOBUF.encode()


class EventForm:
    """How one watcher wants its events: plain objects, metadata only, or one-row Tables."""

    def __init__(self, watch: Watch[Any], exchange: Exchange, clock: Clock) -> None:
        form: Form = exchange.form
        self.transform = form.transform
        self.meta_version = form.meta_version
        self._packed = form if form.media == PROTOBUF else None
        self.include = (exchange.query.get("includeObject") or [""])[0]
        self.kind = watch.kind
        self._clock = clock
        if self.transform is Transform.TABLE:
            tables.require_known_include(self.include)
        # What two watchers must share for their events to be the same bytes.
        self.key = (
            form.media, self.transform, self.meta_version, self.include, self.kind.api_version
        )  # fmt: skip
        self._columns_due = True

    @property
    def content_type(self) -> bytes:
        return _PROTOBUF_STREAM if self._packed else _JSON_STREAM

    def event(self, type_: str, entry: Entry[Any]) -> bytes:
        entry = entry.served_as(self.kind)
        if self._packed:
            return watch_frame(type_, entry_body(entry, self._packed))
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self._object(entry))

    def shared(self, change: ObjectChange[Any], type_: str, entry: Entry[Any]) -> Chunk:
        """The event of a change, encoded by whoever needs it first."""
        if self.transform is Transform.TABLE and self._columns_due:
            return Chunk(self.event(type_, entry))
        key = (type_, self.key)
        forms = change.forms
        if forms is None:
            forms = change.forms = {}
        found = forms.get(key)
        if found is None:
            found = forms[key] = Chunk(self.event(type_, entry))
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
            now=self._clock.now(),  # ages are those of the moment, not of the beginning
            columns=columns,
        )

    def failure(self, status: Status) -> bytes:
        if self._packed:
            return watch_frame("ERROR", sealed_status(status))
        return b'{"type":"ERROR","object":%b}\n' % encode(status)

    def bookmark(self, revision: int, *, marked: bool) -> bytes:
        """An empty object that carries only the revision of the stream."""
        empty = self.kind.type(kind=self.kind.name, api_version=self.kind.api_version)
        annotations = dict.fromkeys(INITIAL_EVENTS_END, "true") if marked else {}
        meta = replace(empty.metadata, resource_version=str(revision), annotations=annotations)
        return self.event("BOOKMARK", Entry.unsaved(self.kind, replace(empty, metadata=meta)))


class WatchStream:
    """One open watch: from the first event to the last."""

    def __init__(
        self,
        watch: Watch[Any],
        exchange: Exchange,
        clock: Clock,
        seconds: float,
        *,
        joins: bool = True,
    ) -> None:
        self._watch = watch
        self._joins = joins  # whether several events may go out as one chunk
        self._form = EventForm(watch, exchange, clock)
        self._seconds = seconds
        self._sink: Sink
        self.content_type = self._form.content_type
        self._told = watch.after  # the newest revision this client knows of
        self._last_bookmark = 0.0  # when the last one is due, by the loop's clock
        self._end_timer: asyncio.TimerHandle | None = None
        self._bookmark_timer: asyncio.TimerHandle | None = None

    def opened(self, sink: Sink) -> None:
        """Send what is there, then follow. Called once, when the head of the answer is out."""
        self._sink = sink
        watch = self._watch
        if watch.error is not None:
            return self._fail(watch.error.status())
        if self._seconds < 0:
            return sink.finish()
        self._send_all(self._form.event(ADDED, entry) for entry in watch.initial)
        if watch.ends_initial:
            sink.send(Chunk(self._form.bookmark(watch.after, marked=True)))
        watch.initial = ()
        self._catch_up()
        if sink.closed:
            return None
        watch.cache.listen(self, self.deliver, self._lost)
        sink.on_close(self._closed)
        self._start_timers()
        return None

    def deliver(self, changes: Iterable[ObjectChange[Any]]) -> None:
        for change in changes:
            if change.revision <= self._watch.after:
                continue
            seen = self._watch.event(change)
            if seen is not None:
                self._sink.send(self._form.shared(change, *seen))
                self._told = change.revision

    def _catch_up(self) -> None:
        """Everything between the start position and now."""
        watch = self._watch
        if watch.after < watch.feed.revision:
            if watch.after < watch.cache.oldest:
                return self._lost()  # compacted while the head of the answer was being sent
            self.deliver(watch.cache.since(watch.after))
            watch.after = watch.feed.revision
        return None

    def _lost(self) -> None:
        """Changes were missed: the client must list again."""
        self._fail(too_old(self._watch.after, self._watch.cache.oldest).status())

    def _send_all(self, events: Iterable[bytes]) -> None:
        """Many events in few writes."""
        waiting: list[bytes] = []
        size = 0
        for event in events:
            waiting.append(event)
            size += len(event)
            if size > CHUNK_SIZE or not self._joins:
                self._sink.send(Chunk(b"".join(waiting)))
                waiting, size = [], 0
        if waiting:
            self._sink.send(Chunk(b"".join(waiting)))

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        lasts = self._seconds
        self._end_timer = loop.call_later(lasts, self._sink.finish)
        if self._watch.bookmarks:
            self._last_bookmark = loop.time() + lasts - BOOKMARK_BEFORE_END
            self._next_bookmark()

    def _next_bookmark(self) -> None:
        """Every minute, and once more shortly before the end, which is when it helps most.

        A watch that is shorter than that gets none, as in the reference.
        """
        loop = asyncio.get_running_loop()
        wait = min(BOOKMARK_EVERY, self._last_bookmark - loop.time())
        if wait > 0:
            self._bookmark_timer = loop.call_later(wait, self._bookmark)

    def _bookmark(self) -> None:
        self._send_bookmark()
        self._next_bookmark()

    def _send_bookmark(self) -> None:
        revision = self._watch.feed.told
        if revision > self._told:
            self._told = revision
            self._sink.send(Chunk(self._form.bookmark(revision, marked=False)))

    def _fail(self, status: Status) -> None:
        self._sink.send(Chunk(self._form.failure(status)))
        self._sink.finish()

    def _closed(self) -> None:
        self._watch.cache.forget(self)
        for timer in (self._end_timer, self._bookmark_timer):
            if timer is not None:
                timer.cancel()
