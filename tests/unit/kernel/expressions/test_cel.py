"""Expressions: what compiles, what comes out, and that no claim can do harm on the way."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from orchid.kernel.expressions import cel
from orchid.kernel.expressions.cel import (
    Compiler,
    Expression,
    ExpressionInput,
    ExpressionUnusable,
    Failed,
    LibraryMissing,
)

CLAIMS = {"sub": "jane", "groups": ["devs", "ops"], "level": 3, "ok": True, "none": None}


@pytest.fixture
def compiled() -> Callable[[str], Expression]:
    return Compiler().over_claims


def failure(call: Callable[[ExpressionInput], Any], claims: dict[str, Any]) -> str:
    with pytest.raises(Failed) as raised:
        call(ExpressionInput(claims))
    return str(raised.value)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("claims.sub", ("jane",)),
        ("'a:' + claims.sub", ("a:jane",)),
        ("claims.groups", ("devs", "ops")),
        ("claims.groups.map(g, 'a:' + g)", ("a:devs", "a:ops")),
        ("claims.groups.filter(g, g != 'ops')", ("devs",)),
        ("claims.?absent.orValue('x')", ("x",)),
        ("has(claims.absent) ? 'x' : 'y'", ("y",)),
        ("claims.sub.upperAscii().split('A')", ("J", "NE")),
        ("['x', '', 'y']", ("x", "y")),
        ("''", ()),
        ("[]", ()),
        ("claims.none", ()),
        ("claims.level", None),
        ("['x', 1]", None),
        ("[null]", None),
        ("{'a': 'b'}", None),
        ("b'x'", None),
        ("string(int(claims.level))", ("3",)),
        ("claims.level == 3 ? 'three' : 'other'", ("three",)),
    ],
)
def test_texts_come_out_as_in_the_reference(
    compiled: Callable[[str], Expression], source: str, texts: tuple[str, ...] | None
) -> None:
    """A text, a list of texts or null; empty texts are dropped, and the rest is no answer."""
    assert compiled(source).texts(ExpressionInput(CLAIMS)) == texts


@pytest.mark.parametrize(
    ("source", "text"),
    [("claims.sub", "jane"), ("''", ""), ("claims.groups", None), ("claims.none", None)],
)
def test_one_text_is_one_text(
    compiled: Callable[[str], Expression], source: str, text: str | None
) -> None:
    """A name is never made of a list or of null."""
    assert compiled(source).text(ExpressionInput(CLAIMS)) == text


@pytest.mark.parametrize(
    ("source", "outcome"), [("claims.ok", True), ("claims.sub == 'x'", False), ("claims.sub", None)]
)
def test_truth_is_a_boolean(
    compiled: Callable[[str], Expression], source: str, outcome: bool | None
) -> None:
    """A text with content is not true."""
    assert compiled(source).holds(ExpressionInput(CLAIMS)) is outcome


@pytest.mark.parametrize(
    ("source", "claims"),
    [
        ("claims.corp__dot__example.team", {"corp.example": {"team": "a"}}),
        ("claims.x__slash__y__dash__z", {"x/y-z": "a"}),
        ("claims.list.map(one, one.k__dot__k)", {"list": [{"k.k": "a"}]}),
        ("claims.__namespace__", {"namespace": "a"}),
        ("claims.a__underscores__b", {"a__b": "a"}),
        ("has(claims.a__dot__b) ? 'wrong' : 'a'", {"a__dot__b": "x"}),
        ("claims.a__other__b", {"a__other__b": "a"}),
    ],
)
def test_escaped_names_find_what_cannot_be_written(
    compiled: Callable[[str], Expression], source: str, claims: dict[str, Any]
) -> None:
    """The reference's way to write a dot, a slash or a reserved word in a name."""
    assert compiled(source).texts(ExpressionInput(claims)) == ("a",)


@pytest.mark.parametrize(
    ("source", "claims", "text"),
    [
        ("claims.absent", {}, "no such key: absent"),
        ("claims[claims.sub]", {"sub": "canary"}, "no such key"),
        ("claims.sub + 1", {"sub": "canary"}, "no such overload"),
        ("1 / int(claims.n)", {"n": 0}, "division by zero"),
        ("int(claims.sub)", {"sub": "canary"}, "no result for these values"),
        ("claims.sub.matches(claims.sub)", {"sub": "canary["}, "no result for these values"),
        ("claims.sub", {"sub": "admin\0canary"}, "a text with a NUL character"),
        ("claims.sub", {"sub": "a", "x": {"k\0": 1}}, "a text with a NUL character"),
        ("claims.sub", {"sub": 10**400}, "a number that is too large"),
        ("claims.sub", {"sub": float("inf")}, "a number that is too large"),
        ("claims.sub", {"sub": "\ud800"}, "no result for these values"),
        ("claims.l.map(x, x)", {"l": ["x"] * 1000}, "too many or too deeply nested values"),
        ("claims.l.split(',').map(x, x)", {"l": "," * 5000}, "a text falls into too many pieces"),
        ("claims.l.split('')", {"l": "x" * 5000}, "a text falls into too many pieces"),
        ("claims.l.split(claims.l)", {"l": "x" * 5000}, "a text falls into too many pieces"),
        (
            "claims.l.replace('x', ',').split(',')",
            {"l": "x" * 5000},
            "a text falls into too many pieces",
        ),
        (
            "claims.l.map(x, claims.l.map(y, x + y))",
            {"l": [str(number) for number in range(200)]},
            "too many steps",
        ),
        ("claims.l + claims.l", {"l": ["x"] * 900}, "the result is too large"),
        ("claims.l.replace('', claims.l)", {"l": "x" * 500}, "the result is too large"),
    ],
)
def test_failure_says_why_and_quotes_no_claim(
    compiled: Callable[[str], Expression], source: str, claims: dict[str, Any], text: str
) -> None:
    """The error has our own message, without the values of claims."""
    found = failure(compiled(source).texts, claims)

    assert found == f"expression '{source}' resulted in error: {text}"
    assert "canary" not in found.replace(source, "")


def test_deep_claims_are_refused(compiled: Callable[[str], Expression]) -> None:
    """Nothing recurses further than the limit, in our code or in the library's."""
    deep: dict[str, Any] = {"sub": "a"}
    for _ in range(900):
        deep = {"a": deep}

    assert "deeply nested" in failure(compiled("claims.a").texts, deep)


def test_long_texts_that_are_not_split_are_fine(compiled: Callable[[str], Expression]) -> None:
    """The limit on pieces is for those who split."""
    assert compiled("claims.l").text(ExpressionInput({"l": "," * 5000})) == "," * 5000


def test_nulls_are_recognized_by_their_type(compiled: Callable[[str], Expression]) -> None:
    """The library gives None away without counting it; asked often enough, the process dies."""
    nothing, listed = compiled("claims.n"), compiled("[claims.n]")
    before = sys.getrefcount(None)

    for _ in range(5000):
        given = ExpressionInput({"n": None})
        nothing.texts(given)
        nothing.text(given)
        nothing.holds(given)
        listed.texts(given)

    assert sys.getrefcount(None) > before - 2500


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 +", "compilation failed: 1:4: Syntax error"),
        ("foo + bar", "compilation failed: 1:1: undeclared reference to 'foo'"),
        ("user.username == 'a'", "undeclared reference to 'user"),
        ("now()", "undeclared reference to 'now'"),
        ("url('https://a')", "undeclared reference to 'url'"),
        ("true && 'a'", "found no matching overload"),
        ("'a'.matches('[')", "invalid regular expression: missing ]"),
        ("claims.?sub", "evaluates to an optional value"),
        ("(" * 200 + "1" + ")" * 200, "recursion limit exceeded"),
        ("1" + "+1" * 500, "max recursion depth"),
        ("'" + "x" * 9000 + "'", "must have at most 8192 characters"),
        ("\0", "compilation failed"),
        ("\ud800", "compilation failed"),
    ],
)
def test_an_invalid_expression_is_reported_in_one_line(
    compiled: Callable[[str], Expression], source: str, text: str
) -> None:
    """Where, and why: no state of the library, no picture of the line."""
    with pytest.raises(ExpressionUnusable) as raised:
        compiled(source)

    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "INVALID_ARGUMENT" not in str(raised.value)


def test_condition_is_known_to_be_one() -> None:
    """An expression of an unknown type is no rule."""
    compiler = Compiler()

    assert compiler.claims_condition("claims.a == 'b'").is_condition
    for source in ("claims.a", "'true'", "claims.a ? claims.b : claims.c"):
        with pytest.raises(ExpressionUnusable, match="must evaluate to bool"):
            compiler.claims_condition(source)


def test_user_has_four_fields() -> None:
    """A misspelt one is found at start, not when a token comes."""
    compiler = Compiler()
    user = ExpressionInput(
        {"username": "a", "uid": "", "groups": ("g",), "extra": {"a.b/c": ("d",)}}
    )

    assert compiler.user_condition("user.username == 'a' && has(user.uid)").holds(user)
    assert compiler.user_condition("user.groups.all(g, g != 'x')").holds(user)
    assert compiler.user_condition("user.extra.a__dot__b__slash__c[0] == 'd'").holds(user)
    for source in ("user.name == 'a'", "user.?name.orValue('') == 'a'", "has(user.name)"):
        with pytest.raises(ExpressionUnusable, match="undefined field 'name'"):
            compiler.user_condition(source)
    with pytest.raises(ExpressionUnusable, match="undeclared reference to 'claims"):
        compiler.user_condition("claims.sub == 'a'")


@pytest.mark.parametrize(
    "source",
    [
        "claims.email",
        "claims.?email.orValue('')",
        "'a' + string(claims.email)",
        "['a', claims.email].join('')",
        "{'a': claims.email}",
        "['a'].map(x, x + claims.email)",
        "claims.a ? claims.email : ''",
        "(claims).email",
        "claims.email.lowerAscii()",
        "has(claims.email) ? 'a' : 'b'",
    ],
)
def test_selected_claims_are_known(compiled: Callable[[str], Expression], source: str) -> None:
    """At any position in the expression."""
    assert ("claims", "email") in compiled(source).selects


@pytest.mark.parametrize("source", ["claims.sub", "claims.a.email", "'claims.email'", "claims"])
def test_nothing_else_is_taken_for_a_selected_claim(
    compiled: Callable[[str], Expression], source: str
) -> None:
    """A text that looks like it, or the same name further down, is not it."""
    assert ("claims", "email") not in compiled(source).selects


def test_library_is_loaded_by_the_first_expression_alone() -> None:
    """Nobody pays for it who has none."""
    code = (
        "import sys, orchid.assembly.server; from orchid.kernel.expressions.cel import Compiler; "
        "Compiler(); print([name for name in sys.modules if name.startswith('cel')])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert answer.stdout == "[]\n"


def test_a_missing_library_is_reported_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which package, by which name."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)

    with pytest.raises(LibraryMissing, match="no cel-expr-python for this platform"):
        cel.Compiler().over_claims("claims.sub")
