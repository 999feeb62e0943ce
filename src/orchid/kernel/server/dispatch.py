"""Route a request to its kind and verb, decode its body, run the verb, and build the response.

The table of verbs comes first; each method below is one of them. Checks are in the order of the
contract: route (404, 405), Content-Type (415), Accept (406), body (413), query (400, 422), then the
engine.
"""

import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.offload import LARGE_BYTES, Offload, body_weight
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.kind import LARGEST_BODY, Endpoint, Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.engine.verbs.all_verbs import Verbs
from orchid.kernel.engine.verbs.create import in_namespace
from orchid.kernel.engine.verbs.delete import DeleteOptions
from orchid.kernel.engine.verbs.patching import APPLY, MEDIA_TYPES
from orchid.kernel.engine.verbs.request_body import decode_message, decode_object
from orchid.kernel.engine.verbs.update import as_new, require_name
from orchid.kernel.http import websocket
from orchid.kernel.http.messages import Response, Stream
from orchid.kernel.server import parse
from orchid.kernel.server.authorize import require_allowed
from orchid.kernel.server.delete_options import LARGEST_OPTIONS, delete_options
from orchid.kernel.server.failures import BareRefusal
from orchid.kernel.server.negotiate import (
    JSON,
    PROTOBUF,
    SERVED,
    STREAMED,
    YAML,
    form_of,
    not_acceptable,
    require_route_accepts,
    unsupported_media,
)
from orchid.kernel.server.parse import Route
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import (
    compressed,
    entry_response,
    head,
    is_large,
    list_response,
    status_response,
)
from orchid.kernel.server.watch_stream import WatchStream
from orchid.kernel.wire.errors import (
    BadRequest,
    ErrorSubject,
    MethodNotAllowed,
    NoSuchRoute,
    TooLarge,
    UnsupportedMedia,
    refuse_if_any,
)
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.status import Status, StatusDetails
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

NO_NAME = "Name parameter required."
DEPTH_OF_ENDPOINT = 3  # resource, name, subresource

COLLECTION = frozenset({"GET", "POST", "DELETE"})
ALL_NAMESPACES = frozenset({"GET"})
OBJECT = frozenset({"GET", "PUT", "PATCH", "DELETE"})
WATCH_PATH = frozenset({"GET"})

Answer = Response | Stream


class Dispatch:
    """From an authorized request to its response."""

    def __init__(
        self,
        catalog: Catalog,
        verbs: Verbs,
        authorizer: Authorizer,
        naming: Naming,
        *,
        clock: Clock,
        offload: Offload,
        shortest_watch: float = 1800.0,
    ) -> None:
        self._catalog = catalog
        self._kinds = catalog.by_resource
        self._verbs = verbs
        self._authorizer = authorizer
        self._naming = naming
        self._clock = clock
        self._offload = offload
        self._shortest_watch = shortest_watch
        self._handlers: dict[str, Callable[[RequestState, Request, Route], Awaitable[Answer]]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def __call__(self, state: RequestState, request: Request) -> Awaitable[Answer]:
        path = state.path
        route = path.route
        if route is None:
            route = path.route = self._route(state, request.target)
        answering = self._handlers[request.target.verb](state, request, route)
        return self._compressed(answering) if state.head.client.accepts_gzip else answering

    async def _compressed(self, answering: Awaitable[Answer]) -> Answer:
        answer = await answering
        if isinstance(answer, Response) and is_large(answer):
            return await self._offload(len(answer.body), functools.partial(compressed, answer))
        return answer

    # -- routing ---------------------------------------------------------------------------

    def _route(self, state: RequestState, target: Target) -> Route:
        """The kind and endpoint of a path, if they support the method."""
        shape = state.path.shape
        kind = self._kinds.get((target.group, target.version, target.resource))
        if kind is None or shape.depth > DEPTH_OF_ENDPOINT:
            raise NoSuchRoute
        if target.path.startswith("//"):
            raise NoSuchRoute  # authorized by its resolved path, but no route begins so
        methods = COLLECTION if shape.depth == 1 else OBJECT
        if shape.is_scoped:
            if not kind.namespaced:
                raise NoSuchRoute
            if not target.namespace:
                raise BadRequest("Namespace parameter required.")
        elif kind.namespaced:
            if shape.depth > 1 or kind.acts:
                raise NoSuchRoute
            methods = ALL_NAMESPACES
        if shape.depth == DEPTH_OF_ENDPOINT:
            return self._endpoint_route(state, kind, target)
        if kind.acts and shape.depth > 1:
            raise NoSuchRoute
        if shape.is_watch:
            methods = WATCH_PATH
        if state.http.method not in methods or target.verb not in kind.verbs:
            raise MethodNotAllowed
        if target.verb == "deletecollection" and target.path.endswith("/"):
            raise BadRequest(NO_NAME)  # its name was probably lost: do not delete them all
        return kind, None

    def _endpoint_route(self, state: RequestState, kind: Kind[Any], target: Target) -> Route:
        endpoint = kind.endpoint(target.subresource)
        if endpoint is None or state.path.shape.is_watch:
            raise NoSuchRoute
        if not target.name:
            raise BadRequest(NO_NAME)
        if target.verb not in endpoint.verbs or state.http.method == "HEAD":
            raise MethodNotAllowed
        return kind, endpoint

    # -- reading ---------------------------------------------------------------------------

    async def _get(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, endpoint = route
        self._negotiate(state, kind, endpoint)
        require_name_in_path(state)
        query = state.query
        if query:
            if parse.is_true(query, "export"):
                raise BadRequest(
                    "the export parameter, deprecated since v1.14, is no longer supported"
                )
            version = query.get("resourceVersion")
            if version:
                request.options = request.options._replace(resource_version=version[0])
        entry = await self._verbs.reading.get(kind, request)
        return await self._entry_answer(state, 200, entry)

    async def _list(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, _ = route
        self._negotiate(state, kind, None, offered=SERVED + STREAMED)
        if state.query:
            request.options = parse.read_options(state.query)
        listed = await self._verbs.listing.page(kind, request)
        if state.form.is_stored_format and not kind.is_renamed and not listed.is_long:
            return list_response(state, kind, listed)
        listed.entries = list(listed.entries)  # a copy, unaffected by later changes
        weight = sum(len(entry.tail) for entry in listed.entries)
        return await self._offload(weight, functools.partial(list_response, state, kind, listed))

    async def _watch(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, _ = route
        self._negotiate(state, kind, None, offered=SERVED + STREAMED)
        request.options = self._watch_options(state, request)
        watch = await self._verbs.watching.open(kind, request)
        if state.form.media == YAML:
            raise not_acceptable(STREAMED)
        lasts = self._watch_seconds(request.options.timeout_seconds or 0)
        if websocket.is_asked_for(state.http):
            agreed = websocket.handshake(state.http, self._naming.websocket_bearer)
            if isinstance(agreed, int):
                raise BareRefusal(agreed)  # no handshake
            stream = WatchStream(watch, state, self._clock, lasts, joins=False)
            return Stream(websocket.SWITCHING, agreed, stream.opened)
        stream = WatchStream(watch, state, self._clock, lasts)
        return Stream(200, head(state, stream.content_type), stream.opened)

    def _watch_seconds(self, asked: int) -> float:
        """The requested timeout, capped at 2x the minimum; a random value between both if none was
        requested.
        """
        if asked:
            return min(float(asked), 2 * self._shortest_watch)
        return self._shortest_watch * (1.0 + random.random())  # noqa: S311 -- spread, not secrecy

    def _watch_options(self, state: RequestState, request: Request) -> Any:
        options = parse.read_options(state.query)
        name = request.target.name
        if state.path.shape.is_watch and name:
            options = options._replace(
                field_selector=parse.pinned_to_name(options.field_selector, name)
            )
        return options

    # -- writing ---------------------------------------------------------------------------

    async def _create(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, endpoint = route
        action = endpoint.kind if endpoint else None
        if action is not None:
            kind, endpoint = action, None
        self._negotiate(state, kind, endpoint)
        # The media type before the options; with a PUT it is the reverse.
        if state.head.client.media not in SERVED:
            raise unsupported_media()
        body = self._body(state, kind.largest_body)
        request.manager = state.head.client.manager
        if state.query:
            self._write_options(state, request, "CreateOptions", "")
        new = await self._decoded(state, request, kind, body)
        if kind.acts:
            entry = await self._verbs.creating.act(kind, new, request, under=action is not None)
        else:
            entry = await self._verbs.creating.create(kind, new, request)
        return await self._entry_answer(state, 201, entry)

    async def _update(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, endpoint = route
        self._negotiate(state, kind, endpoint)
        require_name_in_path(state)
        body = self._body(state, kind.largest_body)
        request.manager = state.head.client.manager
        if state.query:
            self._write_options(state, request, "UpdateOptions", "")
        if state.head.client.media not in SERVED:
            raise unsupported_media()
        new = await self._decoded(state, request, kind, body)
        if kind.creates_on_update and await self._verbs.updating.is_missing(kind, request):
            return await self._create_by_update(state, request, kind, new)
        entry = await self._verbs.updating.replace(kind, endpoint, new, request)
        return await self._entry_answer(state, 200, entry)

    async def _create_by_update(
        self, state: RequestState, request: Request, kind: Kind[Any], new: Any
    ) -> Answer:
        """PUT of a missing object: a create, for users who may create."""
        new = in_namespace(kind, new, request.namespace)
        require_name(new, request)
        creating = request.with_target(replace(request.target, verb="create"))
        await require_allowed(self._authorizer, request.user, creating.target)
        new = as_new(kind, new, creating)
        entry = await self._verbs.creating.create(kind, new, creating)
        return await self._entry_answer(state, 201, entry)

    async def _patch(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, endpoint = route
        media = patch_media_type(state)
        self._negotiate(state, kind, endpoint)
        require_name_in_path(state)
        body = self._body(state, kind.largest_body)
        apply = media == APPLY
        request.body_weight = body_weight(body, may_be_yaml=apply)
        request.manager = state.head.client.manager
        if state.query or apply:
            self._write_options(state, request, "PatchOptions", "apply" if apply else "other")
        if not apply:
            entry = await self._verbs.patching.patch(kind, endpoint, media, body, request)
            return await self._entry_answer(state, 200, entry)
        creating = replace(request.target, verb="create")

        async def may_create() -> None:
            await require_allowed(self._authorizer, request.user, creating)

        entry, created = await self._verbs.patching.apply(kind, endpoint, body, request, may_create)
        return await self._entry_answer(state, 201 if created else 200, entry)

    async def _delete(self, state: RequestState, request: Request, route: Route) -> Answer:
        kind, _ = route
        self._negotiate(state, kind, None)
        require_name_in_path(state)
        options = self._delete_options(state, request)
        if options.ignores_read_errors:
            return await self._delete_unreadable(state, request, kind)
        deleted = await self._verbs.deleting.delete(kind, request.name, options, request)
        if kind.answers_deleted_object or not deleted.gone:
            waits = not deleted.gone and options.orphan_dependents is False
            return await self._entry_answer(state, 202 if waits else 200, deleted.entry)
        details = StatusDetails(
            name=request.name, group=kind.group, kind=kind.plural, uid=deleted.entry.meta.uid
        )
        return status_response(state, 200, Status(status="Success", details=details), state.form)

    async def _delete_unreadable(
        self, state: RequestState, request: Request, kind: Kind[Any]
    ) -> Answer:
        """Remove an object that cannot be decoded; this needs a permission of its own."""
        request.annotate(self._naming.unsafe_delete_annotation, "")
        unsafe = replace(request.target, verb="unsafe-delete-ignore-read-errors")
        await require_allowed(self._authorizer, request.user, unsafe)
        await self._verbs.deleting.delete_unreadable(kind, request)
        details = StatusDetails(name=request.name, group=kind.group, kind=kind.plural)
        return status_response(state, 200, Status(status="Success", details=details), state.form)

    async def _delete_collection(
        self, state: RequestState, request: Request, route: Route
    ) -> Answer:
        kind, _ = route
        self._negotiate(state, kind, None)
        selected = parse.read_options(state.query)
        # Errors of the selection come before those of the delete options.
        self._verbs.listing.selection(kind, selected)
        options = self._delete_options(state, request, collection=True)
        request.options = selected._replace(dry_run=request.options.dry_run)
        await self._verbs.deleting.delete_collection(kind, options, request)
        details = StatusDetails(group=kind.group, kind=kind.plural)
        return status_response(state, 200, Status(status="Success", details=details), state.form)

    # -- shared by the verbs ---------------------------------------------------------------

    def _negotiate(
        self,
        state: RequestState,
        kind: Kind[Any],
        endpoint: Endpoint | None,
        *,
        offered: tuple[str, ...] = SERVED,
    ) -> None:
        accept, forms = state.head.client.accept, state.head.client.forms
        if not accept:
            return
        has_table = bool(kind.columns) and (endpoint is None or endpoint.has_table)
        form = forms.get((offered, has_table))
        if form is None:
            require_route_accepts(accept, offered)
            form = form_of(accept, table=has_table, transforms=True)
            if form is None:
                raise not_acceptable(SERVED)
            forms[offered, has_table] = form
        state.form = form

    async def _entry_answer(self, state: RequestState, code: int, entry: Entry[Any]) -> Response:
        """A response with one object; a large one is converted in a thread."""
        if state.form.is_stored_format:
            return entry_response(state, code, entry)
        return await self._offload(
            len(entry.data), functools.partial(entry_response, state, code, entry)
        )

    def _body(self, state: RequestState, limit: int = LARGEST_BODY) -> bytes:
        if state.http.too_large or len(state.http.body) > limit:
            raise TooLarge(f"limit is {limit}")
        return state.http.body

    async def _decoded(
        self, state: RequestState, request: Request, kind: Kind[Any], body: bytes
    ) -> Any:
        """The object in the body of a create or an update."""
        media = state.head.client.media
        if media == JSON and len(body) <= LARGE_BYTES:
            request.body_weight = len(body)
            new = decode_object(self._catalog, kind, body, request)
        else:
            weight = request.body_weight = body_weight(body, may_be_yaml=media == YAML)
            decode = functools.partial(self._decode, request, kind, media, body)
            new = await self._offload(weight, decode)
        state.sent = new
        return new

    def _decode(self, request: Request, kind: Kind[Any], media: str, body: bytes) -> Any:
        if media == PROTOBUF:
            return decode_message(self._catalog, kind, body)
        return decode_object(self._catalog, kind, body, request, yaml=media == YAML)

    def _write_options(self, state: RequestState, request: Request, kind: str, patch: str) -> None:
        query = state.query
        options = parse.write_options(query)
        refuse_if_any(
            ErrorSubject(self._naming.meta, kind),
            parse.write_option_errors(query, options, patch=patch),
        )
        request.options = options
        request.manager = options.field_manager or request.manager

    def _delete_options(
        self, state: RequestState, request: Request, *, collection: bool = False
    ) -> DeleteOptions:
        body = self._body(state, LARGEST_OPTIONS)
        options = delete_options(state, body, self._naming, collection=collection)
        request.options = request.options._replace(dry_run=bool(options.dry_run))
        return options


def require_name_in_path(state: RequestState) -> None:
    """Refuse an empty or invalid name."""
    name, problems = state.target.name, state.path.shape.name_problems
    if not name:
        raise BadRequest(NO_NAME)
    if problems:
        raise BadRequest(f"Name parameter invalid: {quote(name)}: {';'.join(problems)}")


def patch_media_type(state: RequestState) -> str:
    content_type = state.http.headers.get("content-type", "")
    media = content_type.partition(";")[0]
    if media in MEDIA_TYPES:
        return media
    if media.strip() in MEDIA_TYPES or any(m in MEDIA_TYPES for m in media.split(",")):
        raise unsupported_media(MEDIA_TYPES)
    raise UnsupportedMedia("415: Unsupported Media Type", StatusDetails())
