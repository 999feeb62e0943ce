"""An API server in memory for commands: it lists what it has and records what changes."""

import json
from collections.abc import Iterator
from typing import Any

from orchid.kernel.terminal.connection import CommandRefused
from orchid.kernel.wire.naming import ORCH

Json = dict[str, Any]
END, PAST = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


class ApiServer:
    """Objects by the last word of their URL, lists by it and the field selector."""

    naming = ORCH

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.lists: dict[str, list[Json]] = {}  # by plural, or by plural and selector
        self.refusals: dict[str, CommandRefused] = {}  # by method and the end of the URL
        self.changes: list[tuple[str, str, Json]] = []
        self.warned = 0  # posts of which warnings are printed

    def group(self, word: str, version: str, *parts: str) -> str:
        return "/".join((word, version, *parts))

    def _refuse(self, method: str, url: str) -> None:
        for where, refusal in self.refusals.items():
            if f"{method} {url}".startswith(where.partition(" ")[0]) and url.endswith(
                where.partition(" ")[2]
            ):
                raise refusal

    def get(self, url: str) -> Json:
        self._refuse("get", url)
        name = url.rsplit("/", 1)[-1]
        if name not in self.objects:
            raise CommandRefused(404, f"{name} not found")
        return self.objects[name]

    def data(self, url: str, *, absent: int = 0) -> bytes:
        try:
            return json.dumps({"metadata": {}, **self.get(url)}).encode()
        except CommandRefused as refusal:
            if refusal.status != absent:
                raise
            return b""

    def items(self, url: str, query: dict[str, str] | None = None) -> Iterator[Json]:
        self._refuse("items", url)
        plural, selector = url.rsplit("/", 1)[-1], (query or {}).get("fieldSelector", "")
        return iter(self.lists.get(f"{plural}?{selector}" if selector else plural, []))

    def post(self, url: str, body: Json, *, warnings: bool = True) -> Json:
        self._refuse("post", url)
        self.warned += warnings
        self.changes.append(("post", url.rsplit("/", 1)[-1], body))
        return {**body, "metadata": {"name": f"made-{len(self.changes)}"}}

    def delete(self, url: str) -> None:
        self._refuse("delete", url)
        self.changes.append(("delete", url.rsplit("/", 1)[-1], {}))


def record(serial: str, **spec: Any) -> Json:
    """A valid certificate of the inventory."""
    full = {"serialNumber": serial, "signerName": "example.com/web", "notAfter": END, **spec}
    return {"metadata": {"name": serial}, "spec": {"username": "", **full}}
