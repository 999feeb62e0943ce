"""The answer of a handler, before the headers that every answer has."""

from typing import Any

import msgspec


class Reply(msgspec.Struct, frozen=True):
    """A code, a document or bytes, and headers."""

    code: int = 200
    document: dict[str, Any] | None = None
    body: bytes = b""
    media: str = "application/json"
    location: str = ""
    headers: bytes = b""

    def encoded(self) -> bytes:
        return self.body if self.document is None else msgspec.json.encode(self.document)
