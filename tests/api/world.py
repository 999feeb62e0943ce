"""The whole server in one process, without a socket: requests go straight into its chain.

    async with api(files) as server:
        answer = await server.call("GET", "/api/v1/namespaces/default/serviceaccounts")
        async with server.watch("/api/v1/configmaps?watch=1") as stream:
            ... await stream.next()

What a test asserts on is an `Answer`: status, headers, body. `server_files` makes the data
directory, which takes longest, once for all tests of a session.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchid.assembly import first_files, lifecycle
from orchid.assembly.server import Assembly
from orchid.assembly.settings import read
from orchid.assembly.stores import opened_audit
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.http.messages import Chunk, HttpRequest, Peer, Response
from orchid.kernel.settings.checking import check
from orchid.kernel.store.interface import Store
from orchid.kernel.store.memory import MemoryStore
from tests.conformance.exchanges import TOKENS

ADMIN, ALICE, BOB, NODE = (
    "admin-token-0001",
    "alice-token-0002",
    "bob-token-0003",
    "node-token-0006",
)
ISSUER = "https://orchid.test"
JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """A response as a client sees it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str | None:
        """The first value of a header; names are compared as HTTP does."""
        return next((v for key, v in self.headers if key.lower() == name.lower()), None)

    @property
    def warnings(self) -> list[str]:
        return [value for key, value in self.headers if key == "Warning"]


class EventStream:
    """A sink that keeps what a watcher was sent, event by event."""

    def __init__(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        self.headers = headers
        self.received = b""
        self.ended: str | None = None  # "finish" or "abort" once it is over
        self._arrived = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []

    def send(self, chunk: Chunk) -> None:
        if self.ended is None:
            self.received += chunk.data
            self._arrived.set()

    def when_taken(self, step: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(step)

    def finish(self) -> None:
        self._end("finish")

    def abort(self) -> None:
        self._end("abort")

    @property
    def closed(self) -> bool:
        return self.ended is not None

    def on_close(self, callback: Callable[[], None]) -> None:
        if self.closed:
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks.append(callback)

    def _end(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            self._arrived.set()
            for callback in self._callbacks:
                asyncio.get_running_loop().call_soon(callback)

    async def next(self) -> dict[str, Any]:
        """The next event; EOFError when the stream is over."""
        async with asyncio.timeout(10):
            while b"\n" not in self.received:
                if self.closed:
                    raise EOFError
                self._arrived.clear()
                await self._arrived.wait()
        line, _, self.received = self.received.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    async def take(self, count: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[dict[str, Any]]:
        """Every event up to the end of the stream."""
        events = []
        with contextlib.suppress(EOFError):
            while True:
                events.append(await self.next())
        return events

    def now(self) -> list[dict[str, Any]]:
        """The events that have arrived and were not taken."""
        lines, self.received = self.received.splitlines(), b""
        return [json.loads(line) for line in lines]


class Api:
    """One server, and the way to ask it."""

    def __init__(self, server: Assembly) -> None:
        self.server = server

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        peer: Peer | None = None,
        repeated: list[tuple[str, str]] | None = None,
    ) -> Answer:
        """Send one request; a body that is not bytes goes as JSON."""
        sent = {"host": "orchid.test", "user-agent": "tests/1"}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["content-type"] = JSON
        sent |= headers or {}
        answer = await self.send(method, target, sent, body or b"", peer=peer, repeated=repeated)
        if not isinstance(answer, Response):
            stream = EventStream(answer.status, parsed(answer.headers))
            answer.open(stream)
            stream.finish()
            return Answer(answer.status, stream.headers, stream.received)
        return Answer(answer.status, parsed(answer.headers), answer.body)

    async def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        peer: Peer | None = None,
        repeated: list[tuple[str, str]] | None = None,
    ) -> Any:
        """The bare way in, as the listener takes it."""
        path, _, query = target.partition("?")
        too_large = len(body) > 3 << 20
        return await self.server.chain(
            HttpRequest(
                method,
                target,
                path,
                query,
                headers,
                peer or Peer("127.0.0.1:1"),
                body=b"" if too_large else body,
                repeated=repeated or [],
                too_large=too_large,
            )
        )

    @asynccontextmanager
    async def watch(
        self, target: str, *, token: str = ADMIN, accept: str = ""
    ) -> AsyncIterator[EventStream]:
        headers = {"authorization": f"Bearer {token}"}
        if accept:
            headers["accept"] = accept
        answer = await self.send("GET", target, headers)
        assert not isinstance(answer, Response), answer.body
        stream = EventStream(answer.status, parsed(answer.headers))
        answer.open(stream)
        try:
            yield stream
        finally:
            stream.finish()

    # -- what many tests begin with --------------------------------------------------------

    async def make(self, target: str, body: Any, **more: Any) -> Any:
        """Create an object and give it back; rights that it gives count from then on."""
        answer = await self.call("POST", target, body, **more)
        assert answer.status == 201, answer.text
        await self.server.feed.fresh()
        return answer.json

    async def account(self, name: str, namespace: str = "default", **meta: Any) -> Any:
        body = {"metadata": {"name": name, **meta}}
        return await self.make(f"/api/v1/namespaces/{namespace}/serviceaccounts", body)

    async def token(self, name: str, namespace: str = "default", **spec: Any) -> str:
        target = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = await self.make(target, {"spec": {"audiences": [], **spec}})
        token: str = made["status"]["token"]
        return token


def parsed(headers: bytes) -> list[tuple[str, str]]:
    """Header lines as pairs; a line that is none would be a hole in the answer."""
    lines = headers.decode("utf-8").split("\r\n")
    assert lines.pop() == "", headers
    pairs = [line.partition(": ") for line in lines]
    assert all(name and colon for name, colon, _ in pairs), headers
    return [(name, value) for name, _, value in pairs]


def settings(directory: Path, **more: Any) -> Any:
    given = {
        "data-dir": str(directory),
        "token-auth-file": str(TOKENS),
        "store": "memory",
        "controllers": [],
        "service-account-issuer": [ISSUER],
        "api-audiences": [ISSUER],
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return check(read(None, given))


@asynccontextmanager
async def api(
    directory: Path, *, store: Store | None = None, ready: bool = True, **more: Any
) -> AsyncIterator[Api]:
    """A server with these settings over a store of its own."""
    chosen = settings(directory, **more)
    files = first_files.prepare(chosen, SystemClock().now())
    store = store or MemoryStore()
    async with opened_audit(chosen) as record:
        server = Assembly(chosen, files, store, record)
        following = asyncio.create_task(server.feed.run())
        try:
            if ready:
                await lifecycle.start(server)
            yield Api(server)
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            server.close()
            await store.close()
