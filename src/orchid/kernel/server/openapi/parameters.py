"""The parameters of every verb in OpenAPI 3.0. Data; start with `QUERY`.

kernel/server/parse.py parses them, engine/ applies them.
"""

from typing import Any, Final

from orchid.kernel.wire.options import FIELD_VALIDATIONS, PROPAGATION_POLICIES

Parameter = dict[str, Any]


def _query(name: str, kind: str, text: str, **more: Any) -> Parameter:
    return {"name": name, "in": "query", "description": text, "schema": {"type": kind, **more}}


def _path(name: str, text: str) -> Parameter:
    return {
        "name": name,
        "in": "path",
        "description": text,
        "required": True,
        "schema": {"type": "string"},
    }


PRETTY: Final = _query("pretty", "string", "Indent the response, if `true`.")
NAME: Final = _path("name", "The name of the object.")
NAMESPACE: Final = _path("namespace", "The namespace of the object.")

_DRY_RUN = _query("dryRun", "string", "With `All`, nothing is stored.", enum=["All"])
_FIELD_MANAGER = _query(
    "fieldManager",
    "string",
    "The field manager for managedFields. Default: the name of the program.",
)
_FIELD_VALIDATION = _query(
    "fieldValidation",
    "string",
    "Unknown and duplicate fields: refuse them (Strict), warn (Warn, "
    "the default), or ignore them (Ignore).",
    enum=[choice for choice in FIELD_VALIDATIONS if choice],
)
_FORCE = _query("force", "boolean", "Take over fields of other managers. Only for apply patches.")

WRITE: Final = (_DRY_RUN, _FIELD_MANAGER, _FIELD_VALIDATION)
PATCH: Final = (*WRITE, _FORCE)

_RESOURCE_VERSION = _query(
    "resourceVersion", "string", "The revision of the response: this one, or one that is not older."
)
_CONTINUE = _query("continue", "string", "The continue token of the previous page.")
_FIELD_SELECTOR = _query("fieldSelector", "string", "Only objects with these field values.")
_LABEL_SELECTOR = _query("labelSelector", "string", "Only objects with these labels.")
_LIMIT = _query("limit", "integer", "The maximum number of objects on a page.", format="int64")
_VERSION_MATCH = _query(
    "resourceVersionMatch",
    "string",
    "The meaning of resourceVersion: `Exact` or `NotOlderThan`.",
)
_SEND_INITIAL = _query(
    "sendInitialEvents",
    "boolean",
    "Begin a watch with all existing objects, and a bookmark after the last of them.",
)
_TIMEOUT = _query(
    "timeoutSeconds", "integer", "The duration of a watch in seconds.", format="int64"
)
_BOOKMARKS = _query(
    "allowWatchBookmarks", "boolean", "Let a watch send bookmarks with its progress."
)
_WATCH = _query("watch", "boolean", "Respond with a stream of WatchEvents.")

LIST: Final = (
    _BOOKMARKS, _CONTINUE, _FIELD_SELECTOR, _LABEL_SELECTOR, _LIMIT, _RESOURCE_VERSION,
    _VERSION_MATCH, _SEND_INITIAL, _TIMEOUT, _WATCH,
)  # fmt: skip
DELETE: Final = (
    _DRY_RUN,
    _query(
        "gracePeriodSeconds",
        "integer",
        "The grace period in seconds.",
        format="int64",
    ),
    _query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Remove a stored object that cannot be decoded, without any checks. Cannot be combined "
        "with other options, and needs a permission of its own.",
    ),
    _query("orphanDependents", "boolean", "Deprecated in favour of propagationPolicy."),
    _query(
        "propagationPolicy",
        "string",
        "The deletion of dependents.",
        enum=list(PROPAGATION_POLICIES),
    ),
)
DELETE_COLLECTION: Final = (
    *DELETE, _CONTINUE, _FIELD_SELECTOR, _LABEL_SELECTOR, _LIMIT, _RESOURCE_VERSION,
    _VERSION_MATCH, _SEND_INITIAL, _TIMEOUT,
)  # fmt: skip

# The query of each verb.
QUERY: Final[dict[str, tuple[Parameter, ...]]] = {
    "get": (_RESOURCE_VERSION,),
    "list": LIST,
    "watch": (),
    "create": WRITE,
    "update": WRITE,
    "patch": PATCH,
    "delete": DELETE,
    "deletecollection": DELETE_COLLECTION,
}
