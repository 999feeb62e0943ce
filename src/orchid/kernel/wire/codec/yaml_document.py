"""YAML with PyYAML: the reader and the writer behind yaml_text.py.

    read(body)    the value of the first document, and its duplicate keys
    write(value)  the text in parts

The text is parsed event by event, with limits on nodes, depth and expanded aliases. The library
takes a megabyte, so this module is imported with the first YAML that is not JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from orchid.kernel.wire.codec.field_validation import YamlError
from orchid.kernel.wire.text import quote, shown

MOST_NODES = 50_000  # an alias counts as all that it expands to
MOST_TEXT = 3 * 1024 * 1024  # characters of all scalars, counted in the same way
MOST_DUPLICATES = 100  # of repeated keys; more are not reported
DEEPEST = 100

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
}
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?", re.ASCII)
_LONGEST_NUMBER = 400
_LARGEST_INTEGER = 2**64
_EXACT = 2**53  # every integer up to here has an exact float
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
_ITEMS = "items"
UNKNOWN_TAG = "a tag that is not supported"


def read(body: bytes) -> tuple[Any, list[str]]:
    """Read the first document; raises YamlError."""
    reader = _Reader()
    try:
        return reader.read(body), reader.duplicates
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"yaml: {_where(error)}{error.problem}") from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError("yaml: control characters are not allowed") from None


def _where(error: yaml.MarkedYAMLError) -> str:
    """The line as Kubernetes counts it: a missing token is reported one line earlier."""
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    return f"line {line}: " if line else ""


def write(value: Any) -> Iterator[bytes]:
    """The text in parts: one for each object of a list.

    The library blocks all other threads until it has written one part.
    """
    items = value.get(_ITEMS) if isinstance(value, dict) else None
    if not isinstance(items, list) or not items or max(value) == _ITEMS:
        yield _written(value)
        return
    before = {key: value[key] for key in value if key < _ITEMS}
    # The library marks the end of the document after a text with trailing empty lines.
    yield _written(before).removesuffix(b"...\n") if before else b""
    yield b"%b:\n" % _ITEMS.encode()
    for item in items:
        yield _written([item]).removesuffix(b"...\n")
    yield _written({key: value[key] for key in value if key > _ITEMS})


def _written(value: Any) -> bytes:
    return yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=False,
        allow_unicode=True,
        sort_keys=True,
        width=80,
        encoding="utf-8",
    )


class _Extent(NamedTuple):
    """The size of a value with its aliases expanded."""

    nodes: int
    text: int  # characters
    depth: int


class _Reader:
    """Builds the value from events, with an explicit stack instead of recursion."""

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._anchors: dict[str, tuple[Any, _Extent]] = {}
        self._nodes = 0
        self._text = 0

    def read(self, body: bytes) -> Any:
        root = _Holder(None, None)
        stack = [root]
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            match event:
                case yaml.ScalarEvent():
                    extent = _Extent(1, len(event.value), 0)
                    self._add(stack[-1], _scalar(event), event, extent)
                case yaml.AliasEvent():
                    if event.anchor not in self._anchors:
                        raise _error(event, "unknown anchor referenced")
                    value, extent = self._anchors[event.anchor]
                    if len(stack) + extent.depth > DEEPEST:
                        raise _error(event, "exceeded max depth")
                    self._add(stack[-1], value, event, extent)
                case yaml.CollectionStartEvent():
                    if len(stack) > DEEPEST:
                        raise _error(event, "exceeded max depth")
                    stack.append(_Holder(_container(event), event))
                case yaml.CollectionEndEvent():
                    done = stack.pop()
                    self._add(stack[-1], done.finished(), done.start, done.extent())
                case yaml.DocumentEndEvent():
                    break
        return root.value

    def _add(self, holder: _Holder, value: Any, event: Any, extent: _Extent) -> None:
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias or not isinstance(value, dict | list):
            self._nodes += extent.nodes
            self._text += extent.text
        else:
            self._nodes += 1  # its members have been counted already
        if self._nodes > MOST_NODES or self._text > MOST_TEXT:
            raise _error(event, "document contains excessive aliasing" if is_alias else "too large")
        if not is_alias and event.anchor:
            self._anchors[event.anchor] = (value, extent)
        holder.add(extent)
        holder.take(value, event, self.duplicates)


class _Holder:
    """A container that is being filled; the outermost holds the document."""

    __slots__ = (
        "_depth", "_is_merge", "_key", "_merged", "_nodes", "_seen", "_text", "_waiting", "start",
        "value",
    )  # fmt: skip

    def __init__(self, value: Any, start: Any) -> None:
        self.value = value
        self.start = start
        self._nodes = 1
        self._text = 0
        self._depth = 0
        self._key = ""
        self._is_merge = False
        self._waiting = False  # a key without its value yet
        self._seen: set[str] = set()
        self._merged: list[dict[str, Any]] = []

    def add(self, extent: _Extent) -> None:
        self._nodes += extent.nodes
        self._text += extent.text
        self._depth = max(self._depth, extent.depth)

    def extent(self) -> _Extent:
        return _Extent(self._nodes, self._text, self._depth + 1)

    def take(self, value: Any, event: Any, duplicates: list[str]) -> None:
        if self.start is None:
            self.value = value
        elif isinstance(self.value, list):
            self.value.append(value)
        elif not self._waiting:
            self._key, self._waiting = _key(value, event), True
            self._is_merge = self._key == _MERGE and _is_plain(event)
            if self._key in self._seen and len(duplicates) < MOST_DUPLICATES:
                line = event.start_mark.line + 1
                duplicates.append(f"line {line}: key {quote(shown(self._key))} already set in map")
            self._seen.add(self._key)
        else:
            self._waiting = False
            if self._is_merge:
                self._merged += _sources(value, event)
            else:
                self.value[self._key] = value

    def finished(self) -> Any:
        for source in self._merged:
            for name, value in source.items():
                self.value.setdefault(name, value)
        return self.value


def _is_plain(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.implicit[0]


def _sources(value: Any, event: Any) -> list[dict[str, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _error(event, "map merge requires map or sequence of maps as the value")
    return sources


def _key(value: Any, event: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise _error(event, "unsupported map key")


def _container(event: Any) -> Any:
    is_map = isinstance(event, yaml.MappingStartEvent)
    if event.tag not in (None, "!", _TAG + ("map" if is_map else "seq")):
        raise _error(event, UNKNOWN_TAG)
    return {} if is_map else []


def _scalar(event: yaml.ScalarEvent) -> Any:
    tag = event.tag
    if tag in (None, "!"):
        return _resolved(event.value, event) if event.implicit[0] else event.value
    if tag == _TAG + "str":
        return event.value
    if tag in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
        return _resolved(event.value, event)
    raise _error(event, UNKNOWN_TAG)


def _resolved(text: str, event: Any) -> Any:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "+-.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise _error(event, "a number is out of range")
        # A float drops the difference between 1.0 and 1, and the JSON of both is 1.
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    if _NOT_FINITE.fullmatch(text):
        raise _error(event, "a number has no JSON form")
    return text


def _integer(text: str) -> Any:
    digits = text.lstrip("+-").replace("_", "")
    base = {"0b": 2, "0x": 16, "0o": 8}.get(digits[:2])
    if base is None:
        base = 8 if len(digits) > 1 and digits[0] == "0" else 10
    number = int(digits, base) if digits.strip("0bxo") else 0
    number = -number if text[0] == "-" else number
    return number if -_LARGEST_INTEGER < number < _LARGEST_INTEGER else float(number)


def _error(event: Any, problem: str) -> YamlError:
    return YamlError(f"yaml: line {event.start_mark.line + 1}: {problem}")


class _Dumper(yaml.CSafeDumper):
    """Double-quotes strings that would otherwise be read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif _reads_otherwise(text):
        style = '"'
    return dumper.represent_scalar(_TAG + "str", text, style=style)


def _reads_otherwise(text: str) -> bool:
    if text in _WORDS or text == _MERGE:
        return True
    patterns = (_INTEGER, _FLOAT, _NOT_FINITE, _BASE_60, _DATE)
    return any(pattern.fullmatch(text) for pattern in patterns)


_Dumper.add_representer(str, _represent_text)
