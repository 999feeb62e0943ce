"""JSON patch (RFC 6902), with the few extensions of Kubernetes.

Start at `apply`. The extensions: `replace` of a missing member adds it, `test` of a missing member
against null succeeds, `copy` of a missing member copies null, negative indices count from the end.
For any failure the client only gets that the patch does not apply.

The document and the operations are never changed: a container is copied the first time an operation
writes into it and is written in place from then on, so ten thousand operations on one large object
cost one copy of it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from orchid.kernel.wire.codec.bounds import MOST_STORED, values_in
from orchid.kernel.wire.errors import BadRequest, TooLarge, Unprocessable
from orchid.kernel.wire.text import quote

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 * 1024 * 1024
DEEPEST = 128  # of a path and of a value: stored values must stay far from the encoder's limit

_MEMBERS = frozenset({"op", "path", "from", "value"})
_INDEX = re.compile(r"[+-]?\d{1,9}", re.ASCII)


class _DoesNotApply(Exception):
    """An operation failed. The reason is not disclosed, so it is not stored."""


def apply(document: dict[str, Any], operations: Any) -> Any:
    """The document after all operations; Unprocessable if one of them fails."""
    if operations is None:
        return document
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch must be a JSON array")
    if len(operations) > MOST_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, "
            f"got {len(operations)}"
        )
    for operation in operations:
        _require_form(operation)
    draft = _Draft(document)
    try:
        for operation in operations:
            draft.perform(operation or {})
    except _DoesNotApply:
        raise Unprocessable from None
    if draft.root is None:
        raise Unprocessable
    return draft.root


def carries(operations: list[Any]) -> bool:
    """Whether an operation copies or moves values within the document."""
    return any(isinstance(one, dict) and one.get("op") in ("copy", "move") for one in operations)


def unknown_members(operations: Any) -> list[str]:
    """Field validation of the operations themselves."""
    return [
        f"json patch unknown field {quote(f'[{position}].{name}')}"
        for position, operation in enumerate(operations or ())
        if isinstance(operation, dict)
        for name in operation
        if name not in _MEMBERS
    ]


def _require_form(operation: Any) -> None:
    """An operation is an object with string members."""
    if operation is None:
        return
    if not isinstance(operation, dict):
        raise BadRequest("error decoding patch: an operation must be a JSON object")
    for member in ("op", "path", "from"):
        if not isinstance(operation.get(member, ""), str | None):
            raise BadRequest(f"error decoding patch: {member} of an operation must be a string")


class _Draft:
    """A document under construction; `_ours` has, by identity, the containers it may write into."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._ours: dict[int, Any] = {}
        self._copied = 0
        self._copied_values = 0

    def perform(self, operation: dict[str, Any]) -> None:
        match operation.get("op"):
            case "add":
                self._add(_steps(operation, "path"), _value(operation))
            case "remove":
                self._remove(_steps(operation, "path"))
            case "replace":
                self._replace(_steps(operation, "path"), _value(operation))
            case "move":
                source, target = _steps(operation, "from"), _steps(operation, "path")
                self._add(target, self._remove(source))
            case "copy":
                source, target = _steps(operation, "from"), _steps(operation, "path")
                self._add(target, self._copy(source))
            case "test":
                if not _same(self._read(_steps(operation, "path")), _value(operation)):
                    raise _DoesNotApply
            case _:
                raise _DoesNotApply

    def _add(self, steps: list[str], value: Any) -> None:
        holder, last = self._writable_holder(steps)
        if isinstance(holder, dict):
            holder[last] = value
        elif last == "-":
            holder.append(value)
        else:
            holder.insert(_position(last, len(holder) + 1), value)

    def _remove(self, steps: list[str]) -> Any:
        holder, last = self._writable_holder(steps)
        if isinstance(holder, list):
            return holder.pop(_position(last, len(holder)))
        if last not in holder:
            raise _DoesNotApply
        return holder.pop(last)

    def _replace(self, steps: list[str], value: Any) -> None:
        if not steps:
            self.root = value
            return
        holder, last = self._writable_holder(steps)
        if isinstance(holder, dict):
            holder[last] = value
        else:
            holder[_position(last, len(holder))] = value

    def _copy(self, steps: list[str]) -> Any:
        if not steps:
            raise _DoesNotApply
        encoded = msgspec.json.encode(self._read(steps))
        self._copied += len(encoded)
        self._copied_values += values_in(encoded)
        if self._copied > MOST_COPIED or self._copied_values > MOST_STORED:
            raise _DoesNotApply
        return msgspec.json.decode(encoded)

    def _read(self, steps: list[str]) -> Any:
        """The value at a path. A missing member reads as null, a missing parent fails."""
        value = self.root
        for depth, step in enumerate(steps):
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list):
                value = value[_position(step, len(value))]
            else:
                raise _DoesNotApply
            if value is None and depth < len(steps) - 1:
                raise _DoesNotApply
        return value

    def _writable_holder(self, steps: list[str]) -> tuple[Any, str]:
        """The parent container of the last step, copied along with all above it."""
        if not steps:
            raise _DoesNotApply
        holder = self.root = self._own(self.root)
        for step in steps[:-1]:
            member = step if isinstance(holder, dict) else _position(step, len(holder))
            if isinstance(holder, dict) and member not in holder:
                raise _DoesNotApply
            holder[member] = holder = self._own(holder[member])
        return holder, steps[-1]

    def _own(self, container: Any) -> Any:
        if id(container) in self._ours:
            return container
        if not isinstance(container, dict | list):
            raise _DoesNotApply
        ours = container.copy()
        self._ours[id(ours)] = ours
        return ours


def _steps(operation: dict[str, Any], member: str) -> list[str]:
    pointer = operation.get(member)
    if not isinstance(pointer, str) or pointer.count("/") > DEEPEST:
        raise _DoesNotApply
    if not pointer:
        return []
    first, *steps = pointer.split("/")
    if first:
        raise _DoesNotApply
    if "~" in pointer:
        return [step.replace("~1", "/").replace("~0", "~") for step in steps]
    return steps


def _value(operation: dict[str, Any]) -> Any:
    value = operation.get("value")
    if isinstance(value, dict | list) and _deeper_than(value, DEEPEST):
        raise _DoesNotApply
    return value


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            below
            for container in level
            for below in (container.values() if isinstance(container, dict) else container)
            if isinstance(below, dict | list)
        ]
        if not level:
            return False
    return True


def _position(step: str, length: int) -> int:
    if not _INDEX.fullmatch(step):
        raise _DoesNotApply
    position = int(step)
    if not -length <= position < length:
        raise _DoesNotApply
    return position + length if position < 0 else position


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: to Python, true is 1."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same(value, right[name]) for name, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
