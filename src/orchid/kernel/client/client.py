"""The client: typed verbs on objects, and list-and-watch of a kind.

    client = Client(transport, catalog)
    account = await client.get(ServiceAccount, "default", namespace="team")
    await client.update_status(csr.with_certificate(pem))
    async for batch in client.follow(ListSelection(Namespace)): ...

A refused request raises the ApiError of the server (kernel/wire/errors.py); a call without a usable
response raises CallFailed (kernel/outbound/failures.py). `follow` lists in pages, then watches, and
resumes a stream at its last revision; if the server no longer has that revision it raises Expired,
and the caller starts over. Nothing else is retried, and nothing is cached.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from orchid.kernel.client.reading import (
    OWN,
    AnswerLimits,
    RawList,
    WatchedChange,
    batches,
    error_of,
    read_page,
    require_short,
)
from orchid.kernel.client.transport import Transport
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerOverLimit, CallFailed
from orchid.kernel.outbound.https_client import JSON, ServerRefused
from orchid.kernel.wire import errors
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.status import ListMeta
from orchid.kernel.wire.struct import Wire, replace

__all__ = ["Client", "ListPage", "ListSelection", "WatchedChange"]

T = TypeVar("T", bound=Object)

MERGE_PATCH = "application/merge-patch+json"
PAGE = OWN.page  # objects on one page of a list
SCANNED = 200  # objects on one page of a scan: decoding more would hold the event loop
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # between attempts to open a stream again

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
LISTED = "LISTED"  # it existed when the watch began


class ListSelection(msgspec.Struct, Generic[T], frozen=True):
    """A selection of objects, and the type to decode them as.

    `read_as` decodes only a part of each object: an `Object` has only metadata. Without `existing`,
    only later changes are returned.
    """

    of: type[T]
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    existing: bool = True
    read_as: type[Any] | None = None

    def query(self) -> dict[str, str]:
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in given.items() if text}


class ListPage(Generic[T]):
    """A page of a list."""

    __slots__ = ("items", "meta")

    def __init__(self, items: list[T], meta: ListMeta) -> None:
        self.items = items
        self.meta = meta


class _Meta(Wire):
    metadata: ListMeta


_version = msgspec.json.Decoder(_Meta).decode


# Creating a decoder costs more than using it.
_decoder: Callable[[Any], msgspec.json.Decoder[Any]] = functools.cache(msgspec.json.Decoder)


class Client:
    """Access to the API with one identity."""

    def __init__(self, transport: Transport, catalog: Catalog, limits: AnswerLimits = OWN) -> None:
        """`limits` of what the server answers; another's server needs FOREIGN."""
        self._transport = transport
        self.catalog = catalog
        self._limits = limits

    # -- one object ------------------------------------------------------------------------

    def get(self, type_: type[T], name: str, namespace: str = "") -> Coroutine[Any, Any, T]:
        kind = self.catalog.of(type_)
        return self._object(type_, "GET", self._path(kind, namespace, name))

    async def find(self, type_: type[T], name: str, namespace: str = "") -> T | None:
        """The object, or None if there is none."""
        try:
            return await self.get(type_, name, namespace)
        except errors.NotFound:
            return None

    def create(self, new: T) -> Coroutine[Any, Any, T]:
        kind = self.catalog.of(type(new))
        path = self._path(kind, new.metadata.namespace)
        return self._object(type(new), "POST", path, _body(kind, new))

    async def update(self, new: Object, endpoint: str = "", *, dry_run: bool = False) -> None:
        """Replace an object; with a resourceVersion, only that version of it."""
        kind = self.catalog.of(type(new))
        path = self._path(kind, new.metadata.namespace, new.metadata.name)
        if endpoint:
            path += f"/{endpoint}"
        if dry_run:
            path += "?dryRun=All"
        await self._sent("PUT", path, _body(kind, new))

    def update_status(self, new: Object) -> Coroutine[Any, Any, None]:
        return self.update(new, "status")

    async def patch(self, type_: type[T], name: str, namespace: str, change: dict[str, Any]) -> T:
        """Merge a change into an object (RFC 7396)."""
        path = self._path(self.catalog.of(type_), namespace, name)
        return await self._object(type_, "PATCH", path, encode(change), MERGE_PATCH)

    async def delete(
        self,
        type_: type[Object],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
    ) -> None:
        """Delete an object; with a uid or a version, only that one."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid or resource_version:
            options["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if propagation:
            options["propagationPolicy"] = propagation
        path = self._path(self.catalog.of(type_), namespace, name)
        await self._sent("DELETE", path, encode(options))

    async def delete_gone(self, type_: type[Object], old: Object, **options: str) -> None:
        """Delete an object unless it is already gone, or replaced by another of its name."""
        try:
            await self.delete(type_, old.name, old.namespace, uid=old.metadata.uid, **options)
        except (errors.NotFound, errors.Conflict):
            return

    async def delete_collection(self, type_: type[Object], namespace: str = "") -> None:
        await self._sent("DELETE", self._path(self.catalog.of(type_), namespace))

    # -- many ------------------------------------------------------------------------------

    async def page(
        self, selection: ListSelection[T], *, limit: int = PAGE, after: str = ""
    ) -> ListPage[T]:
        """A page; `after` is the continue token of the page before."""
        body = await self._page(selection, limit, after)
        decode = _decoder(_read_as(selection)).decode
        return ListPage([decode(item) for item in body.items], body.metadata)

    async def scan(self, selection: ListSelection[T]) -> AsyncIterator[T]:
        """Every object, page by page."""
        after = ""
        while True:
            page = await self.page(selection, limit=SCANNED, after=after)
            for item in page.items:
                yield item
            after = page.meta.continue_
            if not after:
                return
            await asyncio.sleep(0)  # let other tasks run during a long list

    async def follow(
        self, selection: ListSelection[T]
    ) -> AsyncGenerator[list[WatchedChange[T]], None]:
        """Yield existing objects (LISTED), then an empty batch, then every change, without end.

        Raises Expired if events may have been missed: follow again from the start. Raises
        AnswerOverLimit if the server exceeds the limits.
        """
        decoder = _decoder(_read_as(selection))
        position, after, listed = "", "", 0
        while True:
            page = await self._fitting_page(selection, after)
            listed += len(page.items)
            if self._limits.listed is not None and listed > self._limits.listed:
                raise AnswerOverLimit(f"the list has more than {self._limits.listed} objects")
            position = position or page.metadata.resource_version
            after = page.metadata.continue_ if selection.existing else ""
            if selection.existing and page.items:
                yield [WatchedChange(LISTED, item, decoder) for item in page.items]
            if not after:
                break
            await asyncio.sleep(0)
        yield []
        async with contextlib.aclosing(self._watch(selection, position, decoder)) as batches:
            async for batch in batches:
                yield batch

    async def _watch(
        self, selection: ListSelection[T], position: str, decoder: Any
    ) -> AsyncGenerator[list[WatchedChange[T]], None]:
        pause = SHORTEST_PAUSE
        while True:
            latest: msgspec.Raw | bytes | None = None
            try:
                async with self._transport.stream(
                    self._watch_target(selection, position)
                ) as pieces:
                    async for batch in batches(pieces, decoder, self._limits):
                        latest, pause = batch[-1].data, SHORTEST_PAUSE
                        yield [event for event in batch if event.type != BOOKMARK]
            except ServerRefused as refusal:
                raise error_of(refusal.answer, self._limits) from None
            except AnswerOverLimit:
                raise  # it would be again
            except CallFailed:
                pass  # opened again below, at its last revision
            if latest is not None:
                position = _version(latest).metadata.resource_version
                require_short(position)
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _watch_target(self, selection: ListSelection[Any], position: str) -> str:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": position,
            **selection.query(),
        }
        return self._collection(selection) + "?" + urlencode(query)

    async def _fitting_page(self, selection: ListSelection[Any], after: str) -> RawList:
        """The next page; if its objects are too large together, with one of them."""
        limit = self._limits.page if selection.existing else 1
        try:
            return await self._page(selection, limit, after)
        except AnswerOverLimit:
            if limit == 1:
                raise
            return await self._page(selection, 1, after)

    async def _page(self, selection: ListSelection[Any], limit: int, after: str) -> RawList:
        query = {"limit": str(limit), **selection.query()}
        if after:
            query["continue"] = after
        answer = await self._sent("GET", f"{self._collection(selection)}?{urlencode(query)}")
        return await read_page(answer.body, limit, self._limits)

    # -- transport -------------------------------------------------------------------------

    def _collection(self, wanted: ListSelection[Any]) -> str:
        return self._path(self.catalog.of(wanted.of), wanted.namespace)

    def _path(self, kind: Kind[Any], namespace: str, name: str = "") -> str:
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        if kind.namespaced and namespace:
            path += f"/namespaces/{_segment(namespace)}"
        path += f"/{kind.plural}"
        return f"{path}/{_segment(name)}" if name else path

    async def _object(
        self, type_: type[T], method: str, path: str, body: bytes = b"", media: str = JSON
    ) -> T:
        answer = await self._transport.send(method, path, body, media)
        if answer.status >= 300:  # noqa: PLR2004 -- no success
            raise error_of(answer, self._limits)
        decoded: T = _decoder(type_).decode(answer.body)
        return decoded

    async def _sent(self, method: str, target: str, body: bytes = b"", media: str = JSON) -> Answer:
        answer = await self._transport.send(method, target, body, media)
        if answer.status >= 300:  # noqa: PLR2004 -- no success
            raise error_of(answer, self._limits)
        return answer


_SAFE = ":"  # names of roles and bundles have colons, which a path may contain
_is_plain = re.compile(r"[A-Za-z0-9_.~:-]*").fullmatch  # nothing in it has to be escaped


def _segment(name: str) -> str:
    return name if _is_plain(name) else quote(name, safe=_SAFE)


def _read_as(wanted: ListSelection[Any]) -> type[Any]:
    return wanted.read_as or wanted.of


def _body(kind: Kind[Any], new: Object) -> bytes:
    if new.kind != kind.name or new.api_version != kind.api_version:
        new = replace(new, kind=kind.name, api_version=kind.api_version)
    return encode(new)
