"""Plain requests to a server under test, with nothing between us and the bytes.

    with Https(port) as server:
        server.send("GET", "/version").json

`send` gives the whole answer to one request, `events` the events of a watch. Bodies are JSON unless
they are bytes already.
"""

import http.client
import json
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
    """A client with one connection to a loopback port; it does not verify the server.

    `identity` is a file with a client certificate and its key.
    """

    def __init__(
        self, port: int, identity: Path | None = None, *, seconds: float = SECONDS
    ) -> None:
        tls = ssl._create_unverified_context()  # noqa: S323 -- it is our own server
        if identity is not None:
            tls.load_cert_chain(identity)
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", port, context=tls, timeout=seconds
        )

    def send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request. Whatever goes wrong is raised, and the next one starts afresh."""
        sent = {"Content-Type": "application/json", **_bearer(token), **(headers or {})}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self._connection.request(method, target, body=data, headers=sent)
            answer = self._connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        except BaseException:
            self.close()
            raise

    def events(self, target: str, *, token: str = "") -> Generator[Any, None, None]:
        """Yield the events of a watch until the server ends it or the caller stops."""
        try:
            self._connection.request("GET", target, headers=_bearer(token))
            with self._connection.getresponse() as answer:
                assert answer.status == http.client.OK, answer.read()
                while line := answer.readline():
                    yield json.loads(line)
        finally:
            self.close()  # an answer that was not read to its end stands in the way of the next

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}
