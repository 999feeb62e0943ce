"""What is known of some extensions is told of those that differ in the key's identifier alone."""

import pytest

from orchid.credentials.alike_extensions import AlikeExtensions
from orchid.credentials.certificate_body import (
    ALTERNATIVE_NAMES,
    BEFORE_KEY_ID,
    KEY_ID_OCTETS,
    encode_extension,
)
from orchid.credentials.der import SEQUENCE, encode, encode_oid

ONE, OTHER = b"a" * KEY_ID_OCTETS, b"b" * KEY_ID_OCTETS
USE, FURTHER = encode_oid("1.2.3"), encode_oid("1.2.4")


def extensions(*parts: bytes) -> bytes:
    return encode(0xA3, encode(SEQUENCE, *parts))


def usual(key_id: bytes, use: bytes = b"client") -> bytes:
    before = encode_extension(USE, use)
    return extensions(before, BEFORE_KEY_ID + key_id, encode_extension(FURTHER, b"x"))


def known_after(found: bytes) -> AlikeExtensions[str]:
    known = AlikeExtensions[str]()
    known.keep(found, "kept")
    return known


def test_extensions_of_another_key_are_known() -> None:
    """They differ in the identifier, and in nothing that was found out."""
    assert known_after(usual(ONE)).get(usual(OTHER)) == "kept"


@pytest.mark.parametrize(
    "other",
    [
        usual(ONE, b"server"),
        usual(ONE) + b"\0",
        usual(ONE)[:-1] + b"y",
        usual(ONE).replace(BEFORE_KEY_ID, BEFORE_KEY_ID[:-1] + b"\x13"),
        b"",
    ],
    ids=["another use", "longer", "another end", "another length", "none"],
)
def test_extensions_that_differ_elsewhere_are_not_known(other: bytes) -> None:
    """One byte before or after the identifier may change what all of them mean."""
    assert known_after(usual(ONE)).get(other) is None


def test_a_short_identifier_is_not_taken_for_a_whole_one() -> None:
    """Bytes that end too early are not those that were found to be good."""
    whole = extensions(BEFORE_KEY_ID + ONE)

    assert known_after(whole).get(whole[:-1]) is None


def test_extensions_without_an_identifier_are_known_by_all_their_bytes() -> None:
    """There is nothing in which they may differ."""
    found = extensions(encode_extension(USE, b"client"))

    assert known_after(found).get(found) == "kept"
    assert known_after(found).get(extensions(encode_extension(USE, b"server"))) is None


def test_what_looks_like_an_identifier_inside_another_extension_is_not_kept() -> None:
    """Whatever follows it there may be the beginning of something that has a meaning."""
    found = extensions(encode_extension(USE, BEFORE_KEY_ID), encode_extension(FURTHER, ONE))

    assert known_after(found).get(found) is None


def test_alternative_names_are_not_kept() -> None:
    """They would push out what many certificates have in common."""
    found = extensions(BEFORE_KEY_ID + ONE, encode_extension(ALTERNATIVE_NAMES, b"a.example"))

    assert known_after(found).get(found) is None


def test_only_so_many_are_kept() -> None:
    """Whoever sends ever new extensions does not fill the memory."""
    known = AlikeExtensions[int]()
    many = [usual(ONE, number.to_bytes(2, "big")) for number in range(1000)]
    for number, found in enumerate(many):
        known.keep(found, number)

    still = [number for number, found in enumerate(many) if known.get(found) is not None]

    assert 999 in still
    assert len(still) <= 64


def test_very_long_extensions_are_not_kept() -> None:
    """The memory is bounded in bytes too."""
    found = usual(ONE, b"x" * 2000)

    assert known_after(found).get(found) is None
