"""Clients at work: they write, read, list and watch a few shared objects, and note everything.

Start with `Workload.run`. What each client intends (`intents`) follows from the seed alone; what
comes of it depends on the others and on the faults. Writes are compare-and-swaps on what the
clients know, so they collide. A request is sent once: one without an answer stays unknown, for
the checker to find out.

The objects are ServiceAccounts of one namespace, whose deletion answers its revision, with a value
in an annotation. A `Way` is how requests get to a server: over TLS, or straight into its chain.
"""

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import httpx

from tests.faults.history import (
    ABSENT,
    Call,
    Event,
    History,
    Outcome,
    Segment,
    Version,
    Watcher,
)

NAMESPACE = "faults"
TARGET = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
KEYS = tuple(f"k{number}" for number in range(8))
END = "end"  # written when all is over: who has seen it has seen everything
ANSWER_SECONDS = 4.0
# Once connected. A cancelled handshake leaves its socket open (httpcore).
ENDLESS = httpx.Timeout(None, connect=ANSWER_SECONDS)
LONGEST_PAUSE = 0.05
AFTER_TROUBLE = 0.25
LONGEST_SESSION = 4  # seconds of one watch
PATIENCE = 30.0

DONE, REFUSED = (200, 201), (404, 409)
OPEN = (410, 429, 503, 504)  # nothing is known of what was asked
GONE = 410

ACTIONS = {
    "put": 42,
    "erase": 8,
    "create": 3,
    "get": 22,
    "list": 12,
    "list in pages": 5,
    "list as it was": 4,
    "list of any age": 4,
}


class Lost(Exception):
    """No answer, or only a part of one."""


class Way(Protocol):
    """How requests get to a server."""

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """Give status and answer; raises Lost."""
        ...

    def watch(self, target: str) -> AsyncGenerator[Any, None]:
        """Give event after event until the server ends it; raises Lost."""
        ...


class Intent(NamedTuple):
    """The next intention of a client, whatever it finds."""

    action: str
    key: str
    way: int
    pause: float


def intents(seed: int, client: int) -> Iterator[Intent]:
    """Everything that a client means to do, without end; the same for the same seed."""
    rng = random.Random(f"{seed}/client/{client}")
    names, weights = list(ACTIONS), list(ACTIONS.values())
    while True:
        [action] = rng.choices(names, weights)
        # Every other call follows at once, by another way: when a stale answer is most likely.
        pause = rng.choice((0.0, rng.random() * LONGEST_PAUSE))
        yield Intent(action, rng.choice(KEYS), rng.randrange(1000), pause)


class Known(NamedTuple):
    """The newest that any client has learnt of a key."""

    learnt: int  # at this revision of the store
    revision: int  # ABSENT: it was not there


NOTHING = Known(ABSENT, ABSENT)


@dataclass
class Workload:
    """Some clients and watchers with the same ways to the same objects."""

    ways: Sequence[Way]
    history: History
    seed: int
    clients: int = 6
    watchers: int = 3
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._intents: dict[int, Iterator[Intent]] = {}
        self._written = 0
        self._actions: dict[str, Callable[[int, Intent], Coroutine[Any, Any, Call]]] = {
            "put": self._put,
            "erase": self._erase,
            "create": self._create,
            "get": self._get,
            "list": self._list,
            "list in pages": self._list_in_pages,
            "list as it was": self._list_as_it_was,
            "list of any age": self._list_of_any_age,
        }

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Have watchers follow from now on; at the end, they may go on until they know all."""
        begun = await self._until_done(lambda intent: self._list(0, intent))
        watchers = [Watcher(n, [Segment(begun.revision)]) for n in range(self.watchers)]
        self.history.watchers.extend(watchers)
        following = [asyncio.create_task(self._follow(watcher)) for watcher in watchers]
        try:
            yield
            self.history.end = (await self._until_done(self._mark)).revision
            await asyncio.wait(following, timeout=PATIENCE)
        finally:
            for task in following:
                task.cancel()
            ended = await asyncio.gather(*following, return_exceptions=True)
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    async def run(self, stop: asyncio.Event, most: int | None = None) -> None:
        """Run until `stop` is set, or until each client has made so many calls."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(1, self.clients + 1):
                tasks.create_task(self._work(number, stop, most))

    async def look(self) -> None:
        """List once more by every way: all of them must show everything by now."""
        for number in range(len(self.ways)):
            await self._until_done(lambda intent: self._list(0, intent), first=number)

    async def _work(self, client: int, stop: asyncio.Event, most: int | None) -> None:
        meant = self._intents.setdefault(client, intents(self.seed, client))
        for count, intent in enumerate(meant):
            if stop.is_set() or count == most:
                return
            call = await self._actions[intent.action](client, intent)
            trouble = AFTER_TROUBLE if call.outcome is Outcome.UNKNOWN else 0.0
            await asyncio.sleep(intent.pause + trouble)

    async def _until_done(
        self, act: Callable[[Intent], Coroutine[Any, Any, Call]], first: int = 0
    ) -> Call:
        """Do one thing by one way after the other until it is done."""
        deadline = time.monotonic() + PATIENCE
        turn = first
        while (call := await act(Intent("", END, turn, 0.0))).outcome is not Outcome.DONE:
            if time.monotonic() > deadline:
                raise Lost(f"still not done: {call}")
            turn += 1
            await asyncio.sleep(AFTER_TROUBLE)
        return call

    # Writing

    async def _put(self, client: int, intent: Intent) -> Call:
        expected = self._known.get(intent.key, NOTHING).revision
        if expected == ABSENT:
            return await self._create(client, intent)
        call = Call(client, "update", intent.key, self._new_value(), expected)
        meta = {"resourceVersion": str(expected), "annotations": {"value": call.value}}
        return await self._write(call, intent, "PUT", f"{TARGET}/{call.key}", meta)

    async def _create(self, client: int, intent: Intent) -> Call:
        call = Call(client, "create", intent.key, self._new_value())
        meta = {"name": call.key, "annotations": {"value": call.value}}
        return await self._write(call, intent, "POST", TARGET, meta)

    async def _erase(self, client: int, intent: Intent) -> Call:
        expected = self._known.get(intent.key, NOTHING).revision
        if expected == ABSENT:
            return await self._get(client, intent)
        call = Call(client, "delete", intent.key, expected=expected)
        body = {"preconditions": {"resourceVersion": str(expected)}}
        answer = await self._send(call, intent, "DELETE", f"{TARGET}/{call.key}", body)
        if call.outcome is Outcome.DONE:
            call.revision = revision_of(answer)
            self._learn(call.key, call.revision, ABSENT)
        return await self._learn_refusal(call, intent)

    async def _write(
        self, call: Call, intent: Intent, method: str, target: str, meta: dict[str, Any]
    ) -> Call:
        answer = await self._send(
            call, intent, method, target, {"metadata": {"name": call.key, **meta}}
        )
        if call.outcome is Outcome.DONE:
            call.revision = revision_of(answer)
            self._learn(call.key, call.revision, call.revision)
        return await self._learn_refusal(call, intent)

    async def _learn_refusal(self, call: Call, intent: Intent) -> Call:
        """After a refused write, read the object, or every further write would be refused."""
        if call.outcome is Outcome.REFUSED:
            await self._get(call.client, intent)
        return call

    async def _mark(self, intent: Intent) -> Call:
        return await self._put(0, intent)

    def _new_value(self) -> str:
        self._written += 1
        return f"v{self._written}"

    def _learn(self, key: str, at: int, revision: int) -> None:
        if at > self._known.get(key, NOTHING).learnt:
            self._known[key] = Known(at, revision)

    # Reading

    async def _get(self, client: int, intent: Intent) -> Call:
        call = Call(client, "get", intent.key)
        answer = await self._send(call, intent, "GET", f"{TARGET}/{call.key}")
        if call.status == 404:
            call.outcome = Outcome.DONE  # it is an answer like any other
            self._known.pop(call.key, None)
        elif call.outcome is Outcome.DONE:
            call.revision = revision_of(answer)
            call.found = {call.key: version_of(answer)}
            self._learn(call.key, call.revision, call.revision)
        return call

    async def _list(self, client: int, intent: Intent) -> Call:
        return await self._pages(Call(client, "list"), intent, {})

    async def _list_in_pages(self, client: int, intent: Intent) -> Call:
        return await self._pages(Call(client, "list"), intent, {"limit": "3"})

    async def _list_as_it_was(self, client: int, intent: Intent) -> Call:
        at = max((known.learnt for known in self._known.values()), default=ABSENT)
        if at == ABSENT:
            return await self._list(client, intent)
        query = {"resourceVersion": str(at), "resourceVersionMatch": "Exact"}
        call = await self._pages(Call(client, "list", fresh=False), intent, query)
        if call.outcome is Outcome.DONE and call.revision != at:
            self.history.improper.append(f"{call} shows another revision than {at}")
        return call

    async def _list_of_any_age(self, client: int, intent: Intent) -> Call:
        return await self._pages(
            Call(client, "list", fresh=False), intent, {"resourceVersion": "0"}
        )

    async def _pages(self, call: Call, intent: Intent, query: dict[str, str]) -> Call:
        """List to the end, each page by another way, and note the whole as one call."""
        page = await self._send(call, intent, "GET", with_query(TARGET, query))
        while call.outcome is Outcome.DONE:
            meta = page["metadata"]
            shown = int(meta["resourceVersion"])
            if call.revision not in (ABSENT, shown):
                self.history.improper.append(f"{call} has a page of revision {shown}")
            call.revision = shown
            for item in page["items"]:
                call.found[item["metadata"]["name"]] = version_of(item)
            if not meta.get("continue"):
                break
            intent = intent._replace(way=intent.way + 1)
            more = {**query, "continue": meta["continue"]}
            page = await self._send(call, intent, "GET", with_query(TARGET, more))
        return call

    async def _send(
        self, call: Call, intent: Intent, method: str, target: str, body: Any = None
    ) -> Any:
        """Send one request, and note when, and how it ended."""
        if not call.began:
            call.began = self.clock()
            self.history.calls.append(call)
        call.outcome = Outcome.UNKNOWN
        try:
            answer: Any
            status, answer = await self.ways[intent.way % len(self.ways)].send(method, target, body)
        except Lost:
            return None
        call.ended, call.status = self.clock(), status
        if status in DONE and isinstance(answer, dict):
            call.outcome = Outcome.DONE
        elif status in REFUSED:
            call.outcome = Outcome.REFUSED
        elif status not in OPEN:
            self.history.improper.append(f"{call} was answered: {answer}")
        return answer

    # Watching

    async def _follow(self, watcher: Watcher) -> None:
        """Watch by one way after the other, each time from where the last one ended."""
        rng = random.Random(f"{self.seed}/watcher/{watcher.number}")
        while not self.history.end or self._reached(watcher) < self.history.end:
            way, seconds = rng.randrange(1000), rng.randint(1, LONGEST_SESSION)
            watcher.sessions += 1
            with suppress(
                Lost, TimeoutError
            ):  # one that was stopped says nothing, not even good-bye
                async with asyncio.timeout(seconds + ANSWER_SECONDS):
                    await self._session(watcher, self.ways[way % len(self.ways)], seconds)
            await asyncio.sleep(AFTER_TROUBLE)

    async def _session(self, watcher: Watcher, way: Way, seconds: int) -> None:
        query = {
            "watch": "1",
            "resourceVersion": str(self._reached(watcher)),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        async with aclosing(way.watch(with_query(TARGET, query))) as events:
            async for event in events:
                if event["type"] == "ERROR":
                    await self._start_over(watcher, event["object"])
                    return
                watcher.segments[-1].events.append(self._event(event))
                if self.history.end and self._reached(watcher) >= self.history.end:
                    return

    def _event(self, event: Any) -> Event:
        meta = event["object"]["metadata"]
        value = (meta.get("annotations") or {}).get("value", "")
        revision = int(meta["resourceVersion"])
        return Event(self.clock(), event["type"], meta.get("name", ""), value, revision)

    async def _start_over(self, watcher: Watcher, status: Any) -> None:
        """History is gone, or the revision has not come to this server yet."""
        if status["code"] == GONE:
            listed = await self._until_done(lambda intent: self._list(0, intent))
            watcher.segments.append(Segment(listed.revision))
        elif status["code"] not in OPEN:
            self.history.improper.append(f"watcher {watcher.number} got {status}")

    @staticmethod
    def _reached(watcher: Watcher) -> int:
        segment = watcher.segments[-1]
        return segment.events[-1].revision if segment.events else segment.after


class OverTls:
    """Calls to the port of a server, over a pool of connections.

    The caller has a token, or a certificate: `identity` is a file with certificate and key.
    """

    def __init__(self, url: str, token: str = "", identity: Path | None = None) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # whom we trust is not the test
        if identity is not None:
            tls.load_cert_chain(identity)
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=tls,
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        try:
            answer = await self._client.request(method, target, json=body)
        except (httpx.TransportError, OSError) as problem:
            raise Lost(repr(problem)) from None
        return answer.status_code, read(answer.content)

    async def watch(self, target: str) -> AsyncGenerator[Any, None]:
        try:
            async with self._client.stream("GET", target, timeout=ENDLESS) as answer:
                if answer.status_code not in DONE:
                    yield refusal(answer.status_code, read(await answer.aread()))
                    return
                async for line in answer.aiter_lines():
                    yield json.loads(line)
        except (httpx.TransportError, OSError, ValueError) as problem:
            raise Lost(repr(problem)) from None

    async def close(self) -> None:
        await self._client.aclose()


def read(content: bytes) -> Any:
    """The decoded body; a body that is no JSON, such as that of a panic, is returned as text."""
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def refusal(status: int, answer: Any) -> Any:
    """A refused watch, as a watch that began and ended with an error."""
    return {"type": "ERROR", "object": {"code": status, "message": answer}}


def with_query(target: str, query: dict[str, str]) -> str:
    return f"{target}?{urlencode(query)}" if query else target


def version_of(item: Any) -> Version:
    return Version(revision_of(item), (item["metadata"].get("annotations") or {}).get("value", ""))


def revision_of(answer: Any) -> int:
    return int(answer["metadata"]["resourceVersion"])
