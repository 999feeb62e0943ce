"""Calls to the server as the user of the console, with decoded responses.

`Api` takes a transport: HTTPS with the credential of a kubeconfig, or the chain of a server in this
process with the credential of a session. A refused call raises `Refused` with the Status of the
server. Nothing is cached, except the set of names that the server uses.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec

from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.api_connection import SUCCESS, find_naming, path
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.outbound.https_client import Pieces, ServerRefused
from orchid.kernel.wire.naming import Naming

JSON: Final = "application/json"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
VERSION: Final = "v1alpha1"
SHORT: Final = 16 * 1024  # bytes that are decoded on the event loop

Json = dict[str, Any]


class UserTransport(Protocol):
    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = JSON, *, accept: str = ""
    ) -> Answer:
        """Send a request and return the complete response; raises CallFailed.

        `accept`: the wanted form of the response, if it is not JSON.
        """

    def stream(self, target: str) -> AbstractAsyncContextManager[Pieces]:
        """Open a stream; raises ServerRefused unless the response is a success."""


class Refused(Exception):
    """The server refused a call."""

    def __init__(self, status: int, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.details = details or {}


class Unreachable(Exception):
    """The server gave no usable response."""


class Api:
    """The API of one server, as one user."""

    def __init__(self, transport: UserTransport, naming: Naming | None = None) -> None:
        """`names`: the set of names of the server, if it is known."""
        self._transport = transport
        self._naming = naming

    async def naming(self) -> Naming:
        """The set of names that the server uses, detected by its API groups."""
        if self._naming is None:
            groups = (await self.get("/apis")).get("groups") or ()
            naming = find_naming(str(each.get("name", "")) for each in groups)
            if naming is None:
                raise Unreachable("the server has no API group that this console knows")
            self._naming = naming
        return self._naming

    # -- paths -----------------------------------------------------------------------------

    async def requests(self, *parts: str) -> str:
        naming = await self.naming()
        return path("apis", naming.certificates, "v1", "certificatesigningrequests", *parts)

    async def identity(self, plural: str, *parts: str) -> str:
        """A kind of the product's own group."""
        return path("apis", (await self.naming()).identity, VERSION, plural, *parts)

    async def group(self, word: str, version: str, *parts: str) -> str:
        return path("apis", (await self.naming()).group(word), version, *parts)

    # -- calls -----------------------------------------------------------------------------

    async def get(self, target: str, query: Mapping[str, str] | None = None) -> Json:
        return await self._json("GET", f"{target}?{urlencode(query)}" if query else target)

    async def post(self, target: str, body: Json) -> Json:
        return await self._json("POST", target, body)

    async def put(self, target: str, body: Json) -> Json:
        return await self._json("PUT", target, body)

    async def delete(self, target: str, body: Json) -> Json:
        return await self._json("DELETE", target, body)

    async def table(self, target: str, query: Mapping[str, str]) -> tuple[Json, int]:
        """A page of a list as a Table, and its bytes: rows are short, whatever objects are."""
        accept = f"{JSON};as=Table;v=v1;g={(await self.naming()).meta}"
        return await self.page(target, query, accept)

    async def page(
        self, target: str, query: Mapping[str, str], accept: str = ""
    ) -> tuple[Json, int]:
        """A page of a list, and its bytes."""
        answer = await self._send("GET", f"{target}?{urlencode(query)}", accept=accept)
        return await _value(answer), len(answer.body)

    async def items(
        self, target: str, query: Mapping[str, str] | None = None, *, most: int
    ) -> tuple[list[Json], bool]:
        """The first items of a list, and whether there are more."""
        page = await self.get(target, {**(query or {}), "limit": str(most)})
        return list(page.get("items") or ()), bool(page.get("metadata", {}).get("continue"))

    async def raw(self, target: str) -> tuple[int, bytes]:
        """A page that is no object, whatever its status."""
        answer = await self._send("GET", target)
        return answer.status, answer.body

    def stream(self, target: str) -> AbstractAsyncContextManager[Pieces]:
        return self._transport.stream(target)

    async def _json(self, method: str, target: str, body: Json | None = None) -> Json:
        data = b"" if body is None else json.dumps(body).encode()
        return await _value(await self._send(method, target, data))

    async def _send(
        self, method: str, target: str, data: bytes = b"", *, accept: str = ""
    ) -> Answer:
        try:
            if accept:
                return await self._transport.send(method, target, data, accept=accept)
            return await self._transport.send(method, target, data)
        except CallFailed as problem:
            raise Unreachable(str(problem)) from None


async def _value(answer: Answer) -> Json:
    """The object in a response; a long one is decoded beside the event loop."""
    if len(answer.body) <= SHORT:
        value = decoded(answer.body)
    else:
        value = await asyncio.to_thread(decoded, answer.body)
    if answer.status not in SUCCESS:
        said = str(value.get("message") or f"the server answered with status {answer.status}")
        raise Refused(answer.status, said, value.get("details") or {})
    return value


def decoded(data: bytes) -> Json:
    """A JSON object; empty for anything else."""
    try:
        value = msgspec.json.decode(data) if data else {}
    except (ValueError, msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


__all__ = ["Api", "Json", "Refused", "ServerRefused", "Unreachable", "UserTransport", "decoded"]
