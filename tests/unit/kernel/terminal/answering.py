"""A server of a few responses, for pages of the console and for commands."""

import contextlib
import json
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest

from orchid import cli
from orchid.kernel.outbound.api_connection import ApiReply
from orchid.kernel.terminal import connection
from orchid.kernel.wire.naming import ORCH

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: ann}}]
clusters: [{name: c, cluster: {server: "https://orchid.test"}}]
users: [{name: ann, user: {token: secret}}]
"""
GROUPS = {"groups": [{"name": ORCH.authentication}, {"name": ORCH.identity}]}


class Server:
    """Answers by method and path; what it has no answer for is 404. Records each call."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.get("/apis", GROUPS)
        self.get("/version", {"gitVersion": "v1.36.0+orchid.1.0.0"})

    def get(self, path: str, answer: Any, status: int = 200) -> None:
        self.answers["GET", path] = (status, answer)

    def on(self, method: str, path: str, answer: Any, status: int = 200) -> None:
        """An object, or a function of what was sent, which may return a status with it."""
        self.answers[method, path] = (status, answer)

    def listed(self, path: str, *items: Any, field: str = "items", **rest: Any) -> None:
        self.get(path, {field: [*items], "metadata": {}, **rest})

    def sent(self, method: str, path: str = "") -> list[Any]:
        return [body for used, target, body in self.calls if used == method and path in target]

    def reply(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        given = json.loads(body) if body else dict(parse_qsl(query))
        self.calls.append((method, unquote(path), given))
        status, answer = self.answers.get((method, unquote(path)), (404, {"message": f"no {path}"}))
        if callable(answer):
            answer = answer(given)
            status, answer = answer if isinstance(answer, tuple) else (status, answer)
        return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


class Connection:
    """The connection of a command to such a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def send(self, method: str, url: str, body: Any = None, headers: Any = None) -> ApiReply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
        return ApiReply(*self._server.reply(method, url, data), HTTPMessage())

    def close(self) -> None:
        pass


@contextlib.contextmanager
def commands(server: Server, directory: Path) -> Iterator[Callable[..., int]]:
    """A function that runs a command with that server."""
    file = directory / "test.kubeconfig"
    file.write_text(KUBECONFIG)
    file.chmod(0o600)

    def run(*words: object) -> int:
        return cli.main([*map(str, words), "--kubeconfig", str(file)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "ApiConnection", lambda _access: Connection(server))
        yield run
