"""Warnings of the server, as a command prints them."""

from orchid.kernel.server.respond import warning_headers
from orchid.kernel.terminal.connection import _warning_text


def test_a_warning_with_quotes_is_printed_whole() -> None:
    """Names are quoted in most of them, often at the end."""
    text = 'already revoked by "a - b" and \\'
    header = warning_headers([text]).decode().removeprefix("Warning: ").removesuffix("\r\n")

    assert _warning_text(header) == text
