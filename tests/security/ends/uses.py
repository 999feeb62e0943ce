"""The paths of the table: how a credential is used on each, and whether it is still accepted."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path as File
from typing import Any

from tests.e2e.https import Https
from tests.security.ends import table
from tests.security.ends.stage import CORE, NAMESPACE, Browser, Stage, sent
from tests.security.exchanging import exchange, review
from tests.security.test_introspection import introspect
from tests.security.test_revocations import WHO

PATIENCE = 20.0
SOON = 8.0  # seconds: less than until the next regular check of watches (server/open_watches.py)
WATCHED = f"{CORE}/configmaps?watch=1"
LIVE = "/live?of=credentialrevocations"

Action = Callable[[], Coroutine[Any, Any, Any]]
Accepts = Callable[[], Coroutine[Any, Any, bool]]


@dataclass
class Held:
    """A credential that somebody has, and what ends it."""

    ends: dict[str, Action]
    token: str = ""
    audience: str = ""
    identity: File | None = None
    browser: Browser | None = None
    uses: dict[table.Path, Accepts] = field(default_factory=dict)  # of its own


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


def opened(stage: Stage, held: Held, path: table.Path) -> Use:
    """The use of a credential on one path."""
    if path in held.uses:
        return Use(held.uses[path])
    if path in (table.WATCH, table.LIVE):
        return _stream(stage, held, path)
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
    headers = {"Authorization": f"Bearer {held.token}"} if held.token else {}
    https = stage.connection(stage.ports[-1], held.identity)
    return Stream(https, WATCHED, headers, change)


async def _api(stage: Stage, held: Held) -> bool:
    """Over every connection; they must agree."""
    found = {
        sent(one, "POST", WHO, {}, token=held.token).status for one in stage.callers(held.identity)
    }
    assert found in ({201}, {401}), found
    return found == {201}


async def _review(stage: Stage, held: Held) -> bool:
    return bool((await review(stage, held.token, held.audience)).get("authenticated"))


async def _introspection(stage: Stage, held: Held) -> bool:
    return bool((await introspect(stage, held.token)).json["active"])


async def _exchange(stage: Stage, held: Held) -> bool:
    return (await exchange(stage, held.token, account=f"{NAMESPACE}/deployer")).status == 200


async def _console(stage: Stage, held: Held) -> bool:
    assert held.browser is not None
    return held.browser.is_signed_in()


_USES = {
    table.API: _api,
    table.REVIEW: _review,
    table.INTROSPECTION: _introspection,
    table.EXCHANGE: _exchange,
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
