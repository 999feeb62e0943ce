"""The parameters of every verb, as OpenAPI 3.0 describes them. Data; start with `QUERY`.

What they mean is decided elsewhere: server/parse.py reads them, engine/ applies them.
"""

from typing import Any, Final

from orchid.wire.options import FIELD_VALIDATIONS, PROPAGATION_POLICIES

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


PRETTY: Final = _query("pretty", "string", "Write the answer for people to read, if `true`.")
NAME: Final = _path("name", "The name of the object.")
NAMESPACE: Final = _path("namespace", "The namespace of the object.")

_DRY_RUN = _query(
    "dryRun", "string", "With `All`, do everything but keep nothing of it.", enum=["All"]
)
_FIELD_MANAGER = _query(
    "fieldManager",
    "string",
    "Who is writing, for the record of who owns which field. By default the name of the program.",
)
_FIELD_VALIDATION = _query(
    "fieldValidation",
    "string",
    "What to do about fields that are unknown or stand twice: refuse them (Strict), warn (Warn, "
    "the default), or keep silent (Ignore).",
    enum=[choice for choice in FIELD_VALIDATIONS if choice],
)
_FORCE = _query("force", "boolean", "Take over fields that others own. For apply patches alone.")

WRITE: Final = (_DRY_RUN, _FIELD_MANAGER, _FIELD_VALIDATION)
PATCH: Final = (*WRITE, _FORCE)

_RESOURCE_VERSION = _query(
    "resourceVersion", "string", "The state to answer from: this one, or one that is not older."
)
_CONTINUE = _query("continue", "string", "Where the page before ended, as that page said.")
_FIELD_SELECTOR = _query("fieldSelector", "string", "Only objects with these field values.")
_LABEL_SELECTOR = _query("labelSelector", "string", "Only objects with these labels.")
_LIMIT = _query("limit", "integer", "How many objects a page has at most.", format="int64")
_VERSION_MATCH = _query(
    "resourceVersionMatch",
    "string",
    "How resourceVersion is meant: `Exact` or `NotOlderThan`.",
)
_SEND_INITIAL = _query(
    "sendInitialEvents",
    "boolean",
    "Begin a watch with every object there is, and a bookmark after the last of them.",
)
_TIMEOUT = _query(
    "timeoutSeconds", "integer", "How long a watch lasts, in seconds.", format="int64"
)
_BOOKMARKS = _query(
    "allowWatchBookmarks", "boolean", "Let a watch tell how far it is when nothing changes."
)
_WATCH = _query(
    "watch", "boolean", "Answer with every change from now on, as a stream of WatchEvents."
)

LIST: Final = (
    _BOOKMARKS, _CONTINUE, _FIELD_SELECTOR, _LABEL_SELECTOR, _LIMIT, _RESOURCE_VERSION,
    _VERSION_MATCH, _SEND_INITIAL, _TIMEOUT, _WATCH,
)  # fmt: skip
DELETE: Final = (
    _DRY_RUN,
    _query(
        "gracePeriodSeconds",
        "integer",
        "How long the object may take to end, in seconds.",
        format="int64",
    ),
    _query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Remove an object that is stored but cannot be read, without any other check. It goes "
        "with no other option, and takes a right of its own.",
    ),
    _query("orphanDependents", "boolean", "Deprecated in favour of propagationPolicy."),
    _query(
        "propagationPolicy",
        "string",
        "What becomes of the objects that depend on this one.",
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
