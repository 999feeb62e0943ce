"""A set of field paths, in the format of `managedFields`.

    {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:secrets": {"k:{\"name\":\"s\"}": {}}}

A node without members is itself in the set; a node with members is in the set only if it has ".".
So `.metadata.labels` and `.metadata.labels.a` are in the set above, `.metadata` is not. At the root
an empty tree is the empty set.

Start at `FieldSet`. Trees are immutable: every operation shares unchanged parts, and returns the
same tree if nothing changed. Members are always in order (".", f, i, k, v, each by name), so a tree
can be encoded directly. Nothing here knows values or schemas.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from orchid.kernel.wire.text import quote

Tree = dict[str, "Tree"]

LEAF: Tree = {}
SELF = "."
_DEEPEST = 100  # levels of a tree from a client; objects are some ten levels deep
_INDEX = re.compile(r"i:-?\d{1,18}", re.ASCII)


class FieldSet:
    """Paths of an object; see the module docstring for the format of `tree`."""

    __slots__ = ("tree",)

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @classmethod
    def parse(cls, fields: Any) -> FieldSet:
        """Parse the `fieldsV1` of a client; raises ValueError if it is malformed."""
        return cls(_parsed(fields, 0) if fields else {})

    @classmethod
    def of_paths(cls, dotted: tuple[str, ...]) -> FieldSet:
        """The set of these fields: `("spec", "status.conditions")`."""
        return _of_paths(dotted)

    def __bool__(self) -> bool:
        return bool(self.tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(tuple(self.paths()))

    def __repr__(self) -> str:
        return f"FieldSet({', '.join(self.paths())})"

    def union(self, other: FieldSet) -> FieldSet:
        if not other.tree:
            return self
        return FieldSet(union(self.tree, other.tree)) if self.tree else other

    def difference(self, other: FieldSet) -> FieldSet:
        """Without the paths of `other`; paths below them stay."""
        if not self.tree or not other.tree:
            return self
        rest = _difference(self.tree, other.tree)
        return self if rest is self.tree else FieldSet(rest or {})

    def without(self, roots: FieldSet) -> FieldSet:
        """Without the paths of `roots` and everything below them."""
        if not self.tree or not roots.tree:
            return self
        rest = _without(self.tree, roots.tree)
        return self if rest is self.tree else FieldSet(rest or {})

    def intersection(self, other: FieldSet) -> FieldSet:
        if not self.tree or not other.tree:
            return EMPTY
        return FieldSet(_intersection(self.tree, other.tree) or {})

    def paths(self) -> Iterator[str]:
        """Each path as text, `.secrets[name="x"]`: those of a level before those below it."""
        return _texts(self.tree, "")


EMPTY = FieldSet({})


def owned(node: Tree) -> bool:
    return not node or SELF in node


def in_order(tree: Tree) -> Tree:
    """The same members, sorted."""
    return {key: tree[key] for key in sorted(tree)} if len(tree) > 1 else tree


def owned_too(node: Tree) -> Tree:
    """The node, itself a member of the set."""
    return node if owned(node) else {SELF: LEAF, **node}


def union(left: Tree, right: Tree) -> Tree:
    """Both nodes together. Not for roots of which one is empty: there, empty means nothing."""
    if left is right or left == right:
        return left
    if not left:
        return owned_too(right)
    if not right:
        return owned_too(left)
    both = dict(left)
    for key, node in right.items():
        mine = both.get(key)
        both[key] = node if mine is None else union(mine, node)
    return both if len(both) == len(left) else in_order(both)


def _difference(tree: Tree, other: Tree) -> Tree | None:
    """The rest of `one`, or None."""
    if not tree:
        return None if owned(other) else tree
    if not other:
        return {key: node for key, node in tree.items() if key != SELF} if SELF in tree else tree
    rest = None
    for key, taken in other.items():
        mine = tree.get(key)
        if mine is None:
            continue
        left = _difference(mine, taken)
        if left is not mine:
            rest = _with(rest or tree, key, left, copy=rest is None)
            if not rest:
                return None
    return tree if rest is None else _settled(rest)


def _without(tree: Tree, roots: Tree) -> Tree | None:
    rest = None
    for key, below in roots.items():
        mine = tree.get(key)
        if mine is None:
            continue
        left = None if owned(below) else _without(mine, below)
        if left is not mine:
            rest = _with(rest or tree, key, left, copy=rest is None)
            if not rest:
                return None
    return tree if rest is None else _settled(rest)


def _with(tree: Tree, key: str, node: Tree | None, *, copy: bool) -> Tree:
    """Insert or remove a node."""
    changed = dict(tree) if copy else tree
    if node is None:
        del changed[key]
    else:
        changed[key] = node
    return changed


def _settled(tree: Tree) -> Tree:
    """A node that contains only itself is written as a leaf."""
    return LEAF if len(tree) == 1 and SELF in tree else tree


def _intersection(left: Tree, right: Tree) -> Tree | None:
    if not left:
        return LEAF if owned(right) else None
    if not right:
        return LEAF if SELF in left else None
    both: Tree = {}
    for key, node in left.items():
        counterpart = right.get(key)
        if counterpart is not None:
            shared = _intersection(node, counterpart)
            if shared is not None:
                both[key] = shared
    return _settled(both) if both else None


def _texts(tree: Tree, above: str) -> Iterator[str]:
    for key, node in tree.items():
        if key != SELF and owned(node):
            yield above + element_text(key)
    for key, node in tree.items():
        if node:
            yield from _texts(node, above + element_text(key))


def element_text(element: str) -> str:
    """One step of a path as people read it: `.name`, `[name="x"]`, `[="x"]`, `[0]`."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = msgspec.json.decode(rest)
        return "[" + ",".join(f"{name}={_scalar(value)}" for name, value in keys.items()) + "]"
    if kind == "v":
        return f"[={_scalar(msgspec.json.decode(rest))}]"
    return f"[{rest}]"


def _scalar(value: Any) -> str:
    return quote(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def key_element(item: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """The step to a list element with these key fields; None if it has none of them."""
    if len(names) == 1:
        value = item.get(names[0])
        return None if value is None else _key_text(names[0], value)
    keys = {name: item[name] for name in sorted(names) if item.get(name) is not None}
    return "k:" + msgspec.json.encode(keys).decode() if keys else None


def value_element(value: Any) -> str:
    """The step to a member of a set of scalars."""
    return "v:" + msgspec.json.encode(value).decode()


def _key_text(name: str, value: Any) -> str:
    return f'k:{{"{name}":{msgspec.json.encode(value).decode()}}}'


def _parsed(fields: Any, level: int) -> Tree:
    if not isinstance(fields, dict) or level > _DEEPEST:
        raise ValueError("not a field set")
    tree: Tree = {}
    for element, below in fields.items():
        key = _canonical(element)
        if key is not None:
            tree[key] = _parsed(below, level + 1)
    return _settled(in_order(tree)) if level else in_order(tree)


@functools.lru_cache(maxsize=4096)
def _canonical(element: str) -> str | None:
    """An element in canonical form; None for an unknown type of element."""
    if element == SELF or element.startswith("f:"):
        return element
    if element.startswith("v:"):
        return value_element(_decoded(element))
    if element.startswith("k:"):
        keys = _decoded(element)
        if not isinstance(keys, dict) or not keys:
            raise ValueError("not a key")
        return "k:" + msgspec.json.encode({name: keys[name] for name in sorted(keys)}).decode()
    if element.startswith("i:"):
        if not _INDEX.fullmatch(element):
            raise ValueError("not an index")
        return element
    return None


def _decoded(element: str) -> Any:
    try:
        return msgspec.json.decode(element[2:])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError("not JSON") from error


@functools.lru_cache(maxsize=256)
def _of_paths(dotted: tuple[str, ...]) -> FieldSet:
    return FieldSet(_joined(_line(path.split(".")) for path in dotted))


def _joined(trees: Iterable[Tree]) -> Tree:
    return functools.reduce(lambda one, other: union(one, other) if one else other, trees, {})


def _line(names: list[str]) -> Tree:
    tree: Tree = LEAF
    for name in reversed(names):
        tree = {f"f:{name}": tree}
    return tree
