"""Names and labels: what passes, and the exact texts of what does not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.wire.rules.names import (
    any_name,
    label_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
    subdomain_errors,
)

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ODD_TEXT = st.text(alphabet="aZ09-_./%\n é", max_size=12)


@pytest.mark.parametrize("name", ["a", "app", "a-b.c9", "1", "a" * 253, "a--b"])
def test_an_ordinary_name_passes(name: str) -> None:
    """A DNS subdomain up to 253 characters has no findings."""
    assert subdomain_errors(name) == ()


@pytest.mark.parametrize("name", ["", "App", "a_b", "a/b", "-a", "a-", "a..b", ".a", "a\n", "é"])
def test_a_name_that_is_no_subdomain_gets_the_long_text(name: str) -> None:
    """The pattern must match the whole text, including a final newline."""
    assert subdomain_errors(name) == (SUBDOMAIN,)


def test_length_is_reported_before_the_pattern() -> None:
    """Both findings are reported when both apply."""
    assert subdomain_errors("a" * 254) == ("must be no more than 253 characters",)
    assert subdomain_errors("A" * 254) == ("must be no more than 253 characters", SUBDOMAIN)
    assert label_errors("A" * 64) == ("must be no more than 63 characters", LABEL)


def test_dots_in_a_label_have_their_own_text() -> None:
    """A valid subdomain where a label is asked for only has its dots named."""
    assert label_errors("a.b") == ("must not contain dots",)
    assert label_errors("A.b") == (LABEL,)


def test_a_prefix_may_end_in_a_dash() -> None:
    """The character before the dash is removed with it, so only earlier ones are checked."""
    assert subdomain_errors("web-", prefix=True) == ()
    assert subdomain_errors("A-", prefix=True) == ()
    assert subdomain_errors("x.", prefix=True) == (SUBDOMAIN,)
    assert subdomain_errors("-", prefix=True) == (SUBDOMAIN,)


def test_path_segments_refuse_what_a_url_cannot_carry() -> None:
    """Dots alone, slashes and percent signs are refused; anything else is a name."""
    assert path_segment_errors("system:Node é") == ()
    assert path_segment_errors(".") == ("may not be '.'",)
    assert path_segment_errors("..") == ("may not be '..'",)
    assert path_segment_errors("..", prefix=True) == ()
    assert path_segment_errors("a/%") == ("may not contain '/'", "may not contain '%'")
    assert any_name("a/b") == ()


@pytest.mark.parametrize("key", ["a", "A.b_c-9", "example.com/Name", "a" * 63])
def test_an_ordinary_label_key_passes(key: str) -> None:
    """A name, with or without a DNS prefix, has no findings."""
    assert qualified_name_errors(key) == ()


def test_label_keys_name_the_part_that_is_wrong() -> None:
    """Prefix and name are checked separately; a second slash is an error by itself."""
    assert qualified_name_errors("") == ("name part must be non-empty", NAME_PART)
    assert qualified_name_errors("/a") == ("prefix part must be non-empty",)
    assert qualified_name_errors("A/a") == (f"prefix part {SUBDOMAIN}",)
    assert qualified_name_errors("a" * 254 + "/a") == (
        "prefix part must be no more than 253 bytes",
    )
    assert qualified_name_errors("a" * 64) == ("name part must be no more than 63 bytes",)
    assert qualified_name_errors("a b") == (NAME_PART,)
    (text,) = qualified_name_errors("a/b/c")
    assert text.startswith("a valid label key must consist of")
    assert text.endswith(
        "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    )


def test_label_values_count_bytes() -> None:
    """The empty value is fine; length is in bytes."""
    assert label_value_errors("") == ()
    assert label_value_errors("a" * 63) == ()
    assert label_value_errors("a" * 64) == ("must be no more than 63 bytes",)
    assert label_value_errors("é" * 32) == ("must be no more than 63 bytes", VALUE)
    assert label_value_errors("b c") == (VALUE,)


@given(ODD_TEXT)
def test_the_rules_accept_what_their_printed_patterns_accept(text: str) -> None:
    """The patterns in the messages and the ones that decide are the same languages."""
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    part = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

    assert (label_errors(text) == ()) == bool(re.fullmatch(label, text))
    assert (subdomain_errors(text) == ()) == bool(re.fullmatch(rf"{label}(\.{label})*", text))
    assert (label_value_errors(text) == ()) == bool(re.fullmatch(rf"({part})?", text))
    assert (qualified_name_errors(text) == ()) == bool(
        re.fullmatch(rf"({label}(\.{label})*/)?{part}", text)
    )


def test_hostile_length_is_no_burden() -> None:
    """Megabytes of almost valid text are checked in one pass."""
    long = "a" * 3_000_000 + "!"

    for rule in (subdomain_errors, label_errors, qualified_name_errors, label_value_errors):
        assert len(rule(long)) == 2
