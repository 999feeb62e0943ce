"""Label and field selectors of lists, watches and deletions.

    LabelMatcher.parse("env in (prod,stage),!legacy").matches(labels)
    FieldMatcher.parse("metadata.name=app").exact("metadata.name")  # "app"

An invalid selector raises BadRequest with the message of Kubernetes. The selectable fields of a
kind are not checked here: callers check `FieldMatcher.fields()`.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.fields import Path, aggregate, invalid
from orchid.kernel.wire.options import int64
from orchid.kernel.wire.rules.names import label_value_errors, qualified_name_errors

T = TypeVar("T")

# Clients repeat a few short selectors; long ones are not cached.
_CACHE_ENTRIES = 512
_CACHED_LENGTH = 1024
LONGEST_SELECTOR = 16 * 1024
MOST_CONDITIONS = 100  # of one selector: each costs time for every object


class Operator(StrEnum):
    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER = ">"
    LESS = "<"
    EXISTS = "exists"
    ABSENT = "!"


_SETS = frozenset({Operator.IN, Operator.NOT_IN})
_NEGATIVE = frozenset({Operator.NOT_IN, Operator.NOT_EQUALS})
_NUMERIC = frozenset({Operator.GREATER, Operator.LESS})


class Requirement(msgspec.Struct, frozen=True):
    """A condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.ABSENT:
            return value is None
        if self.operator in _NUMERIC:
            return value is not None and self._compare(value)
        return (value is not None and value in self.values) is not (self.operator in _NEGATIVE)

    def _compare(self, value: str) -> bool:
        try:
            number = int64(value)
        except ValueError:
            return False
        limit = int64(self.values[0])
        return number > limit if self.operator is Operator.GREATER else number < limit

    def __str__(self) -> str:
        if self.operator is Operator.EXISTS:
            return self.key
        if self.operator is Operator.ABSENT:
            return f"!{self.key}"
        if self.operator in _SETS:
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"


class LabelMatcher(msgspec.Struct, frozen=True):
    """Requirements that all must hold; without any, everything is selected."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "LabelMatcher":
        if not text:
            return EVERY_LABEL
        if len(text) > _CACHED_LENGTH:
            _require_short(text)
            return _parse_labels(text)
        return _cached_labels(text)

    @property
    def empty(self) -> bool:
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110  # all() costs twice as much here
            if not requirement.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERY_LABEL = LabelMatcher()


def _require_short(text: str) -> None:
    if len(text) > LONGEST_SELECTOR:
        raise BadRequest(f"a selector may have at most {LONGEST_SELECTOR} characters")


def _parse_labels(text: str) -> LabelMatcher:
    return LabelMatcher(_few(_Parser(text).requirements()))


def _few(conditions: Iterator[T]) -> tuple[T, ...]:
    found = tuple(islice(conditions, MOST_CONDITIONS + 1))
    if len(found) > MOST_CONDITIONS:
        raise BadRequest(f"a selector may have at most {MOST_CONDITIONS} conditions")
    return found


_cached_labels = functools.lru_cache(_CACHE_ENTRIES)(_parse_labels)


class _Token(NamedTuple):
    """An operator, a word, or the end (None)."""

    text: str
    is_word: bool = False

    @property
    def starts_requirement(self) -> bool:
        return self.is_word or self.text == "!"


_END = _Token("")
_OPERATORS = {
    operator.value: operator
    for operator in Operator
    if operator not in (Operator.EXISTS, Operator.ABSENT)
}
_OPERATOR_NAMES = "in, notin, =, ==, !=, gt, lt"

# As in Kubernetes, a NUL ends the text where a token would begin, and a word where it occurs.
_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<sign>==|!=|[=!(),<>])|(?P<word>[^=!(),<> \t\r\n\0]+)\0?)")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while found := _TOKEN.match(text, position):
        position = found.end()
        yield _Token(found["sign"]) if found["sign"] else _Token(found["word"], is_word=True)


class _Parser:
    """Recursive descent over the tokens, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._ahead = next(self._tokens, _END)

    def requirements(self) -> Iterator[Requirement]:
        if self._ahead is _END:
            return
        if not self._ahead.starts_requirement:
            raise _unexpected(self._ahead, ", expected: !, identifier, or 'end of string'")
        while True:
            yield self._requirement()
            after = self._take()
            if after is _END:
                return
            if after.text != ",":
                raise _unexpected(after, ", expected: ',' or 'end of string'")
            if not self._ahead.starts_requirement:
                raise _unexpected(self._ahead, ", expected: identifier after ','")

    def _requirement(self) -> Requirement:
        token = self._take()
        absent = token.text == "!"
        if absent:
            token = self._take()
        if not token.is_word:
            raise _bad_requirement(token, ", expected: identifier")
        key = token.text
        _check_key(key)
        if absent:
            return Requirement(key, Operator.ABSENT)
        if self._ahead is _END or self._ahead.text == ",":
            return Requirement(key, Operator.EXISTS)
        operator = self._operator()
        values = self._set() if operator in _SETS else self._value()
        return _checked(Requirement(key, operator, tuple(sorted(values))))

    def _operator(self) -> Operator:
        token = self._take()
        if token.text not in _OPERATORS:
            raise _bad_requirement(token, f", expected: {_OPERATOR_NAMES}")
        return _OPERATORS[token.text]

    def _value(self) -> set[str]:
        if self._ahead is _END or self._ahead.text == ",":
            return {""}
        token = self._take()
        if not token.is_word:
            raise _bad_requirement(token, ", expected: identifier")
        return {token.text}

    def _set(self) -> set[str]:
        token = self._take()
        if token.text != "(":
            raise _bad_requirement(token, " expected: '('")
        if self._ahead.text == ")":
            self._take()
            return {""}
        if not self._ahead.is_word and self._ahead.text != ",":
            raise _bad_requirement(self._ahead, ", expected: ',', ')' or identifier")
        values: set[str] = set()
        while not self._closed(values):
            pass
        self._take()
        return values

    def _closed(self, values: set[str]) -> bool:
        """Parse a value, or the comma between two; return whether the list ends after it."""
        token = self._take()
        if token.is_word:
            values.add(token.text)
            if self._ahead.text not in (",", ")"):
                raise _bad_requirement(self._ahead, ", expected: ',' or ')'")
            return self._ahead.text == ")"
        if token.text != ",":
            raise _bad_requirement(token, ", expected: ',', or identifier")
        # An empty value is meant before the first comma, between two, and after the last.
        if not values or self._ahead.text in (",", ")"):
            values.add("")
        if self._ahead.text == ",":
            self._take()
            return False
        return self._ahead.text == ")"

    def _take(self) -> _Token:
        token = self._ahead
        if token is not _END:
            self._ahead = next(self._tokens, _END)
        return token


def _check_key(key: str) -> None:
    problems = qualified_name_errors(key)
    if problems:
        raise BadRequest(
            f"unable to parse requirement: {invalid(Path(), key, '; '.join(problems))}"
        )


def _checked(requirement: Requirement) -> Requirement:
    errors = []
    path = Path() / "values"
    if requirement.operator in _NUMERIC:
        try:
            int64(requirement.values[0])
        except ValueError:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid(path[0], requirement.values[0], detail))
    for index, value in enumerate(requirement.values):
        problems = label_value_errors(value)
        if problems:
            errors.append(invalid(path[index][requirement.key], value, "; ".join(problems)))
    if errors:
        raise BadRequest(f"unable to parse requirement: {aggregate(errors)}")
    return requirement


def _unexpected(token: _Token, expectation: str) -> BadRequest:
    return BadRequest(f"found '{token.text}'{expectation}")


def _bad_requirement(token: _Token, expectation: str) -> BadRequest:
    return BadRequest(f"unable to parse requirement: found '{token.text}'{expectation}")


class FieldTerm(NamedTuple):
    """A condition on one field."""

    field: str
    operator: str  # "=" or "!="
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{_ESCAPED.sub(_BACKSLASHED, self.value)}"


_ESCAPED = re.compile(r"[\\,=]")
_BACKSLASHED = r"\\\g<0>"
_TERM_OPERATOR = re.compile("!=|==|=")
_TERM = re.compile(r"(?:[^\\,]|\\.)*+\\?", re.DOTALL)


class FieldMatcher(msgspec.Struct, frozen=True):
    """Terms that all must hold; without any, everything is selected."""

    terms: tuple[FieldTerm, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "FieldMatcher":
        if not text:
            return EVERY_FIELD
        if len(text) > _CACHED_LENGTH:
            _require_short(text)
            return _parse_fields(text)
        return _cached_fields(text)

    @property
    def empty(self) -> bool:
        return not self.terms

    def fields(self) -> tuple[str, ...]:
        """The fields of the selector, each once, in order."""
        return tuple(dict.fromkeys(term.field for term in self.terms))

    def exact(self, field: str) -> str | None:
        """The only value that the selector allows for a field, or None."""
        for term in self.terms:
            if term.field == field and term.operator == "=":
                return term.value
        return None

    def matches(self, lookup: Callable[[str], str]) -> bool:
        for field, operator, value in self.terms:
            if (lookup(field) == value) is not (operator == "="):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(str(term) for term in self.terms)


EVERY_FIELD = FieldMatcher()


def _parse_fields(text: str) -> FieldMatcher:
    # Terms are parsed in sorted order, which decides which error is reported first.
    parts = sorted(_split_terms(text))
    return FieldMatcher(_few(_term(text, part) for part in parts if part))


_cached_fields = functools.lru_cache(_CACHE_ENTRIES)(_parse_fields)


def _split_terms(text: str) -> Iterator[str]:
    position = 0
    while position <= len(text):
        term = _TERM.match(text, position)
        assert term is not None, "the pattern matches the empty text"
        yield term[0]
        position = term.end() + 1


def _term(selector: str, part: str) -> FieldTerm:
    operator = _TERM_OPERATOR.search(part)
    if operator is None:
        raise BadRequest(f"invalid selector: '{selector}'; can't understand '{part}'")
    value = _unescaped(part[operator.end() :])
    return FieldTerm(part[: operator.start()], "!=" if operator[0] == "!=" else "=", value)


def _unescaped(text: str) -> str:
    signs: list[str] = []
    rest = iter(text)
    for sign in rest:
        if sign == "\\":
            escaped = next(rest, "")
            if escaped not in ("\\", ",", "="):
                raise BadRequest(f"invalid field selector: invalid escape sequence: \\{escaped}")
            signs.append(escaped)
        elif sign in ",=":
            raise BadRequest(f"invalid field selector: unescaped character in value: {ord(sign)}")
        else:
            signs.append(sign)
    return "".join(signs)
