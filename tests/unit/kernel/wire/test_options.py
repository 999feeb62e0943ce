"""Query parameters: splitting, parsing and validation."""

import contextlib
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.options import (
    FIELD_MANAGER,
    boolean,
    default_manager,
    dry_run_errors,
    duration,
    field_validation_errors,
    integer,
    manager_errors,
    parse_query,
    propagation_policy_errors,
)


def test_a_query_keeps_every_value_in_order() -> None:
    """Repeated parameters keep all values; escapes and plus signs are undone."""
    assert parse_query("a=1&b=x%20y&a=2&c&d=p+q&&=z") == {
        "a": ["1", "2"],
        "b": ["x y"],
        "c": [""],
        "d": ["p q"],
        "": ["z"],
    }
    assert parse_query("") == {}


def test_a_pair_that_cannot_be_read_is_left_out_alone() -> None:
    """Semicolons and broken escapes cost their own pair only."""
    assert parse_query("a=1;b=2&c=%zz&%4=x&d=3") == {"d": ["3"]}


@given(st.lists(st.tuples(st.text(min_size=1), st.text())))
def test_a_query_round_trips(pairs: list[tuple[str, str]]) -> None:
    """An encoded query is decoded to the same values."""
    raw = urllib.parse.urlencode(pairs, errors="replace")

    read = parse_query(raw)

    assert read == urllib.parse.parse_qs(raw, keep_blank_values=True)


@given(st.text())
def test_any_text_is_a_query(raw: str) -> None:
    """No query is an error."""
    assert isinstance(parse_query(raw), dict)


def test_everything_but_zero_and_false_is_true() -> None:
    """An empty value is true, too."""
    assert [boolean(text) for text in ("0", "false", "FALSE")] == [False] * 3
    assert [boolean(text) for text in ("", "1", "no", "f")] == [True] * 4


def test_integers_are_strict_and_of_64_bits() -> None:
    """Signs and zeros are fine; the limits are those of int64."""
    assert integer("-5") == -5
    assert integer("+0007") == 7
    assert integer("9223372036854775807") == 2**63 - 1
    assert integer("0" * 5000 + "1") == 1
    assert integer("-9223372036854775808") == -(2**63)


@pytest.mark.parametrize("text", ["", "abc", "1.0", " 1", "1_0", "0x1", "1\n", "\u0661"])
def test_a_word_is_no_integer(text: str) -> None:
    """The refusal quotes the value."""
    with pytest.raises(BadRequest, match="invalid syntax"):
        integer(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 6000])
def test_an_integer_beyond_64_bits_is_out_of_range(text: str) -> None:
    """However many digits it has."""
    with pytest.raises(BadRequest) as caught:
        integer(text)

    assert caught.value.message == f'strconv.ParseInt: parsing "{text}": value out of range'


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5s", 5), ("1m30s", 90), ("-1.5h", -5400), ("+10ms", 0.01), (".5s", 0.5)],
)
def test_durations_add_up_their_parts(text: str, seconds: float) -> None:
    """Every unit counts, fractions and signs included."""
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'invalid duration ""'),
        ("x", 'invalid duration "x"'),
        (".s", 'invalid duration ".s"'),
        ("5", 'missing unit in duration "5"'),
        ("1m5", 'missing unit in duration "1m5"'),
        ("5days", 'unknown unit "days" in duration "5days"'),
        ("é", 'invalid duration "\\xc3\\xa9"'),
        ("9" * 5000 + "h", f'invalid duration "{"9" * 5000}h"'),
    ],
)
def test_a_bad_duration_says_what_is_wrong(text: str, problem: str) -> None:
    """The texts are those of the reference."""
    with pytest.raises(BadRequest) as caught:
        duration(text)

    assert caught.value.message == f"invalid timeout specified in the request URL - time: {problem}"


@given(st.text())
def test_any_duration_is_read_or_refused(text: str) -> None:
    """Nothing but a number or BadRequest comes out."""
    with contextlib.suppress(BadRequest):
        assert isinstance(duration(text), float)


def test_a_manager_is_short_and_printable() -> None:
    """Length is in bytes; every bad character is named with its byte position."""
    assert list(manager_errors(FIELD_MANAGER, "kubectl é")) == []
    assert [str(error) for error in manager_errors(FIELD_MANAGER, "m" * 129)] == [
        "fieldManager: Too long: may not be more than 128 bytes"
    ]
    assert [str(error) for error in manager_errors(FIELD_MANAGER, "é\x01\n")] == [
        'fieldManager: Invalid value: "é\\x01\\n": invalid character U+0001 (at position 2)',
        'fieldManager: Invalid value: "é\\x01\\n": invalid character U+000A (at position 3)',
    ]


def test_the_user_agent_names_the_manager() -> None:
    """The program before the slash, cleaned and cut; without one, unknown."""
    assert default_manager("kubectl/v1.36 (linux)") == "kubectl"
    assert default_manager("") == "unknown"
    assert default_manager("/x") == "unknown"
    assert default_manager("a\x01b") == "ab"
    assert default_manager("é" * 100) == "é" * 64


def test_options_have_few_values() -> None:
    """dryRun, fieldValidation and propagationPolicy have the messages of Kubernetes."""
    assert list(dry_run_errors(["All", "All"])) == []
    assert [str(error) for error in dry_run_errors(["x"])] == [
        'dryRun: Unsupported value: ["x"]: supported values: "All"'
    ]
    assert list(field_validation_errors("Warn")) == []
    assert [str(error) for error in field_validation_errors("Loose")] == [
        'fieldValidation: Unsupported value: "Loose": '
        'supported values: "", "Ignore", "Strict", "Warn"'
    ]
    assert list(propagation_policy_errors(None, True)) == []
    assert list(propagation_policy_errors("Orphan", None)) == []
    assert [str(error) for error in propagation_policy_errors("", True)] == [
        'propagationPolicy: Invalid value: "": '
        "orphanDependents and deletionPropagation cannot be both set",
        'propagationPolicy: Unsupported value: "": '
        'supported values: "Foreground", "Background", "Orphan", "nil"',
    ]
