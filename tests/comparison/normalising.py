"""An answer without what no two servers have in common: times, uids, revisions, tokens.

`normalised` gives what is compared: the status, a few headers, and the body as a value. Other
objects that a server happens to have are left out of lists.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from orchid.assembly.kinds import stored_kinds
from orchid.kernel.wire.codec.documents import Undecodable, to_builtins
from orchid.kernel.wire.codec.protobuf import message_of, opened
from orchid.kernel.wire.naming import KUBERNETES
from orchid.kernel.wire.status import Status
from orchid.kernel.wire.struct import Wire
from tests.comparison.sending import Answer

HEADERS = ("content-type", "warning", "retry-after", "x-content-type-options", "location")
PROTOBUF = "application/vnd.kubernetes.protobuf"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_GENERATED = re.compile(r"\b(n-|Bad_)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_REVISION = re.compile(r"([rR]esource ?[vV]ersion[^0-9]{1,16}|in record \(|current: )\d+")
_AGE = re.compile(r"^(\d+[smhd])+$")
_COUNTED = frozenset({"resourceVersion", "continue"})
_OWN_TIMES = ("2020-01-02T03:04:05Z", "2026-01-02T03:04:05", "2030-12-31T23:59:59Z")

_TYPES: dict[tuple[str, str], type[Wire]] = {
    (kind.api_version, kind.name): kind.type
    for declared in stored_kinds(KUBERNETES)
    for kind in declared.served
} | {("v1", "Status"): Status}


def normalised(answer: Answer, tag: str, known: Iterable[str]) -> dict[str, Any]:
    """The comparable part of an answer; `known` are texts of this server, such as its address."""
    kind = answer.headers.get("content-type", "")
    found: dict[str, Any] = {"status": answer.status}
    found |= {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    body = _body(answer.body, kind)
    for text in known:
        body = _replaced(body, text)
    found["body"] = _settled(_own_items(body, tag))
    return found


def _body(body: bytes, kind: str) -> Any:
    if kind.startswith(PROTOBUF):
        return _protobuf(body)
    text = body.decode(errors="replace")
    try:
        if kind.startswith("application/json"):
            values = [json.loads(line) for line in text.splitlines()] if "\n{" in text else []
            return values or json.loads(text)
        if kind.startswith("application/yaml"):
            return yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 - texts and nothing else
    except (ValueError, yaml.YAMLError):
        pass
    return text


def _protobuf(body: bytes) -> Any:
    """An object or what went wrong as its JSON would be; of others it is enough that they came."""
    try:
        said, sent = opened(body)
        type_ = _TYPES.get((said.api_version, said.kind))
        if type_ is not None:
            return to_builtins(
                message_of(type_).decode(sent, kind=said.kind, api_version=said.api_version)
            )
    except Undecodable:
        pass
    return "<protobuf>"


def _own_items(body: Any, tag: str) -> Any:
    """A list with the objects of this run alone."""
    if not isinstance(body, dict):
        return body
    for part in ("items", "rows"):
        items = body.get(part)
        if isinstance(items, list):
            return {**body, part: [item for item in items if tag in json.dumps(item)]}
    return body


def without_generated(text: str) -> str:
    """The text with one word for all that a server has made up of a generateName."""
    return _GENERATED.sub(r"\1<name>", text)


def _replaced(value: Any, text: str) -> Any:
    return json.loads(json.dumps(value).replace(text, "<server>")) if text else value


def _settled(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        # Descriptions of table columns are our own.
        shown = value.items() if key != "columnDefinitions" else _without_description(value)
        return {name: _settled(inner, name) for name, inner in shown}
    if isinstance(value, list):
        settled = [_settled(inner, key) for inner in value]
        # They stand in the order of their times: two in the same second here, not there.
        return sorted(settled, key=json.dumps) if key == "managedFields" else settled
    if key in _COUNTED:
        return "<counted>"
    if not isinstance(value, str):
        return value
    if key == "cells" and _AGE.match(value):
        return "<age>"
    value = _UID.sub("<uid>", _TOKEN.sub("<token>", value))
    value = _TIME.sub(_time, without_generated(value))
    return _REVISION.sub(r"\1<revision>", value)


def _without_description(column: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    return [item for item in column.items() if item[0] != "description"]


def _time(found: re.Match[str]) -> str:
    """A time that a request holds is compared; the servers' own are not."""
    return found[0] if found[0].startswith(_OWN_TIMES) else "<time>"
