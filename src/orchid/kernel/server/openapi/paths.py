"""Paths and operations of OpenAPI 3.0, made from the kinds' declarations.

Start with `Paths.of`: every path of a kind, with an operation for each verb. Non-resource paths
(discovery, version, OpenID) are in discovery_paths.py.

The ids of operations become the names of methods in generated clients, and follow Kubernetes:
`createCoreV1NamespacedServiceAccountToken`.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.engine.verbs.delete import DeleteOptions
from orchid.kernel.engine.verbs.patching import JSON_PATCH, MEDIA_TYPES
from orchid.kernel.server.negotiate import SERVED, STREAMED
from orchid.kernel.server.openapi.parameters import LIST, NAME, NAMESPACE, PRETTY, QUERY, Parameter
from orchid.kernel.server.openapi.schemas import GROUP_VERSION_KIND, META, Definitions, Schema, gvk
from orchid.kernel.wire.naming import EXTENSION, Naming
from orchid.kernel.wire.status import Status
from orchid.kernel.wire.struct import Wire, always, describe

PathItem = dict[str, Any]
Operation = dict[str, Any]

FAILURE = "Failure"  # the response to every request that failed
_REFER_TO_FAILURE = {"$ref": f"#/components/responses/{FAILURE}"}
# Possible responses of every operation: credentials are required.
REFUSALS = {"401": _REFER_TO_FAILURE, "default": _REFER_TO_FAILURE}

# The method of a verb, its name in Kubernetes, and the prefix of its operation id.
_METHODS = {
    "get": ("get", "get", "read"),
    "list": ("get", "list", "list"),
    "create": ("post", "post", "create"),
    "update": ("put", "put", "replace"),
    "patch": ("patch", "patch", "patch"),
    "delete": ("delete", "delete", "delete"),
    "deletecollection": ("delete", "deletecollection", "delete"),
    "watch": ("get", "watch", "watch"),
    "watchlist": ("get", "watchlist", "watch"),
}
_SENTENCES = {
    "get": "Read the {one}.",
    "list": "List or watch objects of the kind {kind}.",
    "create": "Create a {one}.",
    "update": "Replace the {one}.",
    "patch": "Change the {one} in part.",
    "delete": "Delete a {one}.",
    "deletecollection": "Delete every {kind} that the selectors find.",
    "watch": "Watch one {kind}. Deprecated: list with a field selector and `watch=true`.",
    "watchlist": "Watch objects of the kind {kind}. Deprecated: list with `watch=true`.",
}
_COLLECTION = ("list", "create", "deletecollection")
_OBJECT = ("get", "update", "patch", "delete")


class WatchEvent(Wire):
    """A watch event: an object as it is now, or as it was when it was deleted."""

    published_as = "meta.v1.WatchEvent"

    type: Annotated[str, describe("ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.")] = always(str)
    object: Annotated[
        Any, describe("The object; a Status if the type is ERROR.", required=True)
    ] = None


class PathTemplate(msgspec.Struct, frozen=True):
    """One path of a kind: of its collection, of an object, or of a subresource."""

    path: str
    parameters: tuple[Parameter, ...]
    scope: str = ""  # the namespace part of its operation ids
    suffix: str = ""
    endpoint: Endpoint | None = None


class Paths:
    """The paths of each kind; their schemas are collected in the definitions."""

    def __init__(self, naming: Naming, definitions: Definitions) -> None:
        self._naming = naming
        self._definitions = definitions

    def of(self, kind: Kind[Any]) -> dict[str, PathItem]:
        """Every path of this kind."""
        items: dict[str, PathItem] = {}
        for template, verbs in _templates(kind):
            operations = {
                _METHODS[verb][0]: self._operation(kind, template, verb) for verb in verbs
            }
            if operations:
                items[template.path] = operations | {"parameters": [*template.parameters, PRETTY]}
        return items

    def failure(self) -> dict[str, Any]:
        """The response to a request that failed."""
        content = _content(self._definitions.of_type(Status, META, (_STATUS,)), SERVED)
        content["text/plain"] = {"schema": {"type": "string"}}
        return {"description": "The request failed; the Status has the reason.", "content": content}

    # -- one operation -----------------------------------------------------------------------

    def _operation(self, kind: Kind[Any], template: PathTemplate, verb: str) -> Operation:
        shown = template.endpoint.kind if template.endpoint and template.endpoint.kind else kind
        group = group_words(self._naming, kind.group)
        subject = f"{template.endpoint.name} of a {kind.name}" if template.endpoint else kind.name
        _, action, begins = _METHODS[verb]
        operation: Operation = {
            "tags": [f"{group[0].lower()}{group[1:]}_{kind.version}"],
            "description": _SENTENCES[verb].format(one=subject, kind=kind.name),
            "operationId": _operation_id(
                begins, group + kind.version.capitalize(), kind, template, verb
            ),
        }
        query = LIST if verb in ("watch", "watchlist") else QUERY[verb]
        if query:
            operation["parameters"] = list(query)
        body = self._body(verb, shown)
        if body:
            operation["requestBody"] = body
        operation["responses"] = self._responses(verb, shown) | REFUSALS
        if verb in ("watch", "watchlist"):
            operation["deprecated"] = True
        operation[f"{EXTENSION}action"] = action
        operation[GROUP_VERSION_KIND] = gvk(shown)
        return operation

    def _body(self, verb: str, kind: Kind[Any]) -> dict[str, Any] | None:
        if verb in ("create", "update"):
            schema = self._definitions.of_kind(kind)
            return {"required": True, "content": _content(schema, SERVED)}
        if verb == "patch":
            content = _content(self._definitions.add("Patch", _PATCH), MEDIA_TYPES)
            content[JSON_PATCH] = {"schema": {"type": "array", "items": {"type": "object"}}}
            return {"required": True, "content": content}
        if verb in ("delete", "deletecollection"):
            options = self._definitions.of_type(DeleteOptions, META, (_DELETE_OPTIONS,))
            return {"content": _content(options, SERVED)}
        return None

    def _responses(self, verb: str, kind: Kind[Any]) -> dict[str, Any]:
        if verb == "list":
            return _ok(self._definitions.of_list(kind), "200", media=SERVED + STREAMED)
        if verb in ("watch", "watchlist"):
            events = self._definitions.of_type(WatchEvent, META, (_WATCH_EVENT,))
            return _ok(events, "200", media=SERVED + STREAMED)
        if verb == "deletecollection":
            return _ok(self._status(), "200")
        itself = self._definitions.of_kind(kind)
        if verb == "create":
            return _ok(itself, "200", "201", "202")
        if verb in ("update", "patch"):
            return _ok(itself, "200", "201")  # either may create a missing object
        if verb == "delete" and not kind.answers_deleted_object:
            # A removed object yields a Status; an object with finalizers is returned itself.
            return _ok({"anyOf": [self._status(), itself]}, "200", "202")
        return _ok(itself, "200", "202") if verb == "delete" else _ok(itself, "200")

    def _status(self) -> Schema:
        return self._definitions.of_type(Status, META, (_STATUS,))


def group_words(naming: Naming, group: str) -> str:
    """`rbac.authorization`, in the domain of the naming -> `RbacAuthorization`."""
    own = group.removesuffix(f".{naming.group_domain}")
    return "".join(word.capitalize() for word in own.split(".")) if own else "Core"


def _operation_id(
    begins: str, group: str, kind: Kind[Any], template: PathTemplate, verb: str
) -> str:
    collection = "Collection" if verb == "deletecollection" else ""
    listed = "List" if verb == "watchlist" else ""
    below = template.endpoint.name.capitalize() if template.endpoint else ""
    return f"{begins}{group}{collection}{template.scope}{kind.name}{below}{listed}{template.suffix}"


def _templates(kind: Kind[Any]) -> Iterator[tuple[PathTemplate, list[str]]]:
    """The paths of a kind, each with its verbs."""
    root = group_path(kind.group, kind.version)
    inside = "/namespaces/{namespace}" if kind.namespaced else ""
    above = (NAMESPACE,) if kind.namespaced else ()
    scope = "Namespaced" if kind.namespaced else ""
    everywhere = "ForAllNamespaces"

    def has(*verbs: str) -> list[str]:
        return [verb for verb in verbs if verb in kind.verbs]

    collection, single = f"{inside}/{kind.plural}", f"{inside}/{kind.plural}/{{name}}"
    if kind.namespaced:
        yield PathTemplate(f"{root}/{kind.plural}", (), suffix=everywhere), has("list")
    yield PathTemplate(f"{root}{collection}", above, scope), has(*_COLLECTION)
    yield PathTemplate(f"{root}{single}", (NAME, *above), scope), has(*_OBJECT)
    for endpoint in kind.endpoints:
        path = f"{root}{single}/{endpoint.name}"
        verbs = [verb for verb in _METHODS if verb in endpoint.verbs]
        yield PathTemplate(path, (NAME, *above), scope, endpoint=endpoint), verbs
    if "watch" in kind.verbs:
        yield PathTemplate(f"{root}/watch{collection}", above, scope), ["watchlist"]
        yield PathTemplate(f"{root}/watch{single}", (NAME, *above), scope), ["watch"]
        if kind.namespaced:
            path = f"{root}/watch/{kind.plural}"
            yield PathTemplate(path, (), suffix=everywhere), ["watchlist"]


def group_path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _content(schema: Schema, media: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"schema": schema} for name in media}


def _ok(schema: Schema, *codes: str, media: tuple[str, ...] = SERVED) -> dict[str, Any]:
    content = _content(schema, media)
    return {code: {"description": _CODES[code], "content": content} for code in codes}


_CODES = {"200": "OK", "201": "Created", "202": "Accepted"}
_STATUS = {"group": "", "kind": "Status", "version": "v1"}
_DELETE_OPTIONS = {"group": "", "kind": "DeleteOptions", "version": "v1"}
_WATCH_EVENT = {"group": "", "kind": "WatchEvent", "version": "v1"}
_PATCH = {
    "description": "A change to an object; the Content-Type selects the patch format.",
    "type": "object",
}
