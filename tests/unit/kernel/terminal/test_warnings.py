"""Warnings of the server, as a command prints them."""

from http.client import HTTPMessage
from typing import Any

import pytest

from orchid.kernel.outbound.api_connection import ApiReply
from orchid.kernel.server.respond import warning_headers
from orchid.kernel.terminal.connection import ServerConnection, _warning_text


def test_a_warning_with_quotes_is_printed_whole() -> None:
    """Names are quoted in most of them, often at the end."""
    text = 'already revoked by "a - b" and \\'
    header = warning_headers([text]).decode().removeprefix("Warning: ").removesuffix("\r\n")

    assert _warning_text(header) == text


def test_a_caller_that_expects_a_warning_does_not_print_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = HTTPMessage()
    headers["Warning"] = '299 - "already revoked"'

    class Api:
        def send(self, *_: Any) -> ApiReply:
            return ApiReply(201, b"{}", headers)

    server: Any = ServerConnection.__new__(ServerConnection)
    monkeypatch.setattr(server, "_api", Api(), raising=False)
    monkeypatch.setattr(server, "_warnings", set(), raising=False)

    server._exchange("POST", "/x", {}, warnings=False)
    assert capsys.readouterr().err == ""
    server._exchange("POST", "/x", {})
    assert capsys.readouterr().err == "warning: already revoked\n"
