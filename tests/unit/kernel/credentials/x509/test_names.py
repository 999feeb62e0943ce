"""Names: the fast path for ASCII must agree with the full check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials.x509 import der, names

ASCII = st.text(st.characters(max_codepoint=127), max_size=20)


@pytest.mark.parametrize("code", range(128))
def test_control_characters_are_the_same_with_other_letters_beside_them(code: int) -> None:
    """One letter beyond ASCII has every character looked up; the verdict stays."""
    text = chr(code)

    assert names.has_control_characters(text) == names.has_control_characters(text + "é")


@given(ASCII, ASCII)
def test_groups_with_invisible_characters_are_normalized_consistently(one: str, other: str) -> None:
    """A soft hyphen, which counts for nothing, has a group compared character by character."""
    for left, right in ((one, one), (one, other), (one, f" {one.upper()} ")):
        short = names.reserved_among([left], [right])
        long = names.reserved_among([f"{left}\u00ad"], [f"\u00ad{right}"])

        assert (short is None) == (long is None)


PRINTABLE = " '()+,-./:=?"  # ITU-T X.680, with letters and digits


@pytest.mark.parametrize("sign", [chr(code) for code in range(0x20, 0x7F)])
def test_only_printable_characters_make_a_printable_string(sign: str) -> None:
    """All others, `@`, `&`, `*` and `_` too, are written as UTF8String."""
    encoded = names.subject(f"a{sign}").encode()

    is_printable = sign.isalnum() or sign in PRINTABLE
    tag = 0x13 if is_printable else 0x0C
    assert encoded.endswith(der.encode(tag, f"a{sign}".encode()))
