"""Requests of users, of thieves and of the administrator, each over connections of its own.

An `Answer` is what a client sees: a status and bytes. Nothing of Orchid's own code is used here.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 60.0
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """The status of an answer, 0 if there was none, and its body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] | None = None

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def is_done(self) -> bool:
        return self.status in (200, 201, 202)

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty if there is none."""
        found = {key.lower(): value for key, value in (self.headers or {}).items()}
        return found.get(name, "")

    @property
    def message(self) -> str:
        document = self.json
        return str(document.get("message", ""))[:300] if isinstance(document, dict) else ""


@dataclass(frozen=True)
class Proof:
    """How a client proves who it is: by a token, or by a certificate with its key in files."""

    token: str = ""
    chain: Path | None = None
    key: Path | None = None


def context(proof: Proof) -> ssl.SSLContext:
    tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested
    if proof.chain is not None:
        tls.load_cert_chain(proof.chain, proof.key)
    return tls


class Connections:
    """One open connection for each server and client; a closed one is opened again."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, Proof], http.client.HTTPSConnection] = {}

    def ask(
        self,
        port: int,
        proof: Proof,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = JSON,
    ) -> Answer:
        """Send a request; the status is 0 if the server has stopped, and 504 if it is silent."""
        headers = {"Content-Type": content}
        if proof.token:
            headers["Authorization"] = f"Bearer {proof.token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        for _ in range(2):  # the server may have closed an idle connection
            try:
                return self._exchange(port, proof, method, path, data, headers)
            except TimeoutError:
                self.drop(port, proof)
                return Answer(504)
            except (http.client.HTTPException, OSError):
                self.drop(port, proof)
        return Answer(0)

    def _exchange(
        self,
        port: int,
        proof: Proof,
        *request: Any,  # method, path, body and headers
    ) -> Answer:
        connection = self._open.get((port, proof))
        if connection is None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", port, context=context(proof), timeout=ANSWER_SECONDS
            )
            self._open[port, proof] = connection
        connection.request(*request)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.getheaders()))

    def drop(self, port: int, proof: Proof) -> None:
        connection = self._open.pop((port, proof), None)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def close(self) -> None:
        for port, proof in list(self._open):
            self.drop(port, proof)
