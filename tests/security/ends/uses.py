"""The paths of the table: how a credential is used on each, and whether it is still accepted."""

import asyncio
import base64
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path as File
from typing import Any

from orchid.kernel.wire.naming import ORCH
from tests.api.world import Answer
from tests.e2e.https import Https
from tests.security.ends import table
from tests.security.ends.stage import CORE, ISSUER, NAMESPACE, Browser, Stage, sent
from tests.security.exchanging import exchange, review
from tests.security.test_introspection import introspect
from tests.security.test_revocations import REQUESTS, WHO
from tests.unit.kernel.credentials import samples

PATIENCE = 20.0
# Seconds: less than until the next regular check of watches (kernel/server/open_watches.py).
SOON = 8.0
WATCHED = f"{CORE}/configmaps?watch=1"
LIVE = "/live?of=credentialrevocations"

Action = Callable[[], Coroutine[Any, Any, Any]]
Accepts = Callable[[], Coroutine[Any, Any, bool]]


@dataclass
class Held:
    """A credential that somebody has, and what ends it."""

    ends: dict[table.End, Action]
    token: str = ""
    audience: str = ISSUER
    identity: File | None = None
    headers: dict[str, str] = field(default_factory=dict)
    browser: Browser | None = None
    user: str = ""
    uses: dict[table.Path, Accepts] = field(default_factory=dict)  # of its own

    def sends(self, stage: Stage, method: str, target: str, body: Any = None) -> list[Answer]:
        """The answers to a request over every connection."""
        connections = stage.callers(self.identity)
        return [
            sent(one, method, target, body, token=self.token, headers=self.headers)
            for one in connections
        ]


class Use:
    """A path that is tried by one request."""

    def __init__(self, accepts: Accepts) -> None:
        self.works = accepts

    async def is_over(self) -> bool:
        return not await self.works()

    def close(self) -> None:
        pass


class Stream(Use):
    """An answer that goes on: a watch, or the changes of an open page."""

    SHOWN = b'"type":"ADDED"'

    def __init__(self, https: Https, target: str, headers: dict[str, str], change: Action) -> None:
        self._https, self._change = https, change
        https._connection.request("GET", target, headers=headers)
        https._connection.sock.settimeout(SOON)
        self._answer: HTTPResponse = https._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    async def works(self) -> bool:  # type: ignore[override]  # a request in others
        """Whether the next change arrives."""
        await self._change()
        return any(self.SHOWN in line for line in iter(self._answer.readline, b""))

    async def is_over(self) -> bool:
        try:
            return self._answer.read() is not None
        except TimeoutError:
            return False

    def close(self) -> None:
        self._answer.close()
        self._https.close()


class OpenPage(Stream):
    """It looks for its session with the next change, which it no longer shows."""

    SHOWN = b"event: change"

    async def is_over(self) -> bool:
        await self._change()
        return await super().is_over()


class Waiting(Use):
    """Certificate requests that were sent before the end; each is approved once."""

    def __init__(self, stage: Stage, held: Held) -> None:
        self._stage = stage
        self._names = [stage.name() for _ in range(2)]
        for name in self._names:
            answer = held.sends(stage, "POST", REQUESTS, signing_request(name, "db"))[0]
            assert answer.status == 201, answer.text

    async def works(self) -> bool:  # type: ignore[override]  # a request in others
        return (await self._approved()).status == 200

    async def is_over(self) -> bool:
        answer = await self._approved()
        assert answer.status in (200, 403), answer.text
        return answer.status == 403 and "RequesterRevoked" in answer.text

    async def _approved(self) -> Answer:
        return await approve(self._stage, self._names.pop())


def signing_request(
    name: str,
    user: str,
    *groups: str,
    key: Any = None,
    signer: str = ORCH.client_signer,
    usages: tuple[str, ...] = ("client auth",),
    **more: Any,
) -> dict[str, Any]:
    request = samples.request(user, groups, key=key or samples.P256, **more)
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": signer,
        "usages": [*usages],
    }
    return {"metadata": {"name": name}, "spec": spec}


async def approve(stage: Stage, name: str) -> Answer:
    found = (await stage.call("GET", f"{REQUESTS}/{name}")).json
    condition = {"type": "Approved", "status": "True", "reason": "Test"}
    found["status"] = {"conditions": [condition]}
    return await stage.call("PUT", f"{REQUESTS}/{name}/approval", found)


async def certificate_of(stage: Stage, path: str, field_: str = "certificate") -> bytes:
    """The certificate of a request, once it is issued."""
    found = ""

    async def is_issued() -> bool:
        nonlocal found
        found = (await stage.call("GET", path)).json["status"].get(field_, "")
        return bool(found)

    assert await until(is_issued), (await stage.call("GET", path)).text
    return found.encode() if found.startswith("-----") else base64.b64decode(found)


class Listed(Use):
    """A list, which is published again after a revocation."""

    async def is_over(self) -> bool:
        return await until(self.works, wanted=False)


def opened(stage: Stage, held: Held, path: table.Path) -> Use:
    """The use of a credential on one path."""
    if path in held.uses:
        kind = Listed if path == table.LIST else Use
        return kind(held.uses[path])
    if path in (table.WATCH, table.LIVE):
        return _stream(stage, held, path)
    if path == table.WAITING:
        return Waiting(stage, held)
    return Use(lambda: _USES[path](stage, held))


def _stream(stage: Stage, held: Held, path: table.Path) -> Stream:
    async def change() -> None:
        await stage.make(f"{CORE}/configmaps", {"metadata": {"name": stage.name()}})

    async def revocation() -> None:
        spec = {"user": {"username": stage.name()}}
        path = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
        await stage.make(path, {"metadata": {"name": stage.name()}, "spec": spec})

    if path == table.LIVE:
        assert held.browser is not None
        page = stage.connection(stage.console_port)
        return OpenPage(page, LIVE, held.browser.headers("cors"), revocation)
    bearer = {"Authorization": f"Bearer {held.token}"} if held.token else {}
    headers = {**bearer, **held.headers}
    https = stage.connection(stage.ports[-1], held.identity)
    return Stream(https, WATCHED, headers, change)


async def _api(stage: Stage, held: Held) -> bool:
    """Over every connection; they must agree."""
    found = {answer.status for answer in held.sends(stage, "POST", WHO, {})}
    assert found in ({201}, {401}), found
    return found == {201}


async def _review(stage: Stage, held: Held) -> bool:
    return bool((await review(stage, held.token, held.audience)).get("authenticated"))


async def _introspection(stage: Stage, held: Held) -> bool:
    return bool((await introspect(stage, held.token)).json["active"])


async def _exchange(stage: Stage, held: Held) -> bool:
    return (await exchange(stage, held.token, account=f"{NAMESPACE}/deployer")).status == 200


async def _renewal(stage: Stage, held: Held) -> bool:
    """By the certificate of a host; the server approves it."""
    name = stage.name()
    usages = ("digital signature", "client auth")
    body = signing_request(
        name, held.user, "system:nodes", signer=ORCH.node_client_signer, usages=usages
    )
    status = held.sends(stage, "POST", REQUESTS, body)[0].status
    if status != 201:
        return False
    return bool(await certificate_of(stage, f"{REQUESTS}/{name}"))


async def _console(stage: Stage, held: Held) -> bool:
    assert held.browser is not None
    return held.browser.is_signed_in()


_USES = {
    table.API: _api,
    table.REVIEW: _review,
    table.INTROSPECTION: _introspection,
    table.EXCHANGE: _exchange,
    table.RENEWAL: _renewal,
    table.CONSOLE: _console,
}


async def until(accepts: Accepts, *, wanted: bool = True) -> bool:
    """Wait until a credential is accepted, or refused."""
    deadline = time.monotonic() + PATIENCE
    while await accepts() is not wanted:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
