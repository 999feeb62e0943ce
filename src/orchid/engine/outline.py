"""The outline of a new object: the part of it that decides which fields its creator owns.

Start with `outline_of(schema, leaving_out)`. It returns a function, created once per kind, from an
object as plain values to a hashable: the names of its fields, and whether they are empty. Two new
objects with equal outlines own the same fields, whatever their values are.
"""

from collections.abc import Callable, Hashable
from typing import Any

from orchid.wire.codec.documents import encode
from orchid.wire.schema import Anything, Fields, Mapping, Node, Sequence

Outline = Callable[[Any], Hashable]


def outline_of(schema: Fields, leaving_out: tuple[str, ...] = ()) -> Outline:
    """The outlines of objects with these fields, without the given paths."""
    return _of_fields(schema, "", leaving_out, {})


def _of(node: Node, path: str, left_out: tuple[str, ...], made: dict[int, Outline]) -> Outline:
    if isinstance(node, Fields):
        return _of_fields(node, path + ".", left_out, made)
    if isinstance(node, Mapping):
        return _of_mapping(_of(node.values, path, left_out, made))
    if isinstance(node, Anything):
        return _of_anything
    if isinstance(node, Sequence) and not node.atomic:
        return encode  # its elements are owned one by one
    return bool


class _Members(dict[str, Outline | None]):
    """The outlines of the members of a record; None for omitted ones."""

    def __missing__(self, name: str) -> Outline:
        return _of_anything  # undeclared


def _of_fields(
    node: Fields, prefix: str, left_out: tuple[str, ...], made: dict[int, Outline]
) -> Outline:
    inside = [path for path in left_out if path.startswith(prefix)]
    if not inside and id(node) in made:
        return made[id(node)]  # a type may be recursive
    members = _Members()

    def outline(value: Any) -> Hashable:
        found: list[Any] = []
        for name, item in value.items():
            look = members[name]
            # An empty value is described by its type alone.
            found += (name, look(item) if item and look is not None else type(item))
        return tuple(found)

    if not inside:
        made[id(node)] = outline
    for name, field in node.fields.items():
        path = prefix + name
        members[name] = None if path in left_out else _of(field.node, path, left_out, made)
    return outline


def _of_mapping(inner: Outline) -> Outline:
    def outline(value: Any) -> Hashable:
        return (*value, *map(inner, value.values()))

    return outline


def _of_anything(value: Any) -> Hashable:
    if isinstance(value, dict):
        return (*value, *map(_of_anything, value.values()))
    return None if value is None else bool(value)
