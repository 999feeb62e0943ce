"""CEL expressions: compiled once, evaluated over claims, users and requests of two types.

Start with `Compiler`. The library takes time and memory to load, so it is loaded with the first
expression. docs/decisions/0014-expressions.md explains the choice.

    # raises ExpressionUnusable, LibraryMissing
    expression = Compiler().over_claims("'a:' + claims.sub")
    expression.text(ExpressionInput(claims))  # raises Failed

Workarounds for the library, all in this file:

- It ends a string at a NUL character, so that "admin\\0x" would be "admin": such claims are
  refused.
- Each time it returns None it drops one reference to None, until the process crashes: nulls are
  recognised by their type and never fetched.
- The time and memory of map and filter grow with the square of a list: the input is limited, and
  the number of parts of a split string. Its own limit is 10 000 steps in loops.
- Errors are values, and quote claims: only our own texts go into `Failed`.
- It cannot be interrupted and holds the interpreter lock: `Expression.cost` estimates the work
  before, and isolated.py runs slow expressions in a process of their own.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from orchid.kernel.expressions.tree import read_tree

MOST_CHARACTERS = 8 * 1024  # of an expression
MOST_OF_RULE = 1024  # of one in a policy: compiling this many takes up to 25 ms
MOST_VALUES = 1000  # in the input, and in a resulting list
MOST_LEVELS = 32
MOST_RESULT = 64 * 1024  # characters of a result

CLAIMS, USER, REQUEST, NOW = "claims", "user", "request", "now"
USER_FIELDS: Final = {USER: ("username", "uid", "groups", "extra")}
_SELECTOR: Final = ("rawSelector", "requirements")
# fmt: off
REQUEST_FIELDS: Final = {
    REQUEST: ("user", "uid", "groups", "extra", "resourceAttributes", "nonResourceAttributes"),
    f"{REQUEST}.nonResourceAttributes": ("path", "verb"),
    f"{REQUEST}.resourceAttributes": (
        "namespace", "verb", "group", "version", "resource", "subresource", "name",
        "fieldSelector", "labelSelector",
    ),
    f"{REQUEST}.resourceAttributes.fieldSelector": _SELECTOR,
    f"{REQUEST}.resourceAttributes.labelSelector": _SELECTOR,
}
# fmt: on
ABOUT_SIGNING: Final = (REQUEST, USER, NOW)  # the variables of a rule about certificate requests
ABOUT_EXCHANGE: Final = (CLAIMS, NOW)  # the variables of a rule about exchanges of tokens

MOST_KEPT: Final = 4096  # cached compiled expressions; those in use stay alive anyway
MOST_STEPS: Final = 10_000  # the library's own limit for all loops of one evaluation
# Each of these macros duplicates its operand: ten in a row make 100 000 nodes.
MOST_DOUBLINGS: Final = 4
_DOUBLING = re.compile(r"\.\s*opt(?:Flat)?Map\s*\(")
_GROWING = ("join", "replace", "format")  # may return strings longer than all inputs
_ON_EVERYTHING = ("_==_", "_!=_", "@in", "_+_")  # may traverse all inputs
_VALUE = 24  # characters that could be moved while one value is examined
# Cost of compiling a regular expression, and of searching with it, per character of it.
_MADE_READY, _SEARCHED = 1000, 8
_CLASS, _LARGE_CLASS = 4, 3000  # character classes; those of Unicode have thousands of characters
_REPEATED = re.compile(r"\{([\d,]+)\}")
_REPEATED_AGAIN = re.compile(r"[)}?*+]\{")
_UNKNOWN: Final = 1 << 62  # more than anything may cost
_CHEAP_TRIAL = 1 << 22

_COMPLAINT = re.compile(r"ERROR: <input>:(\d+:\d+): (.*)")
_STATUS = re.compile(r"^[A-Z_]+: (ERROR: <input>:-1:-1: )?| \[[A-Z_]+\]$")
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(r"__([^_]+)__")
_ESCAPED = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
# fmt: off
_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
))
# fmt: on


class ExpressionUnusable(ValueError):
    """An expression that cannot be compiled. The message is for its author."""


class LibraryMissing(Exception):
    """There is an expression, but no library to evaluate it."""


class ValueUnfit(Exception):
    """An input that expressions cannot use. The message gives the reason and quotes nothing."""


class Failed(Exception):
    """No result. The message has the expression and nothing of the input."""


class ExpressionInput:
    """The input of expressions: measured and copied once, on first use."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._given = value
        self._texts: list[str] = []
        self._values = 0
        self._activation: Any = None

    @cached_property
    def value(self) -> Any:
        """A copy for the library; raises ValueUnfit."""
        self._texts, self._values = [], 0
        return self._copy(self._given, MOST_LEVELS)

    def activation(self, environment: Any, variables: tuple[str, ...]) -> Any:
        """The copy inside the library; cached, since converting costs more than evaluating."""
        if self._activation is None:
            self._activation = environment.Activation(_by_variable(self.value, variables))
        return self._activation

    @property
    def size(self) -> tuple[int, int, int]:
        """The number of values, of characters in all strings, and in the longest string."""
        assert self.value is not None
        lengths = [*map(len, self._texts)]
        return self._values, sum(lengths), max(lengths, default=0)

    def most_pieces(self, separators: Iterable[str]) -> int:
        """The largest number of parts into which splitting could break an input string."""
        assert self.value is not None
        counts = (text.count(by) + 1 for text in self._texts for by in separators)
        return max(counts, default=0)

    def _copy(self, value: Any, levels: int) -> Any:
        self._values += 1
        if self._values > MOST_VALUES or not levels:
            raise ValueUnfit("too many or too deeply nested values")
        if isinstance(value, str):
            self._note(value)
            return value
        if isinstance(value, (list, tuple)):
            return [self._copy(item, levels - 1) for item in value] if value else []
        if value is None or isinstance(value, (bool, datetime)):
            return value
        if isinstance(value, (int, float)):
            return _number(value)
        if isinstance(value, (dict, Mapping)):
            self._note(*value)
            return {key: self._copy(item, levels - 1) for key, item in value.items()}
        return [self._copy(item, levels - 1) for item in value]

    def _note(self, *texts: str) -> None:
        for text in texts:
            if "\0" in text:
                raise ValueUnfit("a text with a NUL character")
        self._texts += texts


class Expression:
    """A compiled expression. Each result is None if it has another type."""

    def __init__(
        self, source: str, environment: Any, program: Any, variables: tuple[str, ...]
    ) -> None:
        tree = read_tree(program.serialize())
        self.source = source
        self.selects = tree.selects
        self._functions, self._loops = tree.functions, tree.loops
        self._patterns = tree.patterns
        self.is_condition = program.return_type().name() == "BOOL"
        self._separators = tree.separators
        self._aliases = _aliases(source)
        self._environment = environment
        self._program = program
        self._variables = variables

    def cost(self, input_: ExpressionInput) -> int:
        """Upper bound of the characters moved by an evaluation; raises Failed.

        Loops multiply, up to the library's own limit, and their bodies run in every step. An
        addition may double a string; in a loop over the result of another loop, all strings.
        """
        try:
            values, characters, longest = input_.size
        except ValueUnfit as unfit:
            raise self._failed(str(unfit)) from None
        written, count = len(self.source), self._functions
        steps: int = min((values + written // 4) ** self._loops, MOST_STEPS)
        additions = count.get("_+_", 0)
        everything = (characters + written) << (additions if self._loops > 1 else 0)
        text = (longest + written) << additions
        for _ in range(sum(count.get(function, 0) for function in _GROWING)):
            everything *= written
            text = everything
        everything += _VALUE * values
        thorough = sum(count.get(function, 0) for function in _ON_EVERYTHING) or 1
        searching = sum(_search_cost(pattern, text) for pattern in self._patterns)
        return steps * (thorough * everything + sum(count.values()) * text + searching)

    def holds(self, given: ExpressionInput) -> bool | None:
        result = self._evaluated(given)
        return bool(result.value()) if result.type().name() == "BOOL" else None

    def text(self, given: ExpressionInput) -> str | None:
        result = self._evaluated(given)
        return self._bounded((result.value(),))[0] if _is_text(result) else None

    def texts(self, input_: ExpressionInput) -> tuple[str, ...] | None:
        """A string or a list of strings; null is none, and empty ones are omitted."""
        result = self._evaluated(input_)
        kind = result.type().name()
        if kind == "NULL":
            return ()
        items = result.value() if kind.startswith("LIST") else [result]
        if len(items) > MOST_VALUES:
            raise self._failed("the result is too large")
        if not all(map(_is_text, items)):
            return None
        strings = (item.value() for item in items)
        return self._bounded(tuple(text for text in strings if text))

    def _evaluated(self, input_: ExpressionInput) -> Any:
        try:
            if self._separators and input_.most_pieces(self._separators) > MOST_VALUES:
                raise ValueUnfit("a text falls into too many pieces")
            result = self._program.eval(self._activation(input_))
            if result.type().name() != "ERROR":
                return result
            problem = _safe_message(str(result.value()), self.source)
        except ValueUnfit as unfit:
            problem = str(unfit)
        except MemoryError:
            raise  # within isolated.py, where it ends the process
        except Exception as raised:
            problem = _safe_message(str(raised), self.source)
        raise self._failed(problem)

    def _activation(self, given: ExpressionInput) -> Any:
        if not self._aliases:
            return given.activation(self._environment, self._variables)
        renamed = _renamed(given.value, self._aliases)
        return self._environment.Activation(_by_variable(renamed, self._variables))

    def _bounded(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        if sum(map(len, texts)) > MOST_RESULT:
            raise self._failed("the result is too large")
        return texts

    def _failed(self, problem: str) -> Failed:
        return Failed(f"expression '{self.source}' resulted in error: {problem}")


class Compiler:
    """Compiles expressions, with a cache."""

    def __init__(self) -> None:
        self._environments: dict[tuple[str, ...], Any] = {}
        self._compiled: dict[tuple[tuple[str, ...], str], Expression] = {}

    def over_claims(self, source: str) -> Expression:
        """An expression over the claims of a token, as `claims`."""
        return self._compile(source, (CLAIMS,))

    def claims_condition(self, source: str) -> Expression:
        """The same, with a boolean result."""
        return _condition(self.over_claims(source))

    def user_condition(self, source: str) -> Expression:
        """A condition over the mapped user, as `user`."""
        return _condition(_with_known_fields(self._compile(source, (USER,)), USER_FIELDS))

    def request_condition(self, source: str) -> Expression:
        """A condition over the spec of a SubjectAccessReview, as `request`."""
        return _condition(_with_known_fields(self._compile(source, (REQUEST,)), REQUEST_FIELDS))

    def signing_condition(self, source: str, sample: Mapping[str, Any]) -> Expression:
        """A condition over a certificate request with these fields, its user, and `now`."""
        _refuse_long_rule(source)
        fields = {**USER_FIELDS, REQUEST: tuple(sample)}
        user = {"username": "", "uid": "", "groups": [""], "extra": {}}
        tried = {REQUEST: sample, USER: user, NOW: _NO_TIME}
        expression = self._compile(source, ABOUT_SIGNING, tried)
        return _condition(_with_known_fields(expression, fields))

    def exchange_condition(self, source: str) -> Expression:
        """A condition over the claims of a token that is exchanged, and `now`."""
        _refuse_long_rule(source)
        return _condition(self._compile(source, ABOUT_EXCHANGE, {CLAIMS: {}, NOW: _NO_TIME}))

    def _compile(
        self, source: str, variables: tuple[str, ...], sample: Mapping[str, Any] | None = None
    ) -> Expression:
        compiled = self._compiled.get((variables, source))
        if compiled is not None:
            return compiled
        if len(source) > MOST_CHARACTERS:
            raise ExpressionUnusable(f"must have at most {MOST_CHARACTERS} characters")
        if len(_DOUBLING.findall(source)) > MOST_DOUBLINGS:
            raise ExpressionUnusable(f"must have at most {MOST_DOUBLINGS} of optMap and optFlatMap")
        environment = self._environments.get(variables)
        if environment is None:
            environment = self._environments[variables] = _environment(variables)
        try:
            program = environment.compile(source)
        except Exception as raised:
            raise ExpressionUnusable(_complaint(str(raised))) from None
        if program.return_type().name().startswith("optional"):
            raise ExpressionUnusable("evaluates to an optional value; end it with orValue")
        expression = Expression(source, environment, program, variables)
        _try(expression, program, sample or {variables[0]: {}})
        if len(self._compiled) >= MOST_KEPT:
            self._compiled.clear()
        self._compiled[variables, source] = expression
        return expression


def _refuse_long_rule(source: str) -> None:
    if len(source) << len(_DOUBLING.findall(source)) > MOST_OF_RULE:
        text = f"must have at most {MOST_OF_RULE} characters; optMap and optFlatMap double them"
        raise ExpressionUnusable(text)


def _try(expression: Expression, program: Any, sample: Mapping[str, Any]) -> None:
    """The library finds some errors only when a program first runs."""
    if expression.cost(ExpressionInput(sample)) > _CHEAP_TRIAL:
        return
    try:
        tried = program.eval(data=dict(sample))
    except Exception as raised:
        raise ExpressionUnusable(_complaint(str(raised))) from None
    if tried.type().name() == "ERROR" and "regular expression" in str(tried.value()):
        raise ExpressionUnusable(_complaint(str(tried.value())))


def _search_cost(pattern: str, text: int) -> int:
    """The cost of searching a pattern in a string of so many characters.

    The library compiles it each time. Repetitions are expanded, also nested ones.
    """
    if not pattern:
        return _UNKNOWN
    many = sum(map(pattern.count, (".", "\\", "[^")))
    very_many = pattern.count("\\p") + pattern.count("\\P")
    size = len(pattern) + _CLASS * many + _LARGE_CLASS * very_many
    counts = (
        int(count)
        for counted in _REPEATED.findall(pattern)
        for count in counted.split(",")
        if count
    )
    times: int = max(counts, default=1) ** (1 + len(_REPEATED_AGAIN.findall(pattern)))
    return size * times * (_MADE_READY + _SEARCHED * text)


_NO_TIME = datetime.fromtimestamp(0, UTC)


def _by_variable(value: Any, variables: tuple[str, ...]) -> Any:
    """The input is the value of the only variable, or has a member for each of several."""
    return {variables[0]: value} if len(variables) == 1 else value


def _environment(variables: tuple[str, ...]) -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError:
        raise LibraryMissing(
            "expressions cannot be evaluated here: there is no cel-expr-python for this platform"
        ) from None
    # The versions of the extensions have the functions of Kubernetes.
    values = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.NewEnv(
        variables={name: cel.Type.TIMESTAMP if name == NOW else values for name in variables},
        extensions=[ext_strings.ExtStrings(version=2), ext_optional.ExtOptional()],
    )


def _with_known_fields(expression: Expression, fields: Mapping[str, tuple[str, ...]]) -> Expression:
    """Refuse unknown fields: with a misspelt one the condition would never hold."""
    for operand, field in sorted(expression.selects):
        if operand in fields and field not in fields[operand]:
            raise ExpressionUnusable(f"compilation failed: undefined field '{field}'")
    return expression


def _condition(expression: Expression) -> Expression:
    if not expression.is_condition:
        raise ExpressionUnusable("must evaluate to bool")
    return expression


def _number(value: float) -> float:
    """Every number in JSON is a double, as in Kubernetes."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueUnfit("a number that is too large")
    return number


def _is_text(result: Any) -> bool:
    return bool(result.type().name() == "STRING")


def _complaint(raised: str) -> str:
    found = [f"{position}: {text}" for position, text in _COMPLAINT.findall(raised)]
    text = "; ".join(dict.fromkeys(found)) or _STATUS.sub("", raised).partition("\n")[0]
    return f"compilation failed: {text}"


def _safe_message(error: str, source: str) -> str:
    """An error of the library in words that quote no claim."""
    if missing := _MISSING_KEY.search(error):
        # A key may itself come from a claim; one that is written in the expression does not.
        return f"no such key: {missing[1]}" if missing[1] in source else "no such key"
    if "No matching overloads" in error:
        return "no such overload"
    if "divide by zero" in error or "modulus by zero" in error:
        return "division by zero"
    if "budget exceeded" in error:
        return "too many steps"
    return "no result for these values"


def _aliases(source: str) -> dict[str, str]:
    """Escaped names in an expression: `kubernetes__dot__io` for the dotted one."""
    aliases = {}
    for name in _NAME.findall(source):
        meant = _unescaped(name)
        if meant is not None and meant != name:
            aliases[name] = meant
    return aliases


def _unescaped(name: str) -> str | None:
    if name[:2] == name[-2:] == "__" and name[2:-2] in _RESERVED:
        return name[2:-2]
    if any(word not in _ESCAPED for word in _ESCAPE.findall(name)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], name)


def _renamed(value: Any, aliases: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, aliases) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _renamed(item, aliases) for key, item in value.items()}
    for name, meant in aliases.items():
        renamed.pop(name, None)
        if meant in renamed:
            renamed[name] = renamed[meant]
    return renamed
