"""Patch: the four patch formats, each ending as an update (or, for apply, a create)."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.objects import Objects
from orchid.kernel.engine.endpoint_fields import resets
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.ownership import Ownership
from orchid.kernel.engine.patch import json_patch, merge_patch, server_side_apply, strategic_merge
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.verbs.create import Creating, deduplicated, in_namespace
from orchid.kernel.engine.verbs.read import parse_version
from orchid.kernel.engine.verbs.request_body import NO_OWNERS, resets_ownership
from orchid.kernel.engine.verbs.update import Updating, require_name
from orchid.kernel.wire.codec.bounds import MOST_OF_PATCH, MOST_VALUES
from orchid.kernel.wire.codec.documents import (
    TypeMeta,
    Undecodable,
    convert,
    encode,
    plain,
    repeated_fields,
    strict_error,
)
from orchid.kernel.wire.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    ErrorSubject,
    Invalid,
    NotFound,
)
from orchid.kernel.wire.fields import Path, invalid
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.status import StatusCause, StatusDetails
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import REDACTED, quote, shown, timestamp

T = TypeVar("T", bound=Object)

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY)

PATCH = Path() / "patch"
QUOTING_CODES = (400, 403, 409, 422)  # responses that may quote the object


class Edit(msgspec.Struct, frozen=True):
    """A change: its function, the findings about the patch, and its form in an error."""

    apply: Callable[[dict[str, Any]], Any]
    findings: list[str]
    shown: Any = None  # None: the patched document
    carries: bool = False  # copies or moves values of the document


class Patching:
    """The verb patch."""

    def __init__(
        self,
        objects: Objects,
        creating: Creating,
        updating: Updating,
        ownership: Ownership,
        *,
        naming: Naming,
        offload: Offload,
    ) -> None:
        self._objects = objects
        self._creating = creating
        self._updating = updating
        self._ownership = ownership
        self._naming = naming
        self._offload = offload

    async def patch(
        self,
        kind: Kind[T],
        endpoint: Endpoint | None,
        media_type: str,
        body: bytes,
        request: Request,
    ) -> Entry[T]:
        """Every patch but apply."""
        try:
            edit = await self._offload(
                request.body_weight, lambda: self._edit(kind, media_type, body, request)
            )
        except ApiError:
            # A missing object is reported before errors in the patch.
            await self._objects.current(kind, request.namespace, request.name)
            raise
        if edit.carries:
            request.body_weight += json_patch.MOST_COPIED

        def change(entry: Entry[T]) -> T:
            old = entry.object
            current = msgspec.json.decode(entry.data)
            patched = edit.apply(current)
            new = self._decoded(kind, patched, edit, request)
            if resets_ownership(patched):
                new = new.with_meta(managed_fields=NO_OWNERS)
            new = in_namespace(kind, new, request.namespace)
            require_name(new, request)
            new = deduplicated(new, request, patched=True)
            return self._ownership.after_update(kind, endpoint, old, new, request)

        try:
            return await self._updating.change(kind, endpoint, change, request)
        except ApiError as refusal:
            if kind.confidential and edit.carries and refusal.code in QUOTING_CODES:
                raise without_values(kind, refusal) from None
            raise

    async def apply(
        self,
        kind: Kind[T],
        endpoint: Endpoint | None,
        body: bytes,
        request: Request,
        may_create: Callable[[], Awaitable[None]],
    ) -> tuple[Entry[T], bool]:
        """Server-side apply; returns whether the object was created. `may_create` raises if
        forbidden.
        """
        config = await self._offload(request.body_weight, lambda: self._apply_body(body, request))

        def change(entry: Entry[T]) -> T:
            live = msgspec.json.decode(entry.data)
            return self._applied(kind, endpoint, live, config, request)

        while True:
            # If the object is created or deleted meanwhile, the other path is tried, so that apply
            # only fails for invalid input.
            if endpoint is None and await self._is_missing(kind, request):
                try:
                    return await self._apply_new(kind, config, request, may_create), True
                except AlreadyExists:
                    if await self._is_missing(kind, request):
                        raise  # because of another object: trying again would never end
            try:
                return await self._updating.change(kind, endpoint, change, request), False
            except NotFound:
                if endpoint is not None or not await self._is_missing(kind, request):
                    raise

    async def _is_missing(self, kind: Kind[T], request: Request) -> bool:
        await self._objects.feed.fresh()
        return self._objects.cache(kind).get(request.namespace, request.name) is None

    async def _apply_new(
        self,
        kind: Kind[T],
        config: dict[str, Any],
        request: Request,
        may_create: Callable[[], Awaitable[None]],
    ) -> Entry[T]:
        new = await self._offload(
            request.body_weight, lambda: self._applied(kind, None, None, config, request)
        )
        if new.metadata.resource_version:
            parse_version(new.metadata.resource_version, of="")
            # As in a PUT: a dry run shows the version that was sent.
            if not request.options.dry_run:
                new = new.with_meta(resource_version="")
        creating = request.with_target(replace(request.target, verb="create"))
        await may_create()
        return await self._creating.create(kind, new, creating, has_owners=True)

    def _applied(
        self,
        kind: Kind[T],
        endpoint: Endpoint | None,
        live: dict[str, Any] | None,
        config: dict[str, Any],
        request: Request,
    ) -> T:
        tool = self._naming.of_client_tool(request.manager)
        result = server_side_apply.apply(
            live,
            config,
            schema=kind.schema,
            manager=request.manager,
            force=bool(request.options.force),
            api_version=kind.api_version,
            served=kind.api_versions,
            kind=kind.name,
            subresource=request.target.subresource,
            reset=resets(kind, endpoint),
            now=timestamp(request.now),
            last_applied_annotation=tool.last_applied_annotation,
            last_applied_manager=tool.client_tool,
        )
        new, _ = self._converted(kind, result, config)
        if live is None and (uid := new.metadata.uid):
            raise Conflict(
                kind.about(request.name),
                f"uid mismatch: the provided object specified uid {shown(uid)}, "
                "and no existing object was found",
            )
        new = in_namespace(kind, new, request.namespace)
        require_name(new, request)
        return new

    def _apply_body(self, body: bytes, request: Request) -> dict[str, Any]:
        config, repeated = server_side_apply.decode_apply_body(body)
        if repeated and request.options.field_validation == "Strict":
            lines = "".join(f"\n  {line}" for line in repeated)
            raise BadRequest(
                "error strict decoding YAML: error converting YAML to JSON: "
                f"yaml: unmarshal errors:{lines}"
            )
        if request.options.field_validation != "Ignore":
            for line in repeated:
                request.warn(line)
        return config

    def _edit(self, kind: Kind[Any], media_type: str, body: bytes, request: Request) -> Edit:
        """The change, and the findings about the patch itself."""
        looks = request.options.field_validation != "Ignore"
        try:
            patch = plain(body, MOST_OF_PATCH if media_type == JSON_PATCH else MOST_VALUES)
            findings = repeated_fields(body) if looks else []
        except Undecodable as failure:
            raise _unreadable(media_type, str(failure), looks=looks) from None
        if media_type == JSON_PATCH:
            if not isinstance(patch, list):
                raise BadRequest("error decoding patch: the patch is not a list of operations")
            findings = [f"json patch {finding}" for finding in findings]
            findings += json_patch.unknown_members(patch) if looks else []
            return Edit(
                lambda document: json_patch.apply(document, patch),
                findings,
                carries=json_patch.carries(patch),
            )
        if media_type == MERGE_PATCH:
            if patch is None:
                raise BadRequest("Invalid JSON Patch")
            if isinstance(patch, list) and not looks:
                return Edit(lambda document: patch, findings)
            if not isinstance(patch, dict):
                raise BadRequest("error decoding patch: the patch is not an object")
            return Edit(lambda document: merge_patch.apply(document, patch), findings)
        if patch is None:
            patch = {}
        if not isinstance(patch, dict):
            raise BadRequest("the patch is not an object")

        def merged(document: dict[str, Any]) -> dict[str, Any]:
            result = strategic_merge.apply(document, patch, kind.schema)
            self._type_meta(kind, result, patch)
            return _still_of(kind, result)

        return Edit(merged, findings, shown=patch)

    def _decoded(self, kind: Kind[T], patched: Any, edit: Edit, request: Request) -> T:
        """The patched document as an object, with unknown fields reported."""
        shown = patched if edit.shown is None else edit.shown
        if not isinstance(patched, dict):
            raise patch_invalid(kind, patched, "the result is not an object")
        mode = request.options.field_validation
        new, problems = self._identified(kind, patched, shown, findings=mode != "Ignore")
        problems = list(dict.fromkeys([*edit.findings, *problems]))
        if problems and mode == "Strict":
            raise patch_invalid(kind, shown, strict_error(problems))
        for finding in problems:
            request.warn(finding)
        return new

    def _identified(
        self, kind: Kind[T], document: dict[str, Any], shown: Any, *, findings: bool
    ) -> tuple[T, list[str]]:
        """Decode a document by its apiVersion and kind, which must be unchanged.

        Without an apiVersion its format is unknown, so none of its fields can be decoded.
        """
        said = self._type_meta(kind, document, shown)
        if not said.api_version:
            unknown = [
                f"unknown field {quote(field)}"
                for field in sorted(document)
                if field not in ("apiVersion", "kind")
            ]
            return kind.type(), unknown if findings else []
        name = said.kind or kind.name
        if (said.api_version, name) != (kind.api_version, kind.name):
            problem = f"{name} of {said.api_version} is no {kind.name} of {kind.api_version}"
            raise patch_invalid(kind, shown, problem)
        return self._converted(kind, document, shown, findings=findings)

    def _type_meta(self, kind: Kind[Any], document: dict[str, Any], shown: Any) -> TypeMeta:
        """apiVersion and kind of a document; they must be strings."""
        said = {name: document.get(name) for name in ("apiVersion", "kind")}
        try:
            return convert(said, TypeMeta)
        except Undecodable as failure:
            raise patch_invalid(kind, shown, str(failure)) from None

    def _converted(
        self, kind: Kind[T], document: dict[str, Any], shown: Any, *, findings: bool = False
    ) -> tuple[T, list[str]]:
        try:
            new, problems = kind.decoder.convert(_still_of(kind, document), findings=findings)
        except Undecodable as failure:
            raise patch_invalid(kind, shown, str(failure)) from None
        return kind.defaults(new) if kind.defaults else new, problems


def _still_of(kind: Kind[Any], document: dict[str, Any]) -> dict[str, Any]:
    """The document with the apiVersion and kind of its kind."""
    if document.get("kind") == kind.name and document.get("apiVersion") == kind.api_version:
        return document
    return {**document, "kind": kind.name, "apiVersion": kind.api_version}


def _unreadable(media_type: str, reason: str, *, looks: bool) -> BadRequest:
    if media_type == STRATEGIC_MERGE_PATCH:
        return BadRequest(reason)
    if media_type == MERGE_PATCH and not looks:
        return BadRequest("Invalid JSON Patch")
    return BadRequest(f"error decoding patch: {reason}" if looks else reason)


def patch_invalid(kind: Kind[Any], shown: Any, problem: str) -> Invalid:
    text = REDACTED if kind.confidential else encode(shown).decode()
    return Invalid(ErrorSubject("", ""), [invalid(PATCH, text, problem)])


def without_values(kind: Kind[Any], refusal: ApiError) -> ApiError:
    """The refusal with fields but no values, for a patch that moved confidential values."""
    said = refusal.details or StatusDetails()
    causes = (StatusCause(cause.reason, REDACTED, cause.field) for cause in said.causes)
    hidden = ApiError(
        f"the {kind.name} is refused as the patch leaves it; no value is shown, because the patch "
        "copies or moves some",
        ErrorSubject(said.group, said.kind, said.name).details(*causes),
    )
    hidden.code, hidden.reason = refusal.code, refusal.reason
    return hidden
