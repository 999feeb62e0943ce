"""List: a page of objects at one revision, selected and in key order.

The source depends on the revision (resourceVersion and its match), the start key (continue), and
whether the feed still has that revision. If not, the store's history is read.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec

from orchid.kernel.base.scheduling.offload import LARGE_BYTES, Offload
from orchid.kernel.engine.cache.entry import Entry, UnreadableBytes
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.cache.objects import unavailable
from orchid.kernel.engine.cache.snapshot import Snapshot
from orchid.kernel.engine.cache.sorted_keys import SortedKeys
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import NO_OPTIONS, Options, Request
from orchid.kernel.engine.verbs import continue_token
from orchid.kernel.engine.verbs.read import at_least, parse_version
from orchid.kernel.store import interface as store
from orchid.kernel.wire.errors import (
    BadRequest,
    ErrorSubject,
    Expired,
    StoreReadError,
    refuse_if_any,
)
from orchid.kernel.wire.fields import FieldError, Path, forbidden, unsupported
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.selectors.selection import FieldMatcher, LabelMatcher
from orchid.kernel.wire.text import quote

T = TypeVar("T", bound=Object)
View = Callable[[str], Iterable[Entry[T]]]
"""Returns the entries from a key on, at one revision; valid until the next change."""
PastView = Callable[[str], Snapshot[T]]

MATCH = Path() / "resourceVersionMatch"
_TAIL = attrgetter("tail")
LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
# Examining an object means decoding its metadata: as much work as that many bytes of a body.
WEIGHT_OF_OBJECT: Final = 32
# Objects that are looked up, and objects and bytes that are joined, in one turn of the event loop.
MOST_AT_ONCE: Final = 5000
LONG_BYTES: Final = 4 << 20


class Whole(msgspec.Struct, Generic[T], eq=False):
    """All entries of a cache under a prefix; valid until the next change, so use it
    synchronously.
    """

    cache: KindCache[T]
    prefix: str

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self.cache.under(self.prefix))

    @property
    def is_long(self) -> bool:
        """Whether joining the entries takes long; no joined list that is cached does."""
        return not self.cache.is_joined(self.prefix) and is_long(self.cache.under(self.prefix))


class Listed(msgspec.Struct, Generic[T], eq=False):
    """A page: its entries in order, its revision, and the continue token."""

    entries: Sequence[Entry[T]] | Whole[T]  # a Whole is not long
    revision: int
    continue_: str = ""
    remaining: int | None = None

    @property
    def is_long(self) -> bool:
        """Whether joining the bytes of its entries takes long."""
        return not isinstance(self.entries, Whole) and is_long(self.entries)


def is_long(entries: Sequence[Entry[Any]] | Snapshot[Any]) -> bool:
    """Whether joining the bytes of entries takes long."""
    return len(entries) > MOST_AT_ONCE or sum(map(len, map(_TAIL, entries))) > LONG_BYTES


class Selection(Generic[T]):
    """Label and field selectors, checked against the kind."""

    __slots__ = ("everything", "fields", "kind", "labels", "name", "weight")

    def __init__(self, kind: Kind[T], options: Options) -> None:
        self.kind = kind
        self.labels = LabelMatcher.parse(options.label_selector)
        self.fields = FieldMatcher.parse(options.field_selector)
        self.name = self.fields.exact("metadata.name")
        self.everything = self.labels.empty and self.fields.empty
        conditions = len(self.labels.requirements) + len(self.fields.terms)
        self.weight = WEIGHT_OF_OBJECT + conditions  # of examining one object, for Offload

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
    unset = kind.unset.get(name)
    if unset is not None and unset.name not in entry.tail:
        return unset.value
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

    def __init__(self, backend: store.Store, feed: Feed, naming: Naming, offload: Offload) -> None:
        self._store = backend
        self._feed = feed
        self._naming = naming
        self._offload = offload

    def selection(self, kind: Kind[T], options: Options) -> Selection[T]:
        """The selection of a request; raises for invalid options."""
        if options is NO_OPTIONS:
            return _unselected(kind)
        selection = Selection(kind, options)
        refuse_if_any(ErrorSubject(self._naming.meta, "ListOptions"), list_option_errors(options))
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
                await self._feed.fresh_for_request()
            limit = options.limit if not version else 0
            return await self._from_memory(selection, prefix, "", limit)
        revision = list_version(version)
        if match == "Exact" or (not match and options.limit > 0):
            return await self._at(selection, prefix, "", revision, options.limit)
        await at_least(self._feed, revision)
        return await self._from_memory(selection, prefix, "", options.limit)

    async def _continued(self, selection: Selection[T], prefix: str, options: Options) -> Listed[T]:
        if options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        token = continue_token.decode(options.continue_, self._naming)
        start = prefix + token.start
        await self._feed.fresh_for_request()
        if token.revision < 0:
            return await self._from_memory(selection, prefix, start, options.limit)
        try:
            return await self._at(selection, prefix, start, token.revision, options.limit)
        except Expired:
            raise continue_token.expired(token, self._naming) from None

    async def _from_memory(
        self, selection: Selection[T], prefix: str, start: str, limit: int
    ) -> Listed[T]:
        cache = self._feed.cache(selection.kind)
        if cache.unreadable:
            cache.require_readable(prefix)
        revision = self._feed.revision
        if selection.everything and not start and limit <= 0:
            whole = Whole(cache, prefix)
            if not whole.is_long:
                return Listed(whole, revision)
        view = past_view(cache, revision, prefix)
        return await self._page(selection, prefix, view, start, revision=revision, limit=limit)

    async def _at(
        self, selection: Selection[T], prefix: str, start: str, revision: int, limit: int
    ) -> Listed[T]:
        """Exactly as of a revision."""
        await at_least(self._feed, revision)
        cache = self._feed.cache(selection.kind)
        cache.require_readable(prefix)
        if revision >= cache.oldest:
            view = past_view(cache, revision, prefix)
            return await self._page(selection, prefix, view, start, revision=revision, limit=limit)
        if limit <= 0 or not selection.everything:
            view = await self._from_history(selection.kind, prefix, start, revision)
            return await self._page(selection, prefix, view, start, revision=revision, limit=limit)
        view = await self._from_history(selection.kind, prefix, start, revision, limit + 1)
        listed = await self._page(selection, prefix, view, start, revision=revision, limit=limit)
        listed.remaining = None  # the store was only read for this page
        return listed

    async def _from_history(
        self, kind: Kind[T], prefix: str, start: str, revision: int, limit: int = 0
    ) -> PastView[T]:
        """Read a revision from the store that the feed no longer has."""
        span = store.Span.prefix(prefix)
        if start:
            span = store.Span(start, span.end)
        try:
            page = await self._store.read(span, at=revision, limit=limit)
        except store.Compacted:
            raise Expired(LIST_TOO_OLD) from None
        except store.StoreError as failure:
            raise unavailable(failure) from failure
        weight = sum(len(record.value) for record in page.records)
        entries = await self._offload(weight, functools.partial(_entries, kind, page.records))
        keys = SortedKeys(entries)
        return lambda start: Snapshot(keys, entries, max(span.start, start), span.end)

    async def _page(
        self,
        selection: Selection[T],
        prefix: str,
        view: PastView[T],
        start: str,
        *,
        revision: int,
        limit: int,
    ) -> Listed[T]:
        """The first selected entries of a view, and the continue token."""
        narrowed = self._narrowed(selection, prefix, view)
        page, more = await selected(selection, narrowed, start, self._offload, limit)
        if not more:
            return Listed(page, revision)
        return Listed(
            page,
            revision,
            continue_token.encode(page[-1].key[len(prefix) :], revision, self._naming),
            len(view(start)) - limit if selection.everything else None,
        )

    def _narrowed(self, selection: Selection[T], prefix: str, view: PastView[T]) -> View[T]:
        """With `metadata.name=x` inside one collection there is at most one object to examine."""
        kind = selection.kind
        if selection.name is None or (kind.namespaced and prefix == kind.key_prefix):
            return view
        key = f"{prefix}{selection.name}"

        def named(start: str) -> list[Entry[T]]:
            found = view(start).get(key)
            return [] if found is None else [found]

        return named


def past_view(cache: KindCache[T], revision: int, prefix: str) -> PastView[T]:
    """The entries of a cache under a prefix at a revision, valid for as long as needed."""

    def view(start: str) -> Snapshot[T]:
        if revision < cache.oldest:
            raise Expired(LIST_TOO_OLD)
        return cache.as_of(revision, prefix, start)

    return view


async def selected(
    selection: Selection[T], view: View[T], start: str, offload: Offload, limit: int = 0
) -> tuple[list[Entry[T]], bool]:
    """The first selected entries, up to a limit, and whether others follow.

    Thousands are processed in many turns of the event loop; with a selector, all but the first are
    examined in a thread.
    """
    page: list[Entry[T]] = []
    at_once = MOST_AT_ONCE if selection.everything else LARGE_BYTES // selection.weight
    while True:
        if limit > 0 and selection.everything:
            at_once = min(at_once, limit - len(page))
        entries = iter(view(start))
        some = list(islice(entries, at_once))
        following = next(entries, None)
        looked_at = len(some)
        if selection.everything:
            page += some
        else:
            choose = functools.partial(_choose, selection, some, limit, page)
            looked_at = await offload(len(some) * selection.weight, choose)
        if limit > 0 and len(page) == limit:
            return page, following is not None or looked_at < len(some)
        if following is None:
            return page, False
        start, at_once = following.key, MOST_AT_ONCE
        await asyncio.sleep(0)


def _choose(
    selection: Selection[T], entries: list[Entry[T]], limit: int, page: list[Entry[T]]
) -> int:
    """Examine entries until enough are selected; return how many were examined."""
    for number, entry in enumerate(entries, 1):
        if selection.matches(entry):
            page.append(entry)
            if len(page) == limit:
                return number
    return len(entries)


def _entries(kind: Kind[T], records: Sequence[store.Record]) -> dict[str, Entry[T]]:
    return {record.key: _entry(kind, record) for record in records}


def _entry(kind: Kind[T], record: store.Record) -> Entry[T]:
    try:
        return Entry.read(kind, record.key, record.value, record.revision)
    except UnreadableBytes:
        raise StoreReadError(kind.about(), [record.key.removeprefix(kind.key_prefix)]) from None


def list_version(text: str) -> int:
    try:
        return parse_version(text)
    except BadRequest as mistake:
        raise BadRequest(f"invalid resource version: {mistake}") from None


def list_option_errors(options: Options) -> Iterator[FieldError]:
    """Invalid combinations of list options."""
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
