"""Plain requests to a server under test, with nothing between us and the bytes.

`Https(port).send(...)` opens a connection, sends one request and gives the whole answer. Bodies are
JSON unless they are bytes already.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SECONDS = 20.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Https:
    """A client that trusts whoever answers on a loopback port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tls = ssl._create_unverified_context()  # noqa: S323 -- it is our own server

    def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {"Content-Type": "application/json", **(headers or {})}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=SECONDS
        )
        try:
            connection.request(method, target, body=data, headers=sent)
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()
