"""YAML of the API: JSON values in YAML syntax.

    load(body)    the value of the first document, and its duplicate keys
    load_all(body), load_only(body)   of every document of a file, or of its only one
    dump(value)   sorted keys, lists at the indent of their key

Scalars follow YAML 1.1 as Kubernetes reads it: `yes` and `on` are true, `0x1f` and `0755` are
numbers; dates and base-60 numbers stay strings. Everything is limited, so that a small body cannot
be expensive. Tags cannot create anything but JSON values. Errors give the line and never quote it:
it may hold a secret.

JSON, with or without leading comments, is parsed here; all else by yaml_document.py, which is
imported on demand.
"""

import json
import re
from typing import Any

import msgspec

from orchid.kernel.wire.codec.bounds import require_few_values
from orchid.kernel.wire.codec.field_validation import Malformed, YamlError

__all__ = ["YamlError", "dump", "load", "load_all", "load_only"]

MOST_BYTES = 3 * 1024 * 1024
MOST_DOCUMENTS = 1000  # of a file
MOST_DIRECTIVES = 16  # lines with % before the document; the parser compares all pairs
LONGEST_HEAD = 64 * 1024  # bytes of comments and directives

_BREAK = rb"(?:\r\n|\r|\n|\xc2\x85|\xe2\x80\xa8|\xe2\x80\xa9)"
# Everything before the document: blank lines, comments and directives.
_LINE = rb"(?:[^\r\n\xc2\xe2]++|(?!%b).)*+" % _BREAK
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?+(?:[ \t]*+(?:[#%%]%b)?+%b)*+" % (_LINE, _BREAK), re.DOTALL)
_SEPARATOR = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_DIRECTIVE = re.compile(rb"(?:^(?:\xef\xbb\xbf)?|%b)%%" % _BREAK)
# Allowed before JSON: blank lines, and comments in printable ASCII.
_COMMENTS = re.compile(rb"(?:[ \t]*+(?:#[\t\x20-\x7e]*+)?+\r?\n)*+")


def load(body: bytes) -> tuple[Any, list[str]]:
    """Read the first document. JSON, which is YAML too, takes the fast path."""
    if len(body) > MOST_BYTES:
        raise YamlError(f"yaml: more than {MOST_BYTES} bytes")
    document = _without_comments(body)
    if document.lstrip()[:1] in (b"{", b"["):
        try:
            require_few_values(document)
        except Malformed as fault:
            raise YamlError(f"yaml: {fault}") from None
        try:
            return _load_json(document), []
        except (ValueError, RecursionError, msgspec.DecodeError):
            pass  # flow style YAML, a duplicate key, or neither: the other reader decides
    _require_plain_head(body)
    from orchid.kernel.wire.codec import yaml_document  # noqa: PLC0415 -- most servers never see YAML

    return yaml_document.read(body)


def load_all(body: bytes) -> list[tuple[Any, list[str]]]:
    """Read every document of a file that is not empty."""
    parts = _SEPARATOR.split(body)
    if len(parts) > MOST_DOCUMENTS:
        raise YamlError(f"yaml: more than {MOST_DOCUMENTS} documents")
    return [document for part in parts if (document := load(part))[0] is not None]


def load_only(body: bytes) -> tuple[Any, list[str]]:
    """Read the document of a file that has one; `None` if it is empty."""
    documents = load_all(body)
    if len(documents) > 1:
        raise YamlError(f"yaml: {len(documents)} documents, where one is read")
    return documents[0] if documents else (None, [])


def _without_comments(body: bytes) -> bytes:
    comments = _COMMENTS.match(body, 0, LONGEST_HEAD)
    return body[comments.end() :] if comments else body


def _require_plain_head(body: bytes) -> None:
    """Limit the comments and directives, which the parser reads before our limits apply."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise YamlError("yaml: the text is not UTF-8")
    head = _HEAD.match(body, 0, LONGEST_HEAD)
    if head and head.end() >= LONGEST_HEAD:
        raise YamlError(f"yaml: more than {LONGEST_HEAD} bytes before the document")
    if head and len(_DIRECTIVE.findall(head[0])) > MOST_DIRECTIVES:
        raise YamlError(f"yaml: more than {MOST_DIRECTIVES} directives")


def dump(value: Any) -> bytes:
    """Write a JSON value as one document."""
    from orchid.kernel.wire.codec import yaml_document  # noqa: PLC0415 -- most clients want JSON

    return b"".join(yaml_document.write(value))


def _load_json(body: bytes) -> Any:
    """JSON without duplicate keys; ValueError means: use the other reader."""
    value = json.loads(body, object_pairs_hook=_unique)
    return msgspec.json.decode(body) if isinstance(value, dict | list) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members
