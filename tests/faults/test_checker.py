"""The checker finds what is wrong, and nothing in what is right.

Broken stores behind a whole server come first, then histories made by hand, one for each rule.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.engine.verbs.read import Reading
from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.store.interface import (
    LATEST,
    Batch,
    Change,
    DeleteRange,
    Page,
    Revision,
    Span,
    StoreEvent,
)
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import ADMIN, Api, api
from tests.faults.checker import Violation, violations
from tests.faults.history import Call, Commit, History, Outcome, Segment, Version, Watcher
from tests.faults.history import Event as Recorded
from tests.faults.store_log import commits_of
from tests.faults.systems import complaints_in
from tests.faults.workload import NAMESPACE, Lost, OverTls, Workload, read
from tests.unit.kernel.http.listening import serving

CALLS = 60  # of each client
DEADLINE = 10  # seconds; over a store that hides a change, an update never wins


class IntoChain:
    """The way straight into a server in this process."""

    def __init__(self, server: Api) -> None:
        self._server = server

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        try:
            async with asyncio.timeout(DEADLINE):
                answer = await self._server.call(method, target, body)
        except TimeoutError:
            raise Lost from None
        return answer.status, read(answer.body)

    async def watch(self, target: str) -> AsyncGenerator[Any, None]:
        async with self._server.watch(target) as stream:
            while True:
                try:
                    yield await stream.next()
                except (EOFError, TimeoutError):
                    raise Lost from None


class FaithfulStore:
    """Hands everything on to a store in memory; the others here break one thing each."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner

    async def read(self, span: Span, *, at: Revision = LATEST, limit: int = 0) -> Page:
        return await self.inner.read(span, at=at, limit=limit)

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        return await self.inner.commit(changes, delete)

    async def watch(self, span: Span, *, after: Revision) -> AsyncGenerator[Batch, None]:
        count = 0  # of the batches that concern the clients
        async with aclosing(self.inner.watch(span, after=after)) as batches:
            async for batch in batches:
                count += any(f"/{NAMESPACE}/k" in event.key for event in batch.events)
                async for shown in self._show(batch, count):
                    yield shown

    async def _show(self, batch: Batch, count: int) -> AsyncGenerator[Batch, None]:
        yield batch

    async def revision(self) -> Revision:
        return await self.inner.revision()

    async def may_compact(self) -> bool:
        return await self.inner.may_compact()

    async def compact(self, before: Revision) -> None:
        await self.inner.compact(before)

    async def close(self) -> None:
        await self.inner.close()


class LosingStore(FaithfulStore):
    """Acknowledges some commits without making them."""

    count = 0

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        if f"/{NAMESPACE}/k" in changes[0].key:
            self.count += 1
            if self.count % 25 == 0:
                return await self.revision() + 1
        return await super().commit(changes, delete)


class ReorderingStore(FaithfulStore):
    """Shows some changes to watchers after the ones that follow them."""

    held: tuple[StoreEvent, ...] = ()

    async def _show(self, batch: Batch, count: int) -> AsyncGenerator[Batch, None]:
        if not self.held and count % 20 == 19:
            self.held = batch.events
            yield Batch((), batch.revision)
        else:
            yield Batch((*batch.events, *self.held), batch.revision)
            self.held = ()


class RepeatingStore(FaithfulStore):
    """Shows some changes to watchers twice."""

    async def _show(self, batch: Batch, count: int) -> AsyncGenerator[Batch, None]:
        yield batch
        if count % 20 == 19:
            yield batch


class SkippingStore(FaithfulStore):
    """Forgets to show some changes to watchers."""

    async def _show(self, batch: Batch, count: int) -> AsyncGenerator[Batch, None]:
        yield Batch((), batch.revision) if count % 20 == 19 else batch


class StaleStore(FaithfulStore):
    """Takes for the newest revision the newest that watchers were shown, and shows it late."""

    shown: Revision = 1

    async def revision(self) -> Revision:
        return self.shown

    async def _show(self, batch: Batch, count: int) -> AsyncGenerator[Batch, None]:
        if count:
            await asyncio.sleep(0.005)
        self.shown = batch.revision
        yield batch


async def rules_broken_by(broken: type[FaithfulStore], files: Path) -> set[str]:
    """Have clients work on two servers, one of them over a store that is broken; judge them."""
    history, inner = History(), MemoryStore()
    async with (
        api(files, store=FaithfulStore(inner)) as one,
        api(files, store=broken(inner)) as other,
    ):
        workload = Workload([IntoChain(one), IntoChain(other)], history, seed=1)
        async with workload.watching():
            await workload.run(asyncio.Event(), CALLS)
            await workload.look()
        log = await commits_of(inner)
    assert sum(call.outcome is Outcome.DONE for call in history.calls) > CALLS
    return {violation.rule for violation in violations(history, log)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "data"


@pytest.mark.parametrize(
    ("store", "rule"),
    [
        (LosingStore, "lost"),
        (ReorderingStore, "watch"),
        (RepeatingStore, "watch"),
        (SkippingStore, "watch"),
        (StaleStore, "stale"),
    ],
)
async def test_broken_store_is_caught(store: type[FaithfulStore], rule: str, files: Path) -> None:
    """A store that loses, reorders, repeats, skips or reads stale does not get past the checker."""
    assert rule in await rules_broken_by(store, files)


async def test_sound_store_passes(files: Path) -> None:
    """The same work on a store that is as it should be shows nothing."""
    assert await rules_broken_by(FaithfulStore, files) == set()


async def test_server_that_panics_now_and_then_is_caught(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One GET in twenty gets a plain-text 500: answers and log show it."""
    really_get, count = Reading.get, itertools.count(1)

    async def get(self: Reading, kind: Any, request: Any) -> Any:
        if next(count) % 20 == 0:
            raise RuntimeError("a mistake")
        return await really_get(self, kind, request)

    monkeypatch.setattr(Reading, "get", get)
    history = History()
    async with api(files) as one, serving(one.server.chain) as listening:
        way = OverTls(f"http://127.0.0.1:{listening.listener.port}", ADMIN)
        workload = Workload([way], history, seed=1)
        async with workload.watching():
            await workload.run(asyncio.Event(), CALLS)
        await way.close()
        log = await commits_of(one.server.store)

    found = violations(history, log)

    assert next(count) > 20
    assert {violation.rule for violation in found} == {"answer"}
    assert all("failed inside the server" in violation.what for violation in found)
    assert complaints_in(caplog.text)


async def test_watch_that_is_answered_with_a_panic_is_caught() -> None:
    """It is no fault of the line: the answer came, and it is one that no fault excuses."""
    history = History()

    async def panic(request: HttpRequest) -> Any:
        return Response(500, b"Content-Type: text/plain\r\n", b"failed inside")

    async with serving(panic) as listening:
        way = OverTls(f"http://127.0.0.1:{listening.listener.port}", ADMIN)
        await Workload([way], history, seed=1)._session(Watcher(0, [Segment(1)]), way, 1)
        await way.close()

    [text] = history.improper
    assert "500" in text
    assert "failed inside" in text


def test_log_of_a_server_that_went_wrong_is_known() -> None:
    """A plain-text 500 and a log line are both violations; everything else is allowed."""
    failure = "12:00:01 error   request.failed audit_id=1\n    ValueError at chain.py:80\n"
    trace = "12:00:01 error   store.watch_failed\n    Traceback (most recent call last):\n"

    assert [len(complaints_in(text)) for text in (failure, trace, failure + trace)] == [1, 1, 2]
    assert complaints_in("12:00:01 info    server.ready\n") == []


# Histories made by hand

LOG = [Commit(2, "k", "a"), Commit(3, "k", "b"), Commit(5, "k", None), Commit(7, "k", "c")]


def write(action: str, value: str, expected: int, revision: int, began: float) -> Call:
    call = Call(1, action, "k", value, expected, began=began, ended=began + 1, revision=revision)
    call.outcome, call.status = Outcome.DONE, 200
    return call


def sound() -> History:
    """A create, an update, a delete and another create, one after the other."""
    return History(
        calls=[
            write("create", "a", 0, 2, 0),
            write("update", "b", 2, 3, 10),
            write("delete", "", 3, 5, 20),
            write("create", "c", 0, 7, 30),
        ],
        watchers=[
            Watcher(
                0,
                [
                    Segment(
                        1,
                        [
                            Recorded(1, "ADDED", "k", "a", 2),
                            Recorded(11, "MODIFIED", "k", "b", 3),
                            Recorded(12, "BOOKMARK", "", "", 4),
                            Recorded(21, "DELETED", "k", "b", 5),
                            Recorded(31, "ADDED", "k", "c", 7),
                        ],
                    )
                ],
            )
        ],
        end=7,
    )


def get(found: Version | None, began: float, ended: float) -> Call:
    call = Call(2, "get", "k", began=began, ended=ended)
    call.outcome, call.status = Outcome.DONE, 200 if found else 404
    if found:
        call.revision, call.found = found.revision, {"k": found}
    return call


def listed(found: Version | None, revision: int, began: float, *, fresh: bool = True) -> Call:
    call = get(found, began, began + 1)
    call.action, call.key, call.revision, call.fresh = "list", "", revision, fresh
    return call


def refused(action: str, status: int, expected: int, began: float, ended: float) -> Call:
    call = Call(2, action, "k", "" if action == "delete" else "x", expected)
    call.began, call.ended, call.outcome, call.status = began, ended, Outcome.REFUSED, status
    return call


def rules(history: History, log: Sequence[Commit] = LOG) -> list[str]:
    return [violation.rule for violation in violations(history, log)]


def with_call(call: Call) -> History:
    history = sound()
    history.calls.append(call)
    return history


A, B, C = Version(2, "a"), Version(3, "b"), Version(7, "c")


@pytest.mark.parametrize(
    "call",
    [
        get(A, 2, 3),
        get(A, 9.9, 15),  # while it is being replaced, either is right
        get(B, 9.9, 15),
        get(None, -5, 0.5),
        get(None, 20.5, 25),
        get(None, 22, 30.5),
        listed(B, 4, 12),
        listed(A, 2, 50, fresh=False),
        refused("create", 409, 0, 2, 3),
        refused("update", 409, 2, 12, 13),
        refused("update", 409, 2, 9, 11),
        refused("delete", 404, 3, 22, 23),
        Call(2, "update", "k", "x", 2, began=10),  # not answered, and did not happen
    ],
)
def test_what_can_be_explained_is_allowed(call: Call) -> None:
    """Concurrent calls may come in either order, and an old list may be old."""
    assert rules(with_call(call)) == []


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (get(A, 12, 13), "stale"),  # it was replaced before this began
        (get(None, 12, 13), "stale"),
        (get(None, 40, 41), "stale"),
        (get(B, 22, 23), "stale"),
        (get(Version(2, "x"), 2, 3), "invented"),
        (get(Version(4, "b"), 12, 13), "invented"),
        (listed(A, 2, 12), "stale"),
        (listed(A, 4, 12), "list"),
        (listed(None, 4, 12), "list"),
        (listed(B, 5, 22), "list"),
        (refused("create", 409, 0, 22, 23), "stale"),
        (refused("update", 409, 3, 12, 13), "stale"),
        (refused("delete", 404, 3, 12, 13), "stale"),
        (write("update", "x", 3, 4, 14), "lost"),
        (write("update", "x", 3, 7, 14), "lost"),
    ],
)
def test_what_nothing_explains_is_found(call: Call, rule: str) -> None:
    """Each rule is broken by a single call."""
    assert rule in rules(with_call(call))


def test_a_read_of_the_future_is_found() -> None:
    """A read of a value that is written later means that times or revisions are wrong."""
    assert rules(with_call(get(C, 22, 23))) == ["stale"]


def test_commits_against_the_order_of_time_are_found() -> None:
    """A write that began after another was answered has the higher revision."""
    history = sound()
    history.watchers.clear()
    history.calls[3].began, history.calls[3].ended = 5, 6

    assert set(rules(history)) == {"order"}


def test_a_read_that_goes_back_is_found() -> None:
    """After one client has seen a new version, none may see the old one."""
    history = with_call(get(B, 10.1, 10.2))
    history.calls.append(get(A, 10.3, 10.4))

    assert rules(history) == ["stale"]


def test_a_read_older_than_a_watch_event_is_found() -> None:
    """Later reads must include every change that a watcher has received."""
    history = sound()
    history.calls[1].ended = 19  # the answer takes longer than the event, which comes at 11
    history.calls.append(get(A, 12, 13))

    assert rules(history) == ["stale"]


def test_a_swap_on_another_version_is_found() -> None:
    """Of two updates of one version, only one can be right."""
    history = sound()
    history.calls[1].expected = 1

    assert rules(history) == ["swapped"]


def test_a_refused_write_that_happened_is_found() -> None:
    """No means no."""
    history = sound()
    history.calls[1].outcome, history.calls[1].status = Outcome.REFUSED, 409

    assert "invented" in rules(history)


def test_an_unanswered_write_may_have_happened() -> None:
    """A commit whose answer was lost is nobody's fault, however late it is made."""
    history = sound()
    history.calls[1].outcome, history.calls[1].ended = Outcome.UNKNOWN, float("inf")
    history.calls[2].outcome, history.calls[2].ended = Outcome.UNKNOWN, float("inf")

    assert rules(history) == []


def test_a_commit_that_nobody_asked_for_is_found() -> None:
    """Everything in the log has a call."""
    history = sound()
    history.watchers.clear()

    assert rules(history, [*LOG, Commit(8, "k", "z")]) == ["invented"]


def test_a_commit_made_twice_is_found() -> None:
    """A write that was repeated behind the client's back is in the log twice."""
    history = sound()
    history.watchers.clear()

    assert "order" in rules(history, [*LOG, Commit(8, "k", "c")])


def mangled(*order: int) -> History:
    history = sound()
    [segment] = history.watchers[0].segments
    segment.events = [segment.events[index] for index in order]
    return history


@pytest.mark.parametrize(
    "order",
    [
        (0, 2, 3, 4),  # the bookmark shows that one is missing
        (0, 1, 3),  # not to the end
        (1, 2, 3, 4),
        (0, 0, 1, 2, 3, 4),
        (0, 1, 1, 2, 3, 4),
        (1, 0, 2, 3, 4),
        (0, 1, 3, 2, 4),
        (0, 1, 2, 3, 4, 4),
    ],
)
def test_a_watch_that_is_not_the_log_is_found(order: tuple[int, ...]) -> None:
    """Missing, repeated, out of order, or never brought to its end."""
    assert "watch" in rules(mangled(*order))


def test_a_status_that_no_fault_excuses_is_reported() -> None:
    """A 500 is a mistake whatever else was going on."""
    history = sound()
    history.improper.append("a call was answered 500")

    assert violations(history, LOG) == [Violation("answer", "a call was answered 500")]
