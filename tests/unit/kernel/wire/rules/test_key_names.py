"""The names of SigningKeys."""

import pytest

from orchid.kernel.wire.rules.key_names import is_key_name, next_name, number_of

LONG = "a" * 253


def test_the_next_number_follows_the_greatest() -> None:
    """Gaps are not filled: a name is not given again while a later key exists."""
    assert next_name({}) == "tokens-1"
    assert next_name({"tokens-1": "", "tokens-7": ""}) == "tokens-8"
    assert next_name({"tokens-7": "", "web-2": "web"}, "web") == "web-3"


def test_the_name_of_another_key_is_skipped() -> None:
    """Also that of a key of an authority with such a name, which an earlier version accepted."""
    assert next_name({"tokens-1": "tokens"}) == "tokens-2"
    assert next_name({"tokens-1": "tokens", "tokens-2": ""}) == "tokens-3"
    assert next_name({"web-1": "other"}, "web") == "web-2"


def test_the_key_of_an_authority_never_has_the_name_of_an_authority() -> None:
    """Both would have one revocation list; token keys have none."""
    assert next_name({}, "web", {"web", "web-1", "web-2"}) == "web-3"
    assert next_name({}, "", {"tokens-1"}) == "tokens-1"


def test_a_long_name_is_cut() -> None:
    """With the number, it has at most 253 characters."""
    assert next_name({}, LONG) == f"{LONG[:240]}-1"
    assert is_key_name(f"{LONG[:240]}-1", LONG)
    assert next_name({f"{LONG[:240]}-1": LONG[:250]}, LONG) == f"{LONG[:240]}-2"


@pytest.mark.parametrize(
    ("name", "authority", "may_be"),
    [
        ("tokens-3", "", True),
        ("tokens-3", "tokens", True),
        ("web-3", "web", True),
        ("web-1-1", "web-1", True),
        ("web-999999999", "web", True),
        ("web-1-1", "web", False),
        ("web-3", "", False),
        ("web", "web", False),
        ("web-", "web", False),
        ("web-0", "web", False),
        ("web-03", "web", False),
        ("web-x", "web", False),
        ("web-1000000000", "web", False),
        ("webs-3", "web", False),
        ("tokens", "", False),
        ("3", "", False),
    ],
)
def test_a_key_may_have_the_name_of_its_authority_with_a_number(
    name: str, authority: str, *, may_be: bool
) -> None:
    """Without leading zeros."""
    assert is_key_name(name, authority) == may_be


def test_the_number_is_at_the_end() -> None:
    """Zero if there is none."""
    assert [number_of(name) for name in ("web-1-12", "web", "7", "web-x")] == [12, 0, 0, 0]
