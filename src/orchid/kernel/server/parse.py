"""From method, path and query to a `Target` and the options of its verb.

`parse_path` runs before authorization, which needs it; whether such a resource exists is checked
later (`dispatch.py`), so that it is not disclosed without a permission. Functions are pure.
"""

import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.request import Options, Target
from orchid.kernel.engine.verbs.delete import DeleteOptions, Preconditions
from orchid.kernel.wire import options as values
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.fields import FieldError, Path, forbidden, required
from orchid.kernel.wire.options import FIELD_MANAGER
from orchid.kernel.wire.rules.names import path_segment_errors
from orchid.kernel.wire.selectors.selection import FieldMatcher, LabelMatcher
from orchid.kernel.wire.struct import replace

Query = dict[str, list[str]]

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_FORCE = Path() / "force"
_RESOURCE_AT: Final = {"api": 2, "apis": 3}  # index of the segment behind the version
_PREFIXES: Final = ("watch", "proxy")  # of old paths, as /api/v1/watch/pods
_OF_NAMESPACES: Final = ("status", "finalize")  # subresources
_COLLECTION_VERBS: Final = {"get": "list", "delete": "deletecollection"}  # without a name
_OF_COLLECTIONS: Final = frozenset({"list", "watch", "deletecollection"})


class UnreadableTarget(Exception):
    """The path is invalid; answered before everything else."""


NO_QUERY: Query = {}


class PathShape(msgspec.Struct, frozen=True):
    """The form of a resource path, for routing."""

    depth: int = 0  # segments from the resource on; 0: no resource path
    is_scoped: bool = False  # below a namespace
    is_watch: bool = False  # an old path, as /api/v1/watch/pods
    name_problems: tuple[str, ...] = ()  # why no object can have the name in it


NO_RESOURCE = PathShape()


Route = tuple[Kind[Any], Endpoint | None]


class ParsedPath:
    """The target of a method and a path, and values that depend on nothing else."""

    __slots__ = ("labels", "route", "shape", "target")

    def __init__(self, target: Target, shape: PathShape) -> None:
        self.target = target
        self.shape = shape
        self.route: Route | None = None  # set by kernel/server/dispatch.py
        self.labels: tuple[str, ...] | None = None  # set by kernel/server/metrics/requests.py


# Of a request that was not parsed. It is no resource, so nobody caches a route or labels here.
NO_PATH: Final = ParsedPath(Target(verb=""), NO_RESOURCE)


def parse_path(method: str, raw_path: str) -> ParsedPath:
    """The target of a request without a query."""
    path = raw_path if "%" not in raw_path and raw_path.isascii() else _decoded(raw_path)
    rest = path.strip("/").split("/")
    start = _RESOURCE_AT.get(rest[0], 0)
    if not start or len(rest) <= start:
        return ParsedPath(Target(method.lower(), path), NO_RESOURCE)
    group, version = rest[1] if start > _RESOURCE_AT["api"] else "", rest[start - 1]
    del rest[:start]
    verb, namespace, is_scoped, is_watch = _VERBS.get(method, ""), "", False, False
    if rest[0] in _PREFIXES:
        if len(rest) == 1:
            raise UnreadableTarget(raw_path)
        verb = rest.pop(0)
        is_watch = verb == "watch"
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        is_scoped = len(rest) > 2 and rest[2] not in _OF_NAMESPACES  # noqa: PLR2004 -- a resource
        if is_scoped:
            del rest[:2]
    resource, name, subresource = (*rest, "", "")[:3]
    shape = PathShape(len(rest), is_scoped, is_watch, path_segment_errors(name))
    if not name:
        verb = _COLLECTION_VERBS.get(verb, verb)
    target = Target(verb, path, True, group, version, resource, subresource, namespace, name)
    return ParsedPath(target, shape)


def with_query(target: Target, shape: PathShape, query: Query) -> Target:
    """The same target with a query: a list may be a watch, and collections have selectors.

    These are as authorization sees them; an old watch path hides them.
    """
    if not target.is_resource or target.name or target.verb not in _OF_COLLECTIONS:
        return target
    verb = "watch" if target.verb == "list" and wants_watch(query) else target.verb
    fields, labels = _first(query, "fieldSelector"), _first(query, "labelSelector")
    name = ""
    # A permission to delete one object by name is no permission to delete collections.
    if fields and verb != "deletecollection":
        selected = _selected_name(query)
        if selected and not path_segment_errors(selected):
            name = selected
    if shape.is_watch:
        fields = labels = ""
    return replace(target, verb=verb, name=name, field_selector=fields, label_selector=labels)


def _decoded(raw_path: str) -> str:
    """The path as text. Invalid UTF-8 becomes U+FFFD, which matches no name."""
    raw = raw_path.encode("latin-1", "replace")  # the listener passes bytes as characters
    return urllib.parse.unquote_to_bytes(raw).decode("utf-8", "replace")


def _selected_name(query: Query) -> str | None:
    """The name that a field selector requires, or None if the query is invalid."""
    try:
        options = read_options(query)
        LabelMatcher.parse(options.label_selector)
        return FieldMatcher.parse(options.field_selector).exact("metadata.name")
    except BadRequest:
        return None


def wants_watch(query: Query) -> bool:
    return bool(_optional_bool(query, "watch"))


def is_true(query: Query, name: str) -> bool:
    return bool(_optional_bool(query, name))


def pinned_to_name(selector: str, name: str) -> str:
    """A field selector for one object, for the old /watch/.../name paths."""
    if not selector:
        return f"metadata.name={name}"
    if FieldMatcher.parse(selector).exact("metadata.name") != name:
        raise BadRequest("fieldSelector metadata.name doesn't match requested name")
    return selector


def _first(query: Query, name: str) -> str:
    given = query.get(name)
    return given[0] if given else ""


def _optional_bool(query: Query, name: str) -> bool | None:
    given = query.get(name)
    return values.boolean(given[0]) if given else None


def _optional_int(query: Query, name: str) -> int | None:
    given = query.get(name)
    return values.integer(given[0]) if given else None


def read_options(query: Query) -> Options:
    """The options of a get, list, watch or deletecollection."""
    return Options(
        resource_version=_first(query, "resourceVersion"),
        resource_version_match=_first(query, "resourceVersionMatch"),
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        limit=_optional_int(query, "limit") or 0,
        continue_=_first(query, "continue"),
        watch=wants_watch(query),
        allow_watch_bookmarks=bool(_optional_bool(query, "allowWatchBookmarks")),
        send_initial_events=_optional_bool(query, "sendInitialEvents"),
        timeout_seconds=_optional_int(query, "timeoutSeconds"),
    )


_NO_WRITE_OPTIONS = Options()


def write_options(query: Query) -> Options:
    """The options of a create, update or patch; `write_option_errors` validates them."""
    if not query:
        return _NO_WRITE_OPTIONS
    return Options(
        dry_run=bool(query.get("dryRun")),
        field_manager=_first(query, "fieldManager"),
        field_validation=_first(query, "fieldValidation"),
        force=_optional_bool(query, "force"),
    )


def write_option_errors(query: Query, options: Options, *, patch: str = "") -> Iterator[FieldError]:
    """Errors in write options; `patch` is `apply`, `other`, or empty for no patch."""
    if patch == "other" and options.force is not None:
        yield forbidden(_FORCE, "may not be specified for non-apply patch")
    if patch == "apply" and not options.field_manager:
        yield required(FIELD_MANAGER, "is required for apply patch")
    if options.field_manager:
        yield from values.manager_errors(FIELD_MANAGER, options.field_manager)
    if options.dry_run:
        yield from values.dry_run_errors(query["dryRun"])
    if options.field_validation:
        yield from values.field_validation_errors(options.field_validation)


def query_delete_options(query: Query, *, collection: bool = False) -> DeleteOptions:
    """Delete options of the query; for a collection, resourceVersion selects the revision."""
    if not query:
        return DeleteOptions()
    uid, version = query.get("uid"), None if collection else query.get("resourceVersion")
    preconditions = None
    if uid or version:
        preconditions = Preconditions(
            uid=uid[0] if uid else None, resource_version=version[0] if version else None
        )
    policy = query.get("propagationPolicy")
    return DeleteOptions(
        grace_period_seconds=_optional_int(query, "gracePeriodSeconds"),
        preconditions=preconditions,
        orphan_dependents=_optional_bool(query, "orphanDependents"),
        propagation_policy=policy[0] if policy else None,
        dry_run=tuple(query.get("dryRun", ())),
        ignore_store_read_error_with_cluster_breaking_potential=_optional_bool(
            query, "ignoreStoreReadErrorWithClusterBreakingPotential"
        ),
    )
