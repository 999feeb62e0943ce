"""Syntax errors in JSON, with the messages that Kubernetes clients expect.

`syntax_fault(body)` runs only after decoding has failed. It may be slow, but takes at most one pass
over the body.
"""

import json
import re

_END_OF_INPUT = "unexpected end of JSON input"
_NOT_UTF8 = "invalid character encoding: the text is not UTF-8"
_TOO_DEEP = "exceeded max depth"

_LITERAL = re.compile(r"(?P<true>tr?u?)|(?P<false>fa?l?s?)|(?P<null>nu?l?)")
_BLANK = re.compile(r"[ \t\r\n]*")
# Strings are matched whole, so that a bracket inside one opens nothing.
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)

# Message of the standard library, and the description of the character at its position.
_CONTEXTS = (
    ("Expecting property name", "looking for beginning of object key string"),
    ("Illegal trailing comma before end of object", "looking for beginning of object key string"),
    ("Expecting ':' delimiter", "after object key"),
    ("Invalid control character", "in string literal"),
    ("Invalid \\escape", "in string escape code"),
    ("Invalid \\uXXXX escape", "in \\u hexadecimal character escape"),
    ("Extra data", "after top-level value"),
)


def syntax_fault(body: bytes) -> str:
    """The error and, if there is one, the character that caused it."""
    try:
        text = body.decode()
        json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return _NOT_UTF8
    except RecursionError:
        return _TOO_DEEP
    except json.JSONDecodeError as fault:
        return _in_words(fault, text)
    except ValueError as fault:
        return str(fault)
    # Python accepts half a surrogate pair, but cannot encode it again.
    return "invalid character in \\u hexadecimal character escape: half of a surrogate pair"


def _no_constant(name: str) -> float:
    raise ValueError(f"invalid character {_shown(name[0])} looking for beginning of value")


def _in_words(fault: json.JSONDecodeError, text: str) -> str:
    if fault.msg.startswith("Unterminated string"):
        return _END_OF_INPUT
    position = _position(fault, text)
    if position >= len(text):
        return _END_OF_INPUT
    sign = _shown(text[position])
    for start, context in _CONTEXTS:
        if fault.msg.startswith(start):
            return f"invalid character {sign} {context}"
    if fault.msg.startswith("Expecting ',' delimiter"):
        where = "array element" if _in_array(text[:position]) else "object key:value pair"
        return f"invalid character {sign} after {where}"
    return _value_fault(text, position)


def _position(fault: json.JSONDecodeError, text: str) -> int:
    position = fault.pos
    if fault.msg.startswith("Illegal trailing comma"):
        position += 1
    if fault.msg.startswith("Invalid \\escape"):
        position += 1
    if fault.msg.startswith("Invalid control character"):
        return position
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _value_fault(text: str, position: int) -> str:
    """A missing value, or an invalid literal."""
    literal = _LITERAL.match(text, position)
    if literal is None:
        return f"invalid character {_shown(text[position])} looking for beginning of value"
    name = str(literal.lastgroup)
    if literal.end() >= len(text):
        return _END_OF_INPUT
    expected = name[literal.end() - position]
    return (
        f"invalid character {_shown(text[literal.end()])} "
        f"in literal {name} (expecting {_shown(expected)})"
    )


def _in_array(text: str) -> bool:
    open_brackets: list[str] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in "[{":
            open_brackets.append(bracket[0])
        elif bracket[0] in "]}" and open_brackets:
            open_brackets.pop()
    return bool(open_brackets) and open_brackets[-1] == "["


def _shown(sign: str) -> str:
    if sign == "'":
        return "'\\''"
    if sign == '"' or sign.isprintable():
        return f"'{sign}'"
    return repr(sign)
