"""A server of a few responses, and a visit to a page with it."""

from typing import Any

from orchid.features.console.api import Api
from orchid.features.console.live import Changes
from orchid.features.console.page import Viewer, Visit
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal import answering

IDENTITY = f"/apis/{ORCH.identity}/v1alpha1"
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
SEARCHES = f"{IDENTITY}/certificatesearches"


class Server(answering.Server):
    """For the transport of the console."""

    def searched(self, *items: Any, **rest: Any) -> None:
        self.on("POST", SEARCHES, {"status": {"items": list(items), **rest}})

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = "", *, accept: str = ""
    ) -> Answer:
        return Answer(*self.reply(method, target, body))

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
