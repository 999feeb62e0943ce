"""Fit a decoded document to the schema of its kind, and report what did not fit.

`FieldValidation` drops nulls and unknown fields, normalises times and bytes, lists unknown and
repeated fields in document order, and refuses wrong types by path. Nearly all documents are valid:
strict_types.py detects that first, in a few microseconds.

Nothing here stores a document or quotes a value in an error: it may be a secret.
"""

import binascii
import datetime
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from orchid.kernel.wire.schema import Anything, Field, Fields, Leaf, Mapping, Node, Scalar, Sequence
from orchid.kernel.wire.text import quote, shown, timestamp

MAX_DEPTH = 256  # of undeclared values; the depth of declared ones is that of their types
INT32 = "int32"  # field encoding: a 32-bit integer
MICRO_TIME = "micro-time"  # field encoding: a time with microseconds

_MOST_FINDINGS = 100
_MOST_FINDING_TEXT = 64 * 1024  # characters, so that long keys cannot make a huge response
INT32_RANGE = range(-(2**31), 2**31)
INT64_RANGE = range(-(2**63), 2**63)
WHOLE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
MICRO_TIME_TEXT = re.compile(WHOLE_TIME.pattern[:-1] + r"(?:\.[0-9]{1,6})?Z", re.ASCII)
MICRO_TEXT = re.compile(
    WHOLE_TIME.pattern[:-1] + r"\.[0-9]{6}(?:Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_ANY_TIME = re.compile(
    r"(?P<moment>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


class Undecodable(ValueError):
    """A body that cannot be decoded into an object; the message is for the client."""


class YamlError(ValueError):
    """Invalid or unsupported YAML. The message is for the client."""


class Malformed(Undecodable):
    """A body that is no document, so that its kind is unknown."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its repeated keys."""


class DocumentPath(NamedTuple):
    """A path in the document; converted to text only for a finding."""

    parent: "DocumentPath | None"
    step: str | int

    def __str__(self) -> str:
        steps: list[str] = []
        path: DocumentPath | None = self
        while path is not None:
            steps.append(f"[{path.step}]" if isinstance(path.step, int) else f".{path.step}")
            path = path.parent
        return "".join(reversed(steps)).removeprefix(".")


class FieldValidation:
    """A single validation. `shape` fills `findings` while it walks the document."""

    def __init__(self, *, sort_keys: bool = False) -> None:
        self.findings: list[str] = []
        self._sort_keys = sort_keys
        self._seen: set[tuple[str, int, str]] = set()
        self._paths: list[DocumentPath] = []  # keeps the ids in _seen from being reused
        self._room = _MOST_FINDING_TEXT

    def shape(self, schema: Fields, value: Any) -> dict[str, Any]:
        """The document without nulls and unknown fields, ready for msgspec."""
        if value is None:
            return {}
        return self._fields(schema, value, None, schema.open)

    def find_repeated_keys(self, value: Any) -> None:
        """Find repeated keys in any document."""
        self._anything(value, None, 1)

    def _node(
        self, node: Node, value: Any, path: DocumentPath, raw: bool, encoding: str = ""
    ) -> Any:
        match node:
            case Leaf(scalar=scalar):
                return _leaf(scalar, value, path, raw, encoding)
            case Anything():
                return self._anything(value, path, 1)
            case Fields():
                return self._fields(node, value, path, raw or node.open)
            case Mapping(values=values):
                return self._mapping(values, value, path, raw)
            case Sequence(items=items):
                return self._sequence(items, value, path, raw)

    def _fields(
        self, node: Fields, value: Any, path: DocumentPath | None, raw: bool
    ) -> dict[str, Any]:
        shaped: dict[str, Any] = {}
        written: set[str] = set()
        for key, item in self._members(value, path):
            field = node.fields.get(key)
            if field is None and not node.open:
                self._find("unknown", path, key)
                continue
            if key in written:
                self._find("duplicate", path, key)
            written.add(key)
            here = DocumentPath(path, key)
            if field is None:
                shaped[key] = self._anything(item, here, 1)
            elif item is None:
                shaped.pop(key, None)
            else:
                shaped[key] = self._node(field.node, item, here, raw, encoding_of(field))
        return shaped

    def _mapping(self, values: Node, value: Any, path: DocumentPath, raw: bool) -> dict[str, Any]:
        shaped: dict[str, Any] = {}
        for key, item in self._members(value, path):
            if key in shaped:
                self._find("duplicate", path, key)
            shaped[key] = self._element(values, item, DocumentPath(path, key), raw)
        return shaped

    def _sequence(self, items: Node, value: Any, path: DocumentPath, raw: bool) -> list[Any]:
        if type(value) not in (list, tuple):
            raise _wrong(path, "array", value)
        return [
            self._element(items, item, DocumentPath(path, index), raw)
            for index, item in enumerate(value)
        ]

    def _element(self, node: Node, value: Any, path: DocumentPath, raw: bool) -> Any:
        """A null among typed values is the empty value of that type; among untyped ones it
        stays.
        """
        if value is None and not isinstance(node, Anything):
            value = _empty(node, path)
        return self._node(node, value, path, raw)

    def _anything(self, value: Any, path: DocumentPath | None, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Undecodable("the document is nested too deeply")
        if isinstance(value, dict | Pairs):
            shaped: dict[str, Any] = {}
            for key, item in self._members(value, path):
                if key in shaped:
                    self._find("duplicate", path, key)
                shaped[key] = self._anything(item, DocumentPath(path, key), depth + 1)
            return shaped
        if isinstance(value, list | tuple):
            return [
                self._anything(item, DocumentPath(path, index), depth + 1)
                for index, item in enumerate(value)
            ]
        return _number(value, path) if type(value) in (int, float) else value

    def _members(self, value: Any, path: DocumentPath | None) -> Iterable[tuple[str, Any]]:
        if type(value) is Pairs:
            return value
        if type(value) is not dict:
            raise _wrong(path, "object", value)
        return sorted(value.items()) if self._sort_keys else value.items()

    def _find(self, problem: str, parent: DocumentPath | None, key: str) -> None:
        mark = (problem, id(parent), key)
        if mark in self._seen or len(self.findings) >= _MOST_FINDINGS or self._room <= 0:
            return
        self._seen.add(mark)
        path = DocumentPath(parent, key)
        self._paths.append(path)
        text = f"{problem} field {quote(shown(str(path)))}"
        if text not in self.findings:
            self.findings.append(text)
            self._room -= len(text)


def encoding_of(field: Field) -> str:
    """Protobuf encoding of the field, which determines format and range beyond its type."""
    return field.proto.encoding if field.proto is not None else ""


def _leaf(scalar: Scalar, value: Any, path: DocumentPath, raw: bool, encoding: str) -> Any:
    match scalar:
        case Scalar.STRING if type(value) is str:
            return _micro_text(value, path) if encoding == MICRO_TIME else value
        case Scalar.BOOLEAN if type(value) is bool:
            return value
        case Scalar.INTEGER if type(value) is int:
            if value not in (INT32_RANGE if encoding == INT32 else INT64_RANGE):
                raise Undecodable(f"{_named(path)}: integer out of range")
            return value
        case Scalar.NUMBER if type(value) in (int, float):
            return _number(value, path)
        case Scalar.BYTES if type(value) is str:
            content = from_base64(value)
            return value if raw else content
        case Scalar.BYTES if type(value) is bytes and not raw:
            return value
        case Scalar.TIME if type(value) is str:
            micro = encoding == MICRO_TIME
            moment = _time(value, path, micro)
            return timestamp(moment) if raw and not micro else moment
        case Scalar.TIME if isinstance(value, datetime.datetime) and not raw:
            return value
    expected = "string" if scalar in (Scalar.BYTES, Scalar.TIME) else str(scalar)
    raise _wrong(path, expected, value)


def _number(value: int | float, path: DocumentPath | None) -> int | float:
    """Integers beyond 64 bits become floating-point numbers, as in Kubernetes."""
    if type(value) is int and value in INT64_RANGE:
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Undecodable(f"{_named(path)}: number out of range")
    return number


def _time(text: str, path: DocumentPath, micro: bool) -> datetime.datetime:
    match = _ANY_TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError("not in the form of RFC 3339")
        zone = match["zone"].replace("Z", "+00:00")
        moment = datetime.datetime.fromisoformat(match["moment"] + zone)
        moment = moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise Undecodable(f"{_named(path)}: expected a time as in RFC 3339") from None
    fraction = match["fraction"] if micro else None
    return moment.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else moment


def _micro_text(text: str, path: DocumentPath) -> str:
    """A time stored as text, always with microseconds."""
    if not MICRO_TEXT.fullmatch(text):
        raise Undecodable(f"{_named(path)}: expected a time with microseconds as in RFC 3339")
    moment = _time(text, path, micro=True).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def _empty(node: Node, path: DocumentPath) -> Any:
    match node:
        case Leaf(scalar=Scalar.STRING | Scalar.BYTES):
            return ""
        case Leaf(scalar=Scalar.BOOLEAN):
            return False
        case Leaf(scalar=Scalar.INTEGER | Scalar.NUMBER):
            return 0
        case Sequence():
            return []
        case Fields() | Mapping():
            return {}
    raise _wrong(path, "string", None)


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_BASE64_SIGNS = re.compile(r"[A-Za-z0-9+/\r\n]*+")
_LINE_BREAKS = re.compile(r"[\r\n]*+")
_GROUP = 4
_ONE_BYTE = 2  # characters in a group that encodes one byte and needs two padding characters


def from_base64(text: str) -> bytes:
    """Decode padded base64 (RFC 4648, section 4); line breaks are skipped."""
    content = text.replace("\r", "").replace("\n", "")
    if not _BASE64.fullmatch(content):
        raise Undecodable(f"illegal base64 data at input byte {_base64_fault(text)}")
    return binascii.a2b_base64(content)


def _base64_fault(text: str) -> int:
    """The byte that Kubernetes reports: an invalid one, or the start of an incomplete group."""
    end = _past(_BASE64_SIGNS, text, 0)
    signs = end - text.count("\r", 0, end) - text.count("\n", 0, end)
    group = signs % _GROUP
    if end == len(text):
        return end - group
    if text[end] != "=" or group < _ONE_BYTE:
        return end
    after = _past(_LINE_BREAKS, text, end + 1)
    if group == _ONE_BYTE:
        if after == len(text):
            return after
        if text[after] != "=":
            return after - 1
        after = _past(_LINE_BREAKS, text, after + 1)
    return after


def _past(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start


_JSON_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    dict: "object",
    Pairs: "object",
}


def _wrong(path: DocumentPath | None, expected: str, value: Any) -> Undecodable:
    got = _JSON_NAMES.get(type(value), type(value).__name__)
    return Undecodable(f"{_named(path)}: expected {expected}, got {got}")


def _named(path: DocumentPath | None) -> str:
    return f".{shown(str(path))}" if path is not None else "the document"
