"""Watch: from a revision in history to a stream of events.

`Watching.open` decides where a watch starts and its initial events; the `Watch` it returns converts
each `ObjectChange` of a cache into an event of this watcher. The server sends them
(kernel/server/watch_stream.py).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Options, Request
from orchid.kernel.engine.verbs.listing import (
    MATCH,
    Selection,
    list_option_errors,
    past_view,
    selected,
)
from orchid.kernel.engine.verbs.read import at_least, parse_version
from orchid.kernel.wire.errors import ApiError, ErrorSubject, Expired, Timeout, refuse_if_any
from orchid.kernel.wire.fields import FieldError, forbidden, unsupported
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming

T = TypeVar("T", bound=Object)

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Watch(Generic[T]):
    """One watcher's view of a cache: its initial events, and the event of each change."""

    __slots__ = (
        "after",
        "bookmarks",
        "cache",
        "ends_initial",
        "error",
        "feed",
        "initial",
        "kind",
        "plain",
        "prefix",
        "selection",
    )  # fmt: skip

    def __init__(self, feed: Feed, selection: Selection[T], prefix: str) -> None:
        self.feed = feed
        self.selection = selection
        self.kind = selection.kind
        self.cache: KindCache[T] = feed.cache(selection.kind)
        self.prefix = prefix
        # No selectors: every change of the cache is an event.
        self.plain = selection.everything and prefix == selection.kind.key_prefix
        self.after = 0
        self.initial: Sequence[Entry[T]] = ()
        self.bookmarks = False
        self.ends_initial = False  # a marked bookmark follows the initial events
        self.error: ApiError | None = None  # the only event before the stream ends

    def event(self, change: ObjectChange[T]) -> tuple[str, Entry[T]] | None:
        """The event of a change for this watcher, or None."""
        new, old = change.new, change.old
        if not self.plain:
            if not change.key.startswith(self.prefix):
                return None
            matches = self.selection.matches
            new = new if new is not None and matches(new) else None
            old = old if old is not None and matches(old) else None
        if new is not None:
            return (ADDED if old is None else MODIFIED, new)
        return (DELETED, last_seen(change)) if old is not None else None


def last_seen(change: ObjectChange[T]) -> Entry[T]:
    """A deleted object: its last content, at the revision of its deletion. Created once per
    change.
    """
    forms = change.forms
    if forms is None:
        forms = change.forms = {}
    seen = forms.get(DELETED)
    if seen is None:
        assert change.old is not None
        seen = forms[DELETED] = change.old.at(change.revision)
    return seen


class Watching:
    """The verb watch."""

    def __init__(self, feed: Feed, naming: Naming, offload: Offload) -> None:
        self._feed = feed
        self._naming = naming
        self._offload = offload

    async def open(self, kind: Kind[T], request: Request) -> Watch[T]:
        """The start of a watch. Errors of the request itself are raised."""
        options = request.options
        selection = Selection(kind, options)
        listing_rules = not options.watch  # the old /watch/ paths are validated as lists
        if not listing_rules:
            options = with_defaults(options)
        errors = list_option_errors(options) if listing_rules else watch_option_errors(options)
        refuse_if_any(ErrorSubject(self._naming.meta, "ListOptions"), errors)
        selection.require_known_fields()
        prefix = kind.key_prefix
        if kind.namespaced and request.namespace:
            prefix += request.namespace + "/"
        watch = Watch(self._feed, selection, prefix)
        watch.bookmarks = options.allow_watch_bookmarks
        await self._position(watch, options, listing_rules)
        over = (options.timeout_seconds or 0) < 0
        if over and options.watch and not options.resource_version:
            watch.error = NoTimeLeft()
        return watch

    async def _position(self, watch: Watch[Any], options: Options, listing_rules: bool) -> None:
        version = options.resource_version
        from_start = version in ("", "0")
        if not version:
            await self._feed.fresh_for_request()
        if options.send_initial_events or (listing_rules and from_start):
            if not from_start:
                try:
                    await at_least(self._feed, parse_version(version))
                except Timeout as late:
                    watch.error = late
                    return
            watch.after = self._feed.revision
            watch.ends_initial = options.allow_watch_bookmarks and not listing_rules
            watch.initial = await self._objects_then(watch)
        elif from_start:
            watch.after = self._feed.revision
        else:
            watch.after = parse_version(version)
            if watch.after < watch.cache.oldest:
                watch.error = too_old(watch.after, watch.cache.oldest)

    async def _objects_then(self, watch: Watch[T]) -> list[Entry[T]]:
        """The initial objects: as of the start of the watch."""
        view = past_view(watch.cache, watch.after, watch.prefix)
        chosen, _ = await selected(watch.selection, view, "", self._offload)
        return chosen


class NoTimeLeft(ApiError):
    """The only event of a watch that was over before it began."""

    code, reason = 500, "InternalError"

    def __init__(self) -> None:
        super().__init__("context deadline exceeded")


def too_old(asked: int, oldest: int) -> Expired:
    return Expired(f"too old resource version: {asked} ({oldest})")


def with_defaults(options: Options) -> Options:
    """A watch without a revision begins with the existing objects."""
    if (
        options.resource_version in ("", "0")
        and options.send_initial_events is None
        and not options.resource_version_match
    ):
        return options._replace(send_initial_events=True, resource_version_match="NotOlderThan")
    return options


def watch_option_errors(options: Options) -> Iterator[FieldError]:
    """Invalid combinations of watch options."""
    match = options.resource_version_match
    if options.send_initial_events is not None:
        if match != "NotOlderThan":
            yield forbidden(
                MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
    elif match:
        yield forbidden(
            MATCH,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    if match:
        if options.continue_:
            yield forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")
        if match != "NotOlderThan":
            yield unsupported(MATCH, match, ("NotOlderThan",))
