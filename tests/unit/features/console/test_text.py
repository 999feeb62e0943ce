"""How values of the API are shown."""

import datetime

import pytest

from orchid.features.console import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("alice", "alice"),
        ("a b", "a b"),
        ("é", "é"),
        ("a\u202eb", "a\\u{202e}b"),
        ("a\x00\x1bb", "a\\u{0}\\u{1b}b"),
        ("a\nb", "a\\u{a}b"),
        ("zero\u200bwidth", "zero\\u{200b}width"),
        ("\u2028", "\\u{2028}"),
        (None, ""),
        (7, "7"),
    ],
)
def test_invisible_characters_are_spelled_out(value: object, shown: str) -> None:
    """A name cannot hide a part, or turn the text after it around."""
    assert text.spelled(value) == shown


def test_letters_that_look_like_others_are_spelled() -> None:
    """A Cyrillic a is not a Latin a."""
    assert text.spelling("p\u0430ypal.com") == "p\\u{430}ypal.com"
    assert text.spelling("paypal.com") == ""


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 seconds"), (1, "1 second"), (90, "1 minute"), (7200, "2 hours"), (864_000, "10 days")],
)
def test_a_duration_has_its_largest_unit(seconds: float, shown: str) -> None:
    assert text.span(seconds) == shown


@pytest.mark.parametrize("value", [None, "", "yesterday", "2026-01-01T00:00:00", {}])
def test_a_malformed_time_is_unknown(value: object) -> None:
    """The server may be newer; a page does not fail."""
    assert text.relative(value) == "unknown"
    assert text.exact(value) == ""


def test_the_state_of_a_certificate() -> None:
    """Revoked before expired; soon is the last third, at most 30 days."""

    def item(begin: float, end: float, **more: str) -> dict[str, str]:
        def moment(days: float) -> str:
            return (text.now() + datetime.timedelta(days=days)).isoformat()

        return {"notBefore": moment(begin), "notAfter": moment(end), **more}

    assert text.certificate_state(item(-1, 100)) == "Live"
    assert text.certificate_state(item(-300, 20)) == "Expires soon"
    assert text.certificate_state(item(-0.01, 1)) == "Live"
    assert text.certificate_state(item(-2, -1)) == "Expired"
    assert text.certificate_state(item(-2, -1, revoked="2026-01-01T00:00:00Z")) == "Revoked"
    held = item(-1, 9, revoked="2026-01-01T00:00:00Z", reason="certificateHold")
    assert text.certificate_state(held) == "On hold"


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_a_cell_is_no_formula(value: str) -> None:
    assert text.cell(value) == f"'{value}"
