"""Field errors: values as the reference prints them, and answers that stay small."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import ErrorSubject, Invalid
from orchid.kernel.wire.fields import MOST_TEXT, FieldError, Path, gathered, invalid, printed
from orchid.kernel.wire.text import LONGEST_SHOWN, OMITTED

FIELD = Path() / "spec" / "field"
LONG = "x" * (LONGEST_SHOWN + 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        ('a"\n', '"a\\"\\n"'),
        (3, "3"),
        (True, "true"),
        (None, "null"),
        (b"abc", '"YWJj"'),
        (("a", "b"), '["a","b"]'),
        ("x" * LONGEST_SHOWN, '"' + "x" * LONGEST_SHOWN + '"'),
        (LONG, f'"{OMITTED}"'),
        (b"x" * 100_000, f'"{OMITTED}"'),
        ((LONG, LONG), f'"{OMITTED}"'),
    ],
)
def test_values_print_as_the_reference_prints_them_unless_they_are_very_long(
    value: Any, text: str
) -> None:
    """A string in quotes, bytes in base64, the rest as JSON; what is huge is not repeated."""
    assert printed(value) == text


def test_long_keys_and_details_are_not_repeated_either() -> None:
    """The path contains the key of a map, and a detail may quote the value."""
    found = invalid(FIELD[LONG], "a", LONG)

    assert str(found) == f'spec.field[{OMITTED}]: Invalid value: "a": {OMITTED}'


def test_errors_are_looked_for_until_the_answer_is_full() -> None:
    """Unknown fields that are not reported are not searched."""
    asked = 0

    def errors() -> Iterator[FieldError]:
        nonlocal asked
        for asked in itertools.count(1):
            yield invalid(FIELD[asked], "x" * 100, "must be better")

    found = gathered(errors())

    assert len(found) == asked < MOST_TEXT / 100


def test_the_answer_to_a_huge_body_is_small() -> None:
    """Also in characters that take six in JSON, as a name, and in thousands of values."""
    name = "<" * 3_000_000
    errors = (invalid(FIELD[key], key, "no") for key in (f"{'<' * 300}{i}" for i in range(9000)))

    answer = encode(Invalid(ErrorSubject("group", "Kind", name), errors).status())

    assert len(answer) < 1_000_000
