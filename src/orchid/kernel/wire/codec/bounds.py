"""Limits on the number of values in a document, in addition to its size in bytes.

Three megabytes of `{},` are a million objects: hundreds of megabytes and seconds of decoding.

    require_few_values(body)      before JSON is decoded: the total number of values
    count_check_of(schema)        after decoding: fields with a limit of their own, `at_most(n)`

YAML and protobuf count while they parse (yaml_text.py, protobuf_content.py), with the same limits.
"""

from collections.abc import Callable
from typing import Any, Final

from orchid.kernel.wire.codec.field_validation import Malformed, Undecodable
from orchid.kernel.wire.schema import Fields, Mapping, Node, Sequence

# Members and elements of a document at all depths. Decoding or encoding so many is one call into C
# that cannot be interrupted; it must stay well below 50 ms.
MOST_VALUES: Final = 25_000
MOST_STORED: Final = 2 * MOST_VALUES  # of an object with its managedFields
# Of a protobuf message, in which clients also write empty fields, and entries of maps as messages.
MOST_FIELDS: Final = 4 * MOST_VALUES
MOST_OF_PATCH: Final = 50_000  # of a JSON patch: clients may send 10,000 operations


def require_few_values(body: bytes, most: int = MOST_VALUES) -> None:
    """Refuse a JSON document with too many values. Commas and brackets in strings do not count."""
    if _marks(body) <= most:
        return
    if values_in(body) > most:
        raise Malformed(f"the document has more than {most} values")


def values_in(body: bytes) -> int:
    """Upper bound of the number of values in a JSON document, at all depths."""
    return _marks(_without_strings(body))


def keys_in(body: bytes) -> int:
    """The number of keys in a JSON document, at all depths; repeated keys count each time."""
    return _without_strings(body).count(b":")


def _marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"{") + body.count(b"[")


def _without_strings(body: bytes) -> bytes:
    """The document without its strings: every other part between quotes."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.split(b'"')[::2])


CountCheck = Callable[[Any, str], None]


def too_many(path: str, most: int) -> Undecodable:
    return Undecodable(f"{path}: there may be at most {most} items")


def count_check_of(schema: Fields) -> Callable[[Any], None]:
    """A function that refuses a document with more list items or map keys than declared."""
    check = _check(schema)
    if check is None:
        return lambda value: None
    return lambda value: check(value, "")


def _check(node: Node) -> CountCheck | None:
    """None if there is nothing to count."""
    if isinstance(node, Fields):
        return _fields_check(node)
    if isinstance(node, Sequence):
        return _list_check(node)
    return _map_check(node) if isinstance(node, Mapping) else None


def _fields_check(node: Fields) -> CountCheck | None:
    field_checks = ((name, _check(field.node)) for name, field in node.fields.items())
    checks = [(name, check) for name, check in field_checks if check is not None]

    def check(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, below in checks:
                if name in value:
                    below(value[name], f"{path}.{name}")

    return check if checks else None


def _list_check(node: Sequence) -> CountCheck | None:
    below, most = _check(node.items), node.most
    if below is None and most is None:
        return None

    def check(value: Any, path: str) -> None:
        if not isinstance(value, list | tuple):
            return
        if most is not None and len(value) > most:
            raise too_many(path, most)
        if below is not None:
            for index, item in enumerate(value):
                below(item, f"{path}[{index}]")

    return check


def _map_check(node: Mapping) -> CountCheck | None:
    below, most = _check(node.values), node.most
    if below is None and most is None:
        return None

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            return
        if most is not None and len(value) > most:
            raise too_many(path, most)
        if below is not None:
            for key, item in value.items():
                below(item, f"{path}.{key}")

    return check
