"""Redaction of audit events, field by field.

Identities are never hidden: users and groups, addresses, verbs, paths, selectors, and the names in
bodies are recorded as they are, whatever they look like. Otherwise a client could hide behind a
name that looks like a token.

    always hidden     values of unknown query parameters; secret fields
    hidden if found   in every other text of the client: the presented token, and all that looks
                      like a token or a private key

Start with `rendered`, which makes a line of an event, and `tidied`, which prepares a body.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from orchid.kernel.base.telemetry import MASK, has_shape, masked
from orchid.kernel.http.messages import HttpRequest
from orchid.kernel.server.audit.event import AuditEvent, AuditOutcome
from orchid.kernel.server.audit.policy import Plan
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.struct import Wire, replace
from orchid.kernel.wire.user import UserInfo

SHORTEST_TOKEN: Final = 8  # a shorter text may occur anywhere, and hiding it would hide much else
LONGEST_SIGN: Final = 24  # this prefix of a token is searched first; the whole token seldom occurs

# Known parameters of the API; others may be secrets.
PARAMETERS: Final = frozenset(
    {
        "account", "allowWatchBookmarks", "continue", "dryRun", "exclude", "export", "fieldManager",
        "fieldSelector", "fieldValidation", "force", "gracePeriodSeconds", "includeObject",
        "labelSelector", "limit", "orphanDependents", "pretty", "propagationPolicy",
        "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout",
        "timeoutSeconds", "uid", "verbose", "watch",
    }
)  # fmt: skip
SELECTING: Final = ("fieldSelector=", "labelSelector=")  # they identify objects
SECRET_FIELDS: Final = frozenset({"token", "password", "privateKey", "clientSecret", "stringData"})
# Fields of bodies that identify users or objects; with `labels` everything below.
NAMING_FIELDS: Final = frozenset(
    {
        "apiGroup", "apiGroups", "apiVersion", "finalizers", "generateName", "group", "groups",
        "holderIdentity", "kind", "labels", "manager", "name", "namespace", "nodeName",
        "nonResourceURLs", "op", "resource", "resourceNames", "resources", "secretName",
        "serviceAccountName", "signerName", "subresource", "uid", "user", "username", "verb",
        "verbs",
    }
)  # fmt: skip

Change = Callable[[str], str]


def presented_token(http: HttpRequest) -> str:
    """The credential of the Authorization header, if it authenticates the request.

    A client with a certificate, or a token elsewhere, could use this header to hide text from the
    record.
    """
    header = http.headers.get("authorization")
    if header is None or http.peer.certificate or "sec-websocket-protocol" in http.headers:
        return ""
    token = header.partition(" ")[2].strip()
    return token if len(token) >= SHORTEST_TOKEN else ""


def rendered(event: AuditEvent, token: str) -> bytes:
    """An event as one line, without the presented token."""
    try:
        data = encode(event)
    except UnicodeEncodeError:  # a path may escape bytes that are no text
        event = _printable_event(event)
        data = encode(event)
    if has_shape(data) or (token and _sign(token) in data):
        data = encode(redacted(event, hiding(token)))
    return data + b"\n"


def _sign(token: str) -> bytes:
    """The prefix of a token, encoded as JSON."""
    sign = token[:LONGEST_SIGN]
    return encode(_printable(sign))[1:-1]


def hiding(token: str) -> Change:
    """Remove a token, and anything that looks like one, from a text."""
    if not token:
        return masked
    escaped = encode(_printable(token))[1:-1].decode()
    return lambda text: masked(text.replace(token, MASK).replace(escaped, MASK))


def redacted(event: AuditEvent, hide: Change) -> AuditEvent:
    """Apply `hide` to all strings except user, object and path fields."""
    return replace(
        event,
        audit_id=hide(event.audit_id),
        request_uri=_uri(event.request_uri, hide),
        user_agent=hide(event.user_agent),
        impersonated_user=_acted_as(event.impersonated_user, hide),
        response_status=_outcome(event.response_status, hide),
        request_object=_body(event.request_object, hide),
        response_object=_body(event.response_object, hide),
    )


def _uri(uri: str, hide: Change) -> str:
    path, mark, query = uri.partition("?")
    if not mark:
        return uri
    pairs = (pair if pair.startswith(SELECTING) else hide(pair) for pair in query.split("&"))
    return f"{path}?{'&'.join(pairs)}"


def _acted_as(user: UserInfo | None, hide: Change) -> UserInfo | None:
    if user is None or not user.extra:
        return user
    return replace(user, extra={key: tuple(map(hide, user.extra[key])) for key in user.extra})


def _outcome(outcome: AuditOutcome | None, hide: Change) -> AuditOutcome | None:
    if outcome is None:
        return None
    details = outcome.details
    if details is not None:
        causes = tuple(
            replace(cause, message=hide(cause.message), field=hide(cause.field))
            for cause in details.causes
        )
        details = replace(details, causes=causes)
    return replace(outcome, message=hide(outcome.message), details=details)


def _body(raw: msgspec.Raw | None, hide: Change) -> msgspec.Raw | None:
    if raw is None:
        return None
    return msgspec.Raw(encode(_unnamed(msgspec.json.decode(raw), hide)))


def _unnamed(value: Any, hide: Change) -> Any:
    """A value with everything hidden but names."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_unnamed(item, hide) for item in value]
    if isinstance(value, dict):
        named = _named_members(value)
        return {
            hide(key): _kept(item, hide, key) if key in named else _unnamed(item, hide)
            for key, item in value.items()
        }
    return value


def _named_members(value: dict[str, Any]) -> frozenset[str]:
    """The identifying members; the value of a JSON patch is one if its path ends so."""
    path = value.get("path") if "op" in value else None
    if isinstance(path, str) and NAMING_FIELDS.intersection(path.split("/")[-2:]):
        return NAMING_FIELDS | {"value"}
    return NAMING_FIELDS


def _kept(value: Any, hide: Change, key: str) -> Any:
    """An identifying member: its strings stay; objects below are processed further."""
    if isinstance(value, dict):
        return value if key == "labels" else _unnamed(value, hide)
    if isinstance(value, list):
        return [_kept(item, hide, key) for item in value]
    return value


# --- always hidden --------------------------------------------------------------------------------


def shown_uri(http: HttpRequest) -> str:
    """Path and query; of unknown parameters only the names."""
    if not http.query:
        return http.path
    return f"{http.path}?{'&'.join(map(_shown_pair, http.query.split('&')))}"


def _shown_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    if name in PARAMETERS:
        return pair
    return f"{name}={MASK}" if equals else MASK


_SECRET = tuple(name.encode() for name in sorted(SECRET_FIELDS))


def tidied(data: bytes, plan: Plan) -> msgspec.Raw | None:
    """A body as recorded: on one line, without secret fields, perhaps without managedFields."""
    omits = plan.omits_managed_fields and b'"managedFields"' in data
    if not omits and b"\n" not in data and not any(name in data for name in _SECRET):
        return msgspec.Raw(data)
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(encode(_tidy(value, omits)))


def _tidy(value: Any, omits_managed_fields: bool) -> Any:
    if isinstance(value, list):
        return [_tidy(item, omits_managed_fields) for item in value]
    if not isinstance(value, dict):
        return value
    hidden = SECRET_FIELDS | {"value"} if _patches_secret_field(value) else SECRET_FIELDS
    return {
        key: MASK if key in hidden and item else _tidy(item, omits_managed_fields)
        for key, item in value.items()
        if not (omits_managed_fields and key == "managedFields")
    }


def _patches_secret_field(value: dict[str, Any]) -> bool:
    """Whether this is an operation of a JSON patch on a secret field."""
    path = value.get("path") if "op" in value else None
    return isinstance(path, str) and not SECRET_FIELDS.isdisjoint(path.split("/"))


def _printable_event(event: AuditEvent) -> AuditEvent:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return replace(event, **{name: _printable_texts(value) for name, value in fields.items()})


def _printable_texts(value: Any) -> Any:
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, Wire):
        return msgspec.convert(_printable_texts(msgspec.to_builtins(value)), type(value))
    if isinstance(value, dict):
        return {key: _printable_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_printable_texts, value))
    return value


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
