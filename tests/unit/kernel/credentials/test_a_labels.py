"""A-labels: each decodes to one name, which another program shows as a name."""

import pytest

from orchid.kernel.credentials.a_labels import is_a_label


def encoded(name: str) -> str:
    return "xn--" + name.encode("punycode").decode()


@pytest.mark.parametrize(
    "name",
    [
        "bücher",
        "straße",
        "σοφος",
        "σοφός",
        "пример",
        "日本語",
        "アー・ア",
        "paral·lel",
        "ދިވެހި",
        "א1",
        "9é",
        "é-9",
    ],
)
def test_names_of_any_script_are_accepted(name: str) -> None:
    """Letters, digits, accents, and the punctuation of a script, also in capitals."""
    assert is_a_label(encoded(name))
    assert is_a_label(encoded(name).upper())


@pytest.mark.parametrize(
    "label",
    [
        "xn--a",  # U+0080
        "xn--0",  # incomplete
        "xn--99999999",  # beyond Unicode
        "xn--bücher",
        "xn--",
        "xn--abc-",  # nothing to encode
        "ab--" + "bücher".encode("punycode").decode(),
        "bcher-kva",
    ],
)
def test_labels_that_encode_nothing_are_refused(label: str) -> None:
    """`xn--a` decodes to a control character."""
    assert not is_a_label(label)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("é\u0000", "control character"),
        ("a\u2044b", "symbol that looks like a slash"),
        ("é/b", "separator"),
        ("é.b", "dot"),
        ("é b", "space"),
        ("💩", "symbol"),
        ("é²", "another form of a digit"),
        ("ⅻ", "number that is no digit"),
        ("Ü", "capital, which is the name of ü"),
        ("ﬁn", "ligature"),
        ("a\u0301", "two characters for á"),
        ("\u0301a", "accent of nothing"),
        ("-é", "dash at the beginning"),
        ("é-", "dash at the end"),
        ("xn--é", "encoded twice"),
        ("a\u200db", "joiner"),
        ("ab\u034fc", "invisible mark"),
        ("ab\u115fc", "invisible letter"),
        ("é\ufe0f", "variant of a sign"),
        ("אa", "letters in two directions"),
        ("عa", "letters in two directions, Arabic"),
        ("\ud800", "half a character"),
    ],
)
def test_names_that_idna_refuses_are_refused(name: str, why: str) -> None:
    assert not is_a_label(encoded(name)), why
