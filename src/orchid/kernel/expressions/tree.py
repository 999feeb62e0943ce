"""The syntax tree of a compiled expression: its selected fields and its cost.

Start with `read_tree`, which takes the bytes of a checked expression (cel.expr.CheckedExpr in
protobuf, wrapped in an Any) and returns a `Tree`. Only the compiler's own output is parsed here,
never client input, and without a protobuf library, since nothing else needs one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from orchid.kernel.wire.codec.protobuf_scalars import read_varint

# Field numbers of cel/expr/checked.proto and cel/expr/syntax.proto.
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
    """The relevant parts of an expression."""

    selects: frozenset[tuple[str, str]]  # ("a.b", "c") for a.b.c and a.b.?c
    separators: frozenset[str]  # separators of split strings; "": every character, or unknown
    patterns: tuple[str, ...]  # arguments of `matches`; "": only known at run time
    # called functions, operators as `_+_`, with their number of occurrences
    functions: Mapping[str, int]
    loops: int  # the nesting depth of loops; a loop over another's result counts too


def read_tree(compiled: bytes) -> Tree:
    """Parse a serialized expression."""
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
    """The direct subexpressions."""
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
    """The dotted name of an expression that consists of names only: `claims`, `request.user`."""
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
    """The fields that hold bytes: strings and messages. Numbers are skipped."""
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
