"""A-labels: labels of DNS names that encode another script (RFC 5890, RFC 5891).

`is_a_label` refuses what a resolver or a browser would not show as a name: a label that decodes to
control characters or symbols, or that another label encodes as well. It is stricter than IDNA about
invisible joiners, and does not check the context of the punctuation of a script.
"""

import re
import unicodedata
from typing import Final

PREFIX: Final = "xn--"
# Signs of scripts that are neither letters nor digits (RFC 5892, appendix A and section 2.6).
_PUNCTUATION: Final = "-\u00b7\u0375\u05f3\u05f4\u0f0b\u3007\u30fb"
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)  # among letters and marks (Default_Ignorable_Code_Point)
_NOT_FOLDED: Final = str.maketrans("\u00df\u03c2", "s\u03c3")  # letters of their own since IDNA2008


def is_a_label(label: str) -> bool:
    """Whether a label with the prefix decodes to a name, and the name encodes to this label."""
    lower = label.lower()
    encoded = lower.removeprefix(PREFIX)
    try:
        name = encoded.encode("ascii").decode("punycode")
        again = name.encode("punycode").decode("ascii")
    except (UnicodeError, ValueError):
        return False
    return lower != encoded == again and not name.isascii() and _is_name(name)


def _is_name(name: str) -> bool:
    if not _is_letter(name[0]) or name.endswith("-") or name[2:4] == "--":
        return False
    plain = name.translate(_NOT_FOLDED)
    directions = {unicodedata.bidirectional(sign) for sign in name}
    return (
        all(_is_letter(sign) or _is_mark(sign) or sign in _PUNCTUATION for sign in name)
        and not _INVISIBLE.search(name)
        and unicodedata.normalize("NFKC", plain.casefold()) == plain
        and ("L" not in directions or directions.isdisjoint(("R", "AL")))
    )


def _is_letter(sign: str) -> bool:
    """Whether it is a letter or a digit."""
    category = unicodedata.category(sign)
    return category.startswith("L") or category == "Nd"


def _is_mark(sign: str) -> bool:
    """Whether it belongs to the letter before, like an accent."""
    return unicodedata.category(sign).startswith("M")
