"""Watch streams: events out, as fast as the client reads; bookmarks, timeouts and the end.

An event is encoded once per format and shared by every watcher: the `ObjectChange` caches it. A
stream that falls behind is aborted by the sink; the client resumes with its last version. Initial
objects do not count for that: they are sent as the client reads them.
"""

import asyncio
import itertools
from collections.abc import Generator, Iterable
from typing import Any

from orchid.kernel.base.clock import Clock
from orchid.kernel.engine import tables
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import ObjectChange
from orchid.kernel.engine.verbs.watching import ADDED, Watch, too_old
from orchid.kernel.http.messages import Chunk, Sink
from orchid.kernel.server.negotiate import PROTOBUF, Form, Transform
from orchid.kernel.server.protobuf_bodies import entry_body
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.codec.protobuf import sealed_status, watch_frame
from orchid.kernel.wire.errors import ApiError, Expired
from orchid.kernel.wire.naming import INITIAL_EVENTS_END
from orchid.kernel.wire.status import ListMeta, Status
from orchid.kernel.wire.struct import replace

BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0
# Events from before a watch are sent in pieces of so many bytes or events. The client reads one,
# and other connections get a turn, before the next is built.
PIECE_SIZE, PIECE_EVENTS = 65_536, 100

_JSON_STREAM = b"Content-Type: application/json\r\n"
_PROTOBUF_STREAM = b"Content-Type: %b;stream=watch\r\n" % PROTOBUF.encode()


class EventForm:
    """The event format of one watcher: plain objects, metadata only, or one-row Tables."""

    def __init__(self, watch: Watch[Any], state: RequestState, clock: Clock) -> None:
        form: Form = state.form
        self.transform = form.transform
        self.meta_version = form.meta_version
        self._packed = form if form.media == PROTOBUF else None
        self.include = (state.query.get("includeObject") or [""])[0]
        self.kind = watch.kind
        self._clock = clock
        if self.transform is Transform.TABLE:
            tables.require_known_include(self.include)
        # Watchers with equal keys get equal bytes.
        self.key = (
            form.media, self.transform, self.meta_version, self.include, self.kind.api_version
        )  # fmt: skip
        self._columns_due = True

    @property
    def content_type(self) -> bytes:
        return _PROTOBUF_STREAM if self._packed else _JSON_STREAM

    def event(self, type_: str, entry: Entry[Any]) -> bytes:
        if entry.kind is not self.kind:
            entry = entry.served_as(self.kind)
        if self._packed:
            return watch_frame(type_, entry_body(entry, self._packed))
        if self.transform is Transform.NONE:
            return b'{"type":"%b","object":%b%b}\n' % (type_.encode(), entry.kind.head, entry.tail)
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self._transformed(entry))

    def shared(self, change: ObjectChange[Any], type_: str, entry: Entry[Any]) -> Chunk:
        """The event of a change, encoded on first use."""
        if self.transform is Transform.TABLE and self._columns_due:
            return Chunk(self.event(type_, entry))
        key = (type_, self.key)
        forms = change.forms
        if forms is None:
            forms = change.forms = {}
        chunk = forms.get(key)
        if chunk is None:
            if entry.kind is not self.kind:
                entry = entry.served_as(self.kind)
            events = ((type_, entry),) if self.transform is Transform.NONE else ()
            chunk = forms[key] = Chunk(self.event(type_, entry), events)
        return chunk

    def _transformed(self, entry: Entry[Any]) -> bytes:
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
            now=self._clock.now(),  # current ages, not those of the start
            columns=columns,
        )

    def failure(self, status: Status) -> bytes:
        if self._packed:
            return watch_frame("ERROR", sealed_status(status))
        return b'{"type":"ERROR","object":%b}\n' % encode(status)

    def bookmark(self, revision: int, *, marked: bool) -> bytes:
        """An empty object with only the revision of the stream."""
        empty = self.kind.type(kind=self.kind.name, api_version=self.kind.api_version)
        annotations = dict.fromkeys(INITIAL_EVENTS_END, "true") if marked else {}
        meta = replace(empty.metadata, resource_version=str(revision), annotations=annotations)
        return self.event("BOOKMARK", Entry.unsaved(self.kind, replace(empty, metadata=meta)))


class WatchStream:
    """One open watch: from the first event to the last."""

    def __init__(
        self,
        watch: Watch[Any],
        state: RequestState,
        clock: Clock,
        seconds: float,
        *,
        joins: bool = True,
    ) -> None:
        self._watch = watch
        self._joins = joins  # whether several events may be sent as one chunk
        self._form = form = EventForm(watch, state, clock)
        # Without selectors, a watcher gets the same event of a change as all others of this format.
        is_common = watch.plain and form.transform is not Transform.TABLE
        self._common_key = form.key if is_common else None
        self._seconds = seconds
        self._sink: Sink
        self._past: Generator[bytes, None, None]
        self.content_type = self._form.content_type
        self._sent_revision = watch.after  # the newest revision this client has received
        self._ends = 0.0  # by the loop's clock
        self._end_timer: asyncio.TimerHandle | None = None
        self._bookmark_timer: asyncio.TimerHandle | None = None

    def opened(self, sink: Sink) -> None:
        """Send initial events, then follow. Called once, when the head of the response is out."""
        self._sink = sink
        if self._watch.error is not None:
            return self._fail(self._watch.error)
        if self._seconds < 0:
            return sink.finish()
        sink.on_close(self._closed)
        loop = asyncio.get_running_loop()
        self._ends = loop.time() + self._seconds
        self._end_timer = loop.call_at(self._ends, sink.finish)
        self._past = self._past_events()
        return self._send_past()

    def deliver(self, changes: Iterable[ObjectChange[Any]]) -> None:
        after, key = self._watch.after, self._common_key
        events: list[Chunk] = []
        for change in changes:
            if change.revision > after:
                forms = change.forms
                event = forms.get(key) if forms else None
                if event is None:
                    event = self._event(change)
                if event is not None:
                    self._sent_revision = change.revision
                    events.append(event)
        if len(events) > 1 and self._joins:
            events = self._joined(events)
        for event in events:
            self._sink.send(event)

    def _joined(self, events: list[Chunk]) -> list[Chunk]:
        """A few events as one piece, built by the first of all watchers with the same events.

        So many slow watchers hold the same bytes. More than a few events are shared one by one.
        """
        cache = self._watch.cache
        if cache.last_batch is None or cache.last_batch[0] != events:
            data = [event.data for event in events]
            size = sum(map(len, data))
            piece = [Chunk(b"".join(data), _named(events))] if size <= PIECE_SIZE else events
            cache.last_batch = (events, piece)
        return cache.last_batch[1]

    def _send_past(self) -> None:
        """Send one piece of past events. After the last one, follow the cache."""
        sink = self._sink
        if sink.closed:
            return None
        piece: list[bytes] = []
        size, more = 0, False
        try:
            for event in self._past:
                piece.append(event)
                size += len(event)
                more = size >= PIECE_SIZE or len(piece) >= PIECE_EVENTS
                if more:
                    break
        except Expired as lost:
            return self._fail(lost)
        for data in [b"".join(piece)] if self._joins else piece:
            sink.send(Chunk(data))
        return sink.when_taken(self._send_past) if more else self._follow()

    def _past_events(self) -> Generator[bytes, None, None]:
        """The initial objects, then all changes up to now, whenever that is."""
        watch, form = self._watch, self._form
        for entry in watch.initial:
            yield form.event(ADDED, entry)
        watch.initial = ()
        if watch.ends_initial:
            yield form.bookmark(watch.after, marked=True)
        while watch.after < (now := watch.feed.revision):
            if watch.after < watch.cache.oldest:
                raise too_old(watch.after, watch.cache.oldest)
            for change in watch.cache.since(watch.after):
                event = self._event(change)
                if event is not None:
                    self._sent_revision = change.revision
                    yield event.data
            watch.after = now

    def _event(self, change: ObjectChange[Any]) -> Chunk | None:
        """The event of a change for this client, or None."""
        seen = self._watch.event(change)
        if seen is None:
            return None
        event = self._form.shared(change, *seen)
        if self._common_key is not None and change.forms is not None:
            change.forms[self._common_key] = event
        return event

    def _follow(self) -> None:
        self._watch.cache.listen(self, self.deliver, self._lost)
        if self._watch.bookmarks:
            self._next_bookmark()

    def _lost(self) -> None:
        """Changes were missed: the client must list again."""
        self._fail(too_old(self._watch.after, self._watch.cache.oldest))

    def _next_bookmark(self) -> None:
        """Every minute, and once more shortly before the end, when it helps most.

        A shorter watch gets none, as in Kubernetes.
        """
        loop = asyncio.get_running_loop()
        wait = min(BOOKMARK_EVERY, self._ends - BOOKMARK_BEFORE_END - loop.time())
        if wait > 0:
            self._bookmark_timer = loop.call_later(wait, self._bookmark)

    def _bookmark(self) -> None:
        self._send_bookmark()
        self._next_bookmark()

    def _send_bookmark(self) -> None:
        revision = self._watch.feed.notified
        if revision > self._sent_revision:
            self._sent_revision = revision
            self._sink.send(Chunk(self._form.bookmark(revision, marked=False)))

    def _fail(self, error: ApiError) -> None:
        self._sink.send(Chunk(self._form.failure(error.status())))
        self._sink.finish()

    def _closed(self) -> None:
        self._watch.cache.forget(self)
        self._past.close()
        for timer in (self._end_timer, self._bookmark_timer):
            if timer is not None:
                timer.cancel()


def _named(chunks: list[Chunk]) -> list[Any]:
    """The events in several chunks; none unless every chunk has its own."""
    named = [chunk.events for chunk in chunks]
    return list(itertools.chain.from_iterable(named)) if all(named) else []
