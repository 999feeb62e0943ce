"""Requests as bytes to one server, over a connection that is kept: `Client`."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

SECONDS = 30.0


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes


class Client:
    """Does not verify the server: use it only for servers on the same machine."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(url)
        tls = ssl._create_unverified_context()  # noqa: S323 -- it is our own server
        host, port = parts.hostname or "", parts.port or 443
        self._connection = http.client.HTTPSConnection(host, port, context=tls, timeout=SECONDS)

    def send(self, request: Request) -> Answer:
        """Send one request; a connection that the server closed meanwhile is opened again."""
        try:
            return self._sent(request)
        except (http.client.HTTPException, ConnectionError):
            self._connection.close()
            return self._sent(request)

    def close(self) -> None:
        self._connection.close()

    def _sent(self, request: Request) -> Answer:
        line: Any = self._connection
        line.putrequest(request.method, request.target, skip_accept_encoding=True)
        for name, value in request.headers.items():
            line.putheader(name, value.encode())
        if request.body is not None:
            line.putheader("Content-Length", str(len(request.body)))
        line.endheaders(request.body)
        answer = line.getresponse()
        return Answer(answer.status, _lowered(answer.getheaders()), answer.read())


def _lowered(headers: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        found[key] = f"{found[key]}\n{value}" if key in found else value
    return found
