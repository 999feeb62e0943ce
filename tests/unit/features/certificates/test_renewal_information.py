"""Identifiers of certificates (RFC 9773 section 4.1): one form each, all else is refused."""

import pytest

from orchid.features.certificates.renewal_information import MalformedId, certificate_id, parse_id

# The example of RFC 9773 section 4.1.
KEY, SERIAL = "aYhba4dGQEHhs3uEe6CuLN4ByNQ", "AIdlQyE"


def test_the_example_of_the_standard_is_read_and_written() -> None:
    """The serial number keeps the zero byte that DER puts before a high bit."""
    authority_key, serial = parse_id(f"{KEY}.{SERIAL}")

    assert authority_key.hex() == "69885b6b87464041e1b37b847ba0ae2cde01c8d4"
    assert serial.hex() == "0087654321"
    assert certificate_id(authority_key, serial) == f"{KEY}.{SERIAL}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        KEY,
        f"{KEY}.",
        f".{SERIAL}",
        f"{KEY}.{SERIAL}=",
        f"{KEY}.{SERIAL}.x",
        f"{KEY}/{SERIAL}",
        "a+b/.AA",
        f"{KEY}.AIdlQyF",  # stray bits at the end
        f"{KEY}.AAE",  # not DER: a zero byte before 1
        f"{KEY}.AAA",
        f"{KEY}.ä",
        f"{KEY}.{'A' * 200}",
    ],
)
def test_everything_else_is_malformed(text: str) -> None:
    """So that no certificate has two identifiers."""
    with pytest.raises(MalformedId):
        parse_id(text)
