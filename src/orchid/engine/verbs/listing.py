"""List: a page of objects at one revision, selected and in key order.

Three questions decide where the answer comes from: which revision (resourceVersion and its match),
from which key on (continue), and whether the feed still shows that revision. If not, the store's
history does.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from orchid.engine.cache.entry import Entry, UnreadableBytes
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.kind_cache import KindCache
from orchid.engine.cache.objects import unavailable
from orchid.engine.cache.snapshot import Snapshot
from orchid.engine.cache.sorted_keys import SortedKeys
from orchid.engine.kind import Kind
from orchid.engine.request import NO_OPTIONS, Options, Request
from orchid.engine.verbs import continue_token
from orchid.engine.verbs.read import at_least, parse_version
from orchid.store import interface as store
from orchid.wire.errors import (
    BadRequest,
    ErrorSubject,
    Expired,
    StoreReadError,
    refuse_if_any,
)
from orchid.wire.fields import FieldError, Path, forbidden, unsupported
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.selection import FieldMatcher, LabelMatcher
from orchid.wire.text import quote

T = TypeVar("T", bound=Object)

MATCH = Path() / "resourceVersionMatch"
LIST_TOO_OLD = "The resourceVersion for the provided list is too old."


class Whole(msgspec.Struct, Generic[T], eq=False):
    """Everything on a cache under a prefix; good until the next change, so use it at once."""

    cache: KindCache[T]
    prefix: str

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self.cache.under(self.prefix))


class Listed(msgspec.Struct, Generic[T], eq=False):
    """One page: its entries in order, the revision it shows, and how to go on."""

    entries: Sequence[Entry[T]] | Whole[T]
    revision: int
    continue_: str = ""
    remaining: int | None = None


class Selection(Generic[T]):
    """Which objects of a kind: label and field selectors, checked against the kind."""

    __slots__ = ("everything", "fields", "kind", "labels", "name")

    def __init__(self, kind: Kind[T], options: Options) -> None:
        self.kind = kind
        self.labels = LabelMatcher.parse(options.label_selector)
        self.fields = FieldMatcher.parse(options.field_selector)
        self.name = self.fields.exact("metadata.name")
        self.everything = self.labels.empty and self.fields.empty

    def require_known_fields(self) -> None:
        for name in self.fields.fields():
            refuse_unknown_field(self.kind, name)

    def matches(self, entry: Entry[T]) -> bool:
        if not self.labels.empty and not self.labels.matches(entry.meta.labels):
            return False
        return self.fields.empty or self.fields.matches(
            lambda name: field_value(self.kind, entry, name)
        )


def field_value(kind: Kind[Any], entry: Entry[Any], name: str) -> str:
    if name == "metadata.name":
        return entry.meta.name
    if name == "metadata.namespace":
        return entry.meta.namespace
    return str(kind.selectable[name](entry.object))


def refuse_unknown_field(kind: Kind[Any], name: str) -> None:
    if name == "metadata.name" or name in kind.selectable:
        return
    if kind.selectable:
        if name == "metadata.namespace" and kind.namespaced:
            return
        raise BadRequest(f"field label not supported: {name}")
    if name != "metadata.namespace":
        raise BadRequest(
            f'{quote(name)} is not a known field selector: only "metadata.name", '
            '"metadata.namespace"'
        )


@functools.cache
def _unselected(kind: Kind[T]) -> Selection[T]:
    """All objects of a kind."""
    return Selection(kind, NO_OPTIONS)


class Listing:
    """The verb list."""

    def __init__(self, backend: store.Store, feed: Feed, names: Naming) -> None:
        self._store = backend
        self._feed = feed
        self._names = names

    def selection(self, kind: Kind[T], options: Options) -> Selection[T]:
        """Which objects are asked for, once there is nothing wrong with the question."""
        if options is NO_OPTIONS:
            return _unselected(kind)
        selection = Selection(kind, options)
        refuse_if_any(ErrorSubject(self._names.meta, "ListOptions"), list_option_errors(options))
        selection.require_known_fields()
        return selection

    async def page(self, kind: Kind[T], request: Request) -> Listed[T]:
        options = request.options
        selection = self.selection(kind, options)
        prefix = kind.key_prefix
        namespace = request.target.namespace
        if kind.namespaced and namespace:
            prefix += namespace + "/"
        if options.continue_:
            return await self._continued(selection, prefix, options)
        version, match = options.resource_version, options.resource_version_match
        if version in ("", "0"):
            if not version:
                await self._feed.fresh()
            limit = options.limit if not version else 0
            return self._from_memory(selection, prefix, "", limit)
        revision = list_version(version)
        if match == "Exact" or (not match and options.limit > 0):
            return await self._at(selection, prefix, "", revision, options.limit)
        await at_least(self._feed, revision)
        return self._from_memory(selection, prefix, "", options.limit)

    async def _continued(self, selection: Selection[T], prefix: str, options: Options) -> Listed[T]:
        if options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        token = continue_token.decode(options.continue_, self._names)
        start = prefix + token.start
        await self._feed.fresh()
        if token.revision < 0:
            return self._from_memory(selection, prefix, start, options.limit)
        try:
            return await self._at(selection, prefix, start, token.revision, options.limit)
        except Expired:
            raise continue_token.expired(token, self._names) from None

    def _from_memory(
        self, selection: Selection[T], prefix: str, start: str, limit: int
    ) -> Listed[T]:
        cache = self._feed.cache(selection.kind)
        if cache.unreadable:
            cache.require_readable(prefix)
        if selection.everything and not start and limit <= 0:
            return Listed(Whole(cache, prefix), self._feed.revision)
        return self._page(selection, prefix, cache.under(prefix, start), self._feed.revision, limit)

    async def _at(
        self, selection: Selection[T], prefix: str, start: str, revision: int, limit: int
    ) -> Listed[T]:
        """Exactly as it stood at a revision."""
        await at_least(self._feed, revision)
        cache = self._feed.cache(selection.kind)
        cache.require_readable(prefix)
        if revision >= cache.oldest:
            snapshot = cache.as_of(revision, prefix, start)
            return self._page(selection, prefix, snapshot, revision, limit)
        if limit <= 0 or not selection.everything:
            snapshot = await self._from_history(selection.kind, prefix, start, revision)
            return self._page(selection, prefix, snapshot, revision, limit)
        snapshot = await self._from_history(selection.kind, prefix, start, revision, limit + 1)
        listed = self._page(selection, prefix, snapshot, revision, limit)
        listed.remaining = None  # the store was asked for no more than this page
        return listed

    async def _from_history(
        self, kind: Kind[T], prefix: str, start: str, revision: int, limit: int = 0
    ) -> Snapshot[T]:
        """What the feed no longer remembers, the store may."""
        span = store.Span.prefix(prefix)
        if start:
            span = store.Span(start, span.end)
        try:
            page = await self._store.read(span, at=revision, limit=limit)
        except store.Compacted:
            raise Expired(LIST_TOO_OLD) from None
        except store.StoreError as failure:
            raise unavailable(failure) from failure
        found = {r.key: _entry(kind, r) for r in page.records}
        return Snapshot(SortedKeys(found), found, span.start, span.end)

    def _page(
        self,
        selection: Selection[T],
        prefix: str,
        snapshot: Snapshot[T],
        revision: int,
        limit: int,
    ) -> Listed[T]:
        """The first entries of a snapshot that are selected, and how to go on behind them."""
        entries = iter(self._narrowed(selection, prefix, snapshot))
        if limit <= 0:
            return Listed(list(selected(selection, entries)), revision)
        chosen: list[Entry[T]] = []
        for position, entry in enumerate(entries, start=1):
            if selection.everything or selection.matches(entry):
                chosen.append(entry)
                if len(chosen) == limit and next(entries, None) is not None:
                    return Listed(
                        chosen,
                        revision,
                        continue_token.encode(entry.key[len(prefix) :], revision, self._names),
                        len(snapshot) - position if selection.everything else None,
                    )
        return Listed(chosen, revision)

    def _narrowed(
        self, selection: Selection[T], prefix: str, snapshot: Snapshot[T]
    ) -> Iterable[Entry[T]]:
        """With `metadata.name=x` inside one collection there is at most one object to look at."""
        kind = selection.kind
        if selection.name is None or (kind.namespaced and prefix == kind.key_prefix):
            return snapshot
        found = snapshot.get(f"{prefix}{selection.name}")
        return [] if found is None else [found]


def _entry(kind: Kind[T], record: store.Record) -> Entry[T]:
    try:
        return Entry.read(kind, record.key, record.value, record.revision)
    except UnreadableBytes:
        raise StoreReadError(kind.about(), [record.key.removeprefix(kind.key_prefix)]) from None


def selected(selection: Selection[T], entries: Iterable[Entry[T]]) -> Iterable[Entry[T]]:
    return entries if selection.everything else filter(selection.matches, entries)


def list_version(text: str) -> int:
    try:
        return parse_version(text)
    except BadRequest as mistake:
        raise BadRequest(f"invalid resource version: {mistake}") from None


def list_option_errors(options: Options) -> Iterator[FieldError]:
    """Combinations of list options that make no sense."""
    match, version = options.resource_version_match, options.resource_version
    if match:
        if not version:
            yield forbidden(
                MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if options.continue_:
            yield forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            yield unsupported(MATCH, match, ("Exact", "NotOlderThan", ""))
        if match == "Exact" and version == "0":
            yield forbidden(
                MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            )
    if options.send_initial_events is not None:
        yield forbidden(Path() / "sendInitialEvents", "sendInitialEvents is forbidden for list")
