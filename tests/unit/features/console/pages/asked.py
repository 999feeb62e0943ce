"""A server of a few responses, and a visit to a page with it."""

import json
from typing import Any
from urllib.parse import parse_qsl

from orchid.features.console.api import Api
from orchid.features.console.live import Changes
from orchid.features.console.page import Viewer, Visit
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.naming import ORCH

IDENTITY = f"/apis/{ORCH.identity}/v1alpha1"
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
SEARCHES = f"{IDENTITY}/certificatesearches"


class Server:
    """Answers by method and path; what it has no answer for is 404. Records each call."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, str, Any]] = []

    def get(self, path: str, answer: Any, status: int = 200) -> None:
        self.answers["GET", path] = (status, answer)

    def on(self, method: str, path: str, answer: Any, status: int = 200) -> None:
        """An object, or a function of what was sent, which may return a status with it."""
        self.answers[method, path] = (status, answer)

    def listed(self, path: str, *items: Any, field: str = "items", **rest: Any) -> None:
        self.get(path, {field: [*items], "metadata": {}, **rest})

    def searched(self, *items: Any, **rest: Any) -> None:
        self.on("POST", SEARCHES, {"status": {"items": list(items), **rest}})

    def sent(self, method: str, path: str = "") -> list[Any]:
        return [body for used, target, body in self.calls if used == method and path in target]

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = "", *, accept: str = ""
    ) -> Answer:
        path, _, query = target.partition("?")
        given = json.loads(body) if body else dict(parse_qsl(query))
        self.calls.append((method, path, given))
        status, answer = self.answers.get((method, path), (404, {"message": f"no {path}"}))
        if callable(answer):
            answer = answer(given)
            status, answer = answer if isinstance(answer, tuple) else (status, answer)
        return Answer(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def stream(self, target: str) -> Any:
        raise NotImplementedError


def forbidden(kind: str) -> dict[str, Any]:
    return {"message": f"no right to {kind}", "details": {"kind": kind}}


def visit(server: Any, path: str = "/", **fields: Any) -> Visit:
    viewer = fields.pop("viewer", None) or Viewer(Api(server, ORCH), Changes(), "https://server")
    given = {"names": {}, "query": {}, "user": {"username": "ann"}, **fields}
    return Visit(viewer, "/console", path, **given)


def object_of(name: str, created: str = "", **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "creationTimestamp": created, **fields.pop("metadata", {})}
    return {"metadata": meta, **fields}
