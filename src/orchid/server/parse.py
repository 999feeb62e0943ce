"""From method, path and query to what is asked for: a `Target`, and the options of its verb.

`Targets.read` comes before authorization, which needs it; whether such a resource exists is found
out later (`dispatch.py`), so that nobody learns it without the right to ask. The rest are pure
functions of a query.
"""

import functools
import urllib.parse
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from orchid.engine.request import Options, Target
from orchid.engine.verbs.delete import IGNORE, DeleteOptions, Preconditions
from orchid.server.sockets.messages import HttpRequest
from orchid.wire import options as values
from orchid.wire.errors import BadRequest
from orchid.wire.fields import FieldError, Path, forbidden, invalid, required
from orchid.wire.options import FIELD_MANAGER, parse_query
from orchid.wire.rules.names import path_segment_errors
from orchid.wire.selection import FieldMatcher, LabelMatcher
from orchid.wire.struct import Wire, replace

W = TypeVar("W", bound=Wire)

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
LONGEST_TARGET = 32_768  # characters of path and query together
LONGEST_KNOWN = 512
MOST_FIXED, MOST_PLACES = 8192, 1024
_ANY_NAME = "-"


class UnreadableTarget(Exception):
    """The path cannot mean anything; answered before everything else."""


class PathFacts(msgspec.Struct):
    """What follows from method and path on this server, kept by those who worked it out.

    It says nothing about callers: these are judged in every request.
    """

    route: Any = None  # of dispatch.py
    labels: tuple[str, ...] = ()  # of the metrics


class Located(msgspec.Struct, frozen=True):
    """The meaning of a path alone: cached, since most requests repeat paths."""

    target: Target
    rest: tuple[str, ...] = ()  # what follows the group and version
    watch_path: bool = False  # an old /api/v1/watch/... path
    facts: PathFacts = msgspec.field(default_factory=PathFacts)


NO_QUERY: Query = {}


class Targets:
    """Reads what requests to one server are about, and remembers the paths."""

    def __init__(self) -> None:
        self._known = functools.lru_cache(maxsize=8192)(_read)
        # Paths of pages and collections. Of objects there are many more.
        self._fixed: dict[tuple[str, str], Located] = {}
        # Of objects and their endpoints, by all of the path but the name: see `_among`.
        self._places: dict[tuple[str, ...], Located] = {}

    def read(self, http: HttpRequest) -> tuple[Located, Query]:
        """What a request is about, and its query.

        Both are read before anybody knows who is calling, so there is a limit to what is read.
        """
        method, path = http.method, http.path
        if not http.query:
            return self._fixed.get((method, path)) or self._without_query(method, path), NO_QUERY
        if len(path) + len(http.query) > LONGEST_TARGET:
            raise _too_long()
        # Long paths are hardly requested twice, and must not fill the cache.
        short = len(method) + len(path) <= LONGEST_KNOWN
        located = self._known(method, path) if short else _read(method, path)
        query = parse_query(http.query)
        target = located.target
        if target.is_resource and not target.name:
            target = _collection(located, query)
        # The verb may follow from the query, so that nothing is kept beside this.
        return Located(target, located.rest, located.watch_path), query

    def _without_query(self, method: str, path: str) -> Located:
        if len(method) + len(path) > LONGEST_KNOWN:
            if len(path) > LONGEST_TARGET:
                raise _too_long()
            return _without_query(method, path)
        place, _, name = path.rpartition("/")
        endpoint: tuple[str, ...] = ()
        known = self._places.get((method, place))
        if known is None:
            endpoint = (name,)
            place, _, name = place.rpartition("/")
            known = self._places.get((method, place, *endpoint))
            if known is None:
                return self._learned(method, path)
        if not name or "%" in name or not name.isascii():
            return self._kept(method, path)
        target = replace(known.target, path=path, name=name)
        rest = (*known.rest[: -1 - len(endpoint)], name, *endpoint)
        return Located(target, rest, known.watch_path, known.facts)

    def _learned(self, method: str, path: str) -> Located:
        """Read the first path to a place: an object, its endpoint, or none of both."""
        place, _, last = path.rpartition("/")
        for key in ((method, place), (method, place.rpartition("/")[0], last)):
            known = _among(*key) if last else None
            if known is not None:
                if len(self._places) >= MOST_PLACES:
                    self._places.clear()
                self._places[key] = known
                return self._without_query(method, path)
        return self._kept(method, path)

    def _kept(self, method: str, path: str) -> Located:
        if len(self._fixed) >= MOST_FIXED:
            self._fixed.clear()
        located = self._fixed[method, path] = _without_query(method, path)
        return located


def _too_long() -> BadRequest:
    return BadRequest(f"the request target is longer than {LONGEST_TARGET} characters")


def _without_query(method: str, raw_path: str) -> Located:
    located = _read(method, raw_path)
    if located.target.is_resource and not located.target.name:
        located = replace(located, target=_collection(located, {}))
    return located


def _among(method: str, place: str, endpoint: str = "") -> Located | None:
    """The meaning of `place/NAME` for any name, if that is an object and no more.

    A server has far more objects than collections, so the collections are what is cached. The same
    for `place/NAME/endpoint`.
    """
    if "%" in place or not place.isascii() or "%" in endpoint or not endpoint.isascii():
        return None
    if _ANY_NAME in place.split("/"):
        return None  # the stand-in for the name would be there twice
    path = f"{place}/{_ANY_NAME}"
    try:
        located = _read(method, f"{path}/{endpoint}" if endpoint else path)
    except UnreadableTarget:
        return None
    target = located.target
    is_object = target.name == _ANY_NAME and target.subresource == endpoint
    # Of a Namespace, the name is also the namespace.
    return located if is_object and target.namespace != _ANY_NAME else None


def _decoded(raw_path: str) -> str:
    """The path as text. Bytes that are no UTF-8 show as such, and so name nothing."""
    if "%" not in raw_path and raw_path.isascii():
        return raw_path
    raw = raw_path.encode("latin-1", "replace")  # the listener hands bytes on as characters
    return urllib.parse.unquote_to_bytes(raw).decode("utf-8", "replace")


def _read(method: str, raw_path: str) -> Located:
    path = _decoded(raw_path)
    parts = path.strip("/").split("/")
    other = Located(Target(verb=method.lower(), path=path))
    if len(parts) < 3 or parts[0] not in ("api", "apis"):  # noqa: PLR2004 -- api, version, resource
        return other
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) < 4:  # noqa: PLR2004 -- apis, group, version, resource
        return other
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    verb, watch_path = _VERBS.get(method, ""), False
    if rest[0] in ("watch", "proxy"):
        if len(rest) == 1:
            raise UnreadableTarget(raw_path)
        verb, watch_path, rest = rest[0], rest[0] == "watch", rest[1:]
    whole, namespace = tuple(rest), ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if rest[2:] and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return Located(
        Target(verb, path, True, group, version, resource, subresource, namespace, name),
        whole,
        watch_path,
    )


def _collection(located: Located, query: Query) -> Target:
    """Without a name a get is a list or a watch, and a delete deletes the collection."""
    target, watch_path = located.target, located.watch_path
    verb, name = target.verb, ""
    if verb == "get":
        verb = "watch" if wants_watch(query) else "list"
    elif verb == "delete":
        verb = "deletecollection"
    if verb not in ("list", "watch", "deletecollection"):
        return target
    if not query:
        return replace(target, verb=verb)
    fields, labels = _first(query, "fieldSelector"), _first(query, "labelSelector")
    # Who may delete one object by name may not thereby delete collections.
    if fields and verb != "deletecollection":
        pinned = _pinned(query)
        if pinned and not path_segment_errors(pinned):
            name = pinned
    if watch_path:
        fields = labels = ""
    return replace(target, verb=verb, name=name, field_selector=fields, label_selector=labels)


def _pinned(query: Query) -> str | None:
    """The one name that a list selects; what cannot be read is a question about all."""
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
    """A field selector for one object, as the old /watch/.../name paths mean it."""
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
    """The options of a create, update or patch; `write_option_errors` judges them."""
    if not query:
        return _NO_WRITE_OPTIONS
    return Options(
        dry_run=bool(query.get("dryRun")),
        field_manager=_first(query, "fieldManager"),
        field_validation=_first(query, "fieldValidation"),
        force=_optional_bool(query, "force"),
    )


def write_option_errors(query: Query, options: Options, *, patch: str = "") -> Iterator[FieldError]:
    """What is wrong with write options; `patch` is `apply`, `other`, or empty for no patch."""
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
    """Delete options as the query has them; of a collection, resourceVersion says which state."""
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


def both(sent: DeleteOptions, asked: DeleteOptions) -> DeleteOptions:
    """The options of the body and of the query as one; a dry run is one if either says so."""
    agreed = _agreed(sent, replace(asked, dry_run=()))
    return replace(agreed, dry_run=(*sent.dry_run, *asked.dry_run))


def _agreed(sent: W, asked: W) -> W:
    """Either may leave a value out; if both give one, they must agree."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(sent):
        one, other = getattr(sent, field.name), getattr(asked, field.name)
        if isinstance(one, Wire) and isinstance(other, Wire):
            one = other = _agreed(one, other)
        if one != other and field.default not in (one, other):
            said = f"{field.encode_name}: the body says {one} and the query says {other}"
            raise BadRequest(said)
        found[field.name] = other if one == field.default else one
    return replace(sent, **found)


def delete_option_errors(
    options: DeleteOptions, *, collection: bool = False
) -> Iterator[FieldError]:
    if options.ignores_read_errors:
        yield from _unreadable_errors(options, collection)
    yield from values.propagation_policy_errors(
        options.propagation_policy, options.orphan_dependents
    )
    if options.dry_run:
        yield from values.dry_run_errors(options.dry_run)


def _unreadable_errors(options: DeleteOptions, collection: bool) -> Iterator[FieldError]:
    """Removing what cannot be read goes with nothing else: there is no object to apply it to."""
    if collection:
        yield invalid(IGNORE, True, "is not allowed with DELETECOLLECTION")
    others = {
        "dryRun": options.dry_run,
        "gracePeriodSeconds": options.grace_period_seconds is not None,
        "orphanDependents": options.orphan_dependents is not None,
        "preconditions": options.preconditions is not None,
        "propagationPolicy": options.propagation_policy is not None,
    }
    for name, given in others.items():
        if given:
            yield invalid(IGNORE, True, f"cannot be set together with .{name}")
