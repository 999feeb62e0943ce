"""What a compiled expression looks like inside: which fields it selects, what it could cost.

Start with `read_tree`, which takes the bytes of a checked expression (cel.expr.CheckedExpr in
protobuf, wrapped in an Any) and gives `Tree`. Only the compiler's own output is read here, never
what a client sends. It is read without a protobuf library, since nothing else here needs one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from orchid.wire.codec.protobuf_scalars import read_varint

# Numbers of the fields in cel/expr/checked.proto and cel/expr/syntax.proto.
_ANY_VALUE, _CHECKED_EXPR = 2, 4
_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = range(3, 10)
_OPERAND, _FIELD = 1, 2
_TARGET, _FUNCTION, _ARGUMENT = 1, 2, 3
_ENTRY, _KEY, _VALUE = 2, 3, 4
_LOOP_PARTS = (2, 4, 5, 6, 7)  # the range, the start, the condition, the step, the result
_NAME, _TEXT = 1, 6

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_OPTIONAL_SELECT = "_?._"


class Tree(msgspec.Struct, frozen=True):
    """The parts of an expression that somebody asks about."""

    selects: frozenset[tuple[str, str]]  # ("a.b", "c") for a.b.c and a.b.?c
    separators: frozenset[
        str
    ]  # at what it splits texts; empty text: at every character, or unknown
    patterns: tuple[str, ...]  # what `matches` looks for; empty text: known only when it runs
    functions: Mapping[str, int]  # what it calls, operators as `_+_`, and how often it is written
    loops: int  # how deep loops stand in loops; one that goes over another's result counts too


def read_tree(compiled: bytes) -> Tree:
    """Read a serialized expression."""
    selects: set[tuple[str, str]] = set()
    separators: set[str] = set()
    patterns: list[str] = []
    functions: Counter[str] = Counter()
    deepest = 0
    checked = _first(compiled, _ANY_VALUE)
    waiting = [(_first(checked, _CHECKED_EXPR), 0)]
    while waiting:
        expression, depth = waiting.pop()
        for number, data in _fields(expression):
            if number == _SELECT:
                operand = _first(data, _OPERAND)
                selects.add((_path(operand), _first(data, _FIELD).decode()))
            elif number == _CALL:
                arguments = _all(data, _ARGUMENT)
                function = _first(data, _FUNCTION).decode()
                if function == _OPTIONAL_SELECT:
                    selects.add((_path(arguments[0]), _text(arguments[1])))
                elif function == "split":
                    separators.add(_text(arguments[0]))
                elif function == "matches":
                    patterns.append(_text(arguments[-1]))
                functions[function] += 1
            inside = depth + (number == _COMPREHENSION)
            deepest = max(deepest, inside)
            waiting += [(part, inside) for part in _below(number, data)]
    if separators and functions["replace"]:
        separators = {""}  # any character may have become the separator
    return Tree(frozenset(selects), frozenset(separators), tuple(patterns), functions, deepest)


def _below(number: int, data: bytes) -> list[bytes]:
    """The expressions directly within one."""
    if number == _SELECT:
        return _all(data, _OPERAND)
    if number == _CALL:
        return [*_all(data, _TARGET), *_all(data, _ARGUMENT)]
    if number == _LIST:
        return _all(data, 1)
    if number == _STRUCT:
        entries = _all(data, _ENTRY)
        return [part for entry in entries for at in (_KEY, _VALUE) for part in _all(entry, at)]
    if number == _COMPREHENSION:
        return [part for at in _LOOP_PARTS for part in _all(data, at)]
    return []


def _path(expression: bytes) -> str:
    """The names of an expression that is nothing but names: `claims`, `request.user`."""
    name = _first(_first(expression, _IDENT), _NAME).decode()
    select = _first(expression, _SELECT)
    if name or not select:
        return name
    path = _path(_first(select, _OPERAND))
    return f"{path}.{_first(select, _FIELD).decode()}" if path else ""


def _text(expression: bytes) -> str:
    return _first(_first(expression, _CONST), _TEXT).decode()


def _first(message: bytes, wanted: int) -> bytes:
    return next(iter(_all(message, wanted)), b"")


def _all(message: bytes, wanted: int) -> list[bytes]:
    return [data for number, data in _fields(message) if number == wanted]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields that hold bytes: texts and messages. Numbers are passed over."""
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _BYTES:
            size, position = read_varint(message, position)
            yield number, message[position : position + size]
            position += size
        elif wire_type == _VARINT:
            _, position = read_varint(message, position)
        else:
            position += {_FIXED64: 8, _FIXED32: 4}[wire_type]
