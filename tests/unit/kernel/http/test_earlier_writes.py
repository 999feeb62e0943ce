"""No request seems older than it is, whatever waits together, and each is handled once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.kernel.base.arrival import Arrival
from orchid.kernel.base.scheduling.shared_result import SharedResult
from orchid.kernel.http.earlier_writes import REFRESH_SECONDS
from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.http.stages import TOGETHER, Stages
from orchid.kernel.http.tls.channel import TlsChannel
from tests.unit.kernel.http.listening import serving, until
from tests.unit.kernel.http.test_stages import CLIENTS, NUMBERS, Loop, Pair, without_task
from tests.unit.kernel.http.tls.test_tls_files import Authority

TIMES = st.integers(1, 60).map(lambda milliseconds: milliseconds / 1000)
SIZES = st.sampled_from((1, 90, 300, 1_900, 5_000))
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, CLIENTS - 1), SIZES),
    st.tuples(st.just("pass"), TIMES),
    st.tuples(st.just("turn")),
    st.tuples(st.sampled_from(("ask", "answer", "refuse")), st.integers(0, 3)),
    st.tuples(st.just("timers")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("share")),
)


class Server:
    """Clients of one event loop, and a store that answers when and in the order the test says."""

    def __init__(self, clients: int = CLIENTS) -> None:
        self.loop = Loop()
        self.now = 1.0
        self.turn = SimpleNamespace(waited_since=0.0)
        self.asked: list[SharedResult[None]] = []
        self.began: dict[SharedResult[None], float] = {}  # when the store was asked
        self.too_new: list[float] = []  # arrivals for which the store was asked too early
        self.fresh_at = 0.0  # every write before this is here
        self.then: SharedResult[None] | None = None  # what a refresh waits for after the store
        self.shares = False  # whether turns wait for the last call together
        self._asks = False
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.stages = Stages(loop, self.turn, monotonic=lambda: self.now, refresh=self._refresh)
        without_task(lambda: self._connect(clients))
        self._asks = True

    def _connect(self, clients: int) -> None:
        self.clients = [Pair(self.loop, self.stages) for _ in range(clients)]
        self.arrived: list[list[float]] = [[] for _ in range(clients)]  # of each byte
        # Of each byte that was handled: since when its request counts as arrived, and what was here
        # when it was handled.
        self.handled: list[list[tuple[float, float]]] = [[] for _ in range(clients)]
        for number, client in enumerate(self.clients):
            client.upper.answer = self._noted(number)

    def _noted(self, number: int) -> Callable[[bytes], list[bytes]]:
        def handle(data: bytes) -> list[bytes]:
            moment = self.turn.waited_since or self.now
            self.handled[number] += [(moment, self.fresh_at)] * len(data)
            return [data]

        return handle

    async def _refresh(self, arrival: Arrival) -> None:
        if not self._asks:
            return  # while the clients connect
        if not (self.shares and self.asked and self.asked[-1].is_open):
            self.asked.append(SharedResult(cast(asyncio.AbstractEventLoop, self.loop)))
            self.asked[-1].is_open = True
        wait = self.asked[-1]
        await wait
        if self.then is not None:
            await self.then
        if arrival.moment > self.began[wait]:
            self.too_new.append(arrival.moment)
        self.fresh_at = max(self.fresh_at, arrival.moment)

    def send(self, client: int, size: int) -> None:
        begin = len(self.arrived[client])
        self.arrived[client] += [self.now] * size
        without_task(lambda: self.clients[client].send(NUMBERS[begin : begin + size]))

    def run_turn(self) -> None:
        without_task(self.loop.turn)

    def ask(self, number: int) -> None:
        """Ask the store, for which requests wait."""
        if self.asked:
            wait = self.asked[number % len(self.asked)]
            self.began.setdefault(wait, self.now)
            wait.is_open = False

    def answer(self, number: int) -> None:
        """Answer one of the calls that the store has not answered."""
        self.ask(number)
        if self.asked:
            self.asked.pop(number % len(self.asked)).finish(None)

    def refuse(self, number: int) -> None:
        self.ask(number)
        if self.asked:
            self.asked.pop(number % len(self.asked)).fail(OSError)

    def finish(self) -> None:
        """Let everything that was sent be handled."""
        while self.loop.steps or self.asked:
            self.answer(0)
            self.run_turn()

    def step(self, name: str, *given: float) -> None:
        if name == "send":
            self.send(int(given[0]), int(given[1]))
        elif name == "pass":
            self.now += given[0]
        elif name == "turn":
            self.run_turn()
        elif name == "timers":
            without_task(self.loop.end_timers)
        elif name == "share":
            self.shares = not self.shares
        elif name == "stop":
            without_task(self.stages.stop_waiting)
        else:
            call: Callable[[int], None] = getattr(self, name)  # ask, answer or refuse
            call(int(given[0]))

    def check(self) -> None:
        for client, arrived, handled in zip(self.clients, self.arrived, self.handled, strict=True):
            assert b"".join(client.upper.received) == NUMBERS[: len(arrived)]
            assert len(handled) == len(arrived)
            early = [
                (came, moment)
                for came, (moment, _) in zip(arrived, handled, strict=True)
                if moment < came
            ]
            assert early == []
        assert self.too_new == []
        assert self.loop.problems == []


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_no_request_counts_as_older_than_it_is(steps: list[tuple[str, float]]) -> None:
    """A read is as new as the time at which its request counts as arrived, and no newer.

    In pieces of every size, over several turns, with a store that answers, fails, or is silent.
    """
    server = Server()
    for name, *given_with_it in steps:
        server.step(name, *given_with_it)
    server.finish()

    server.check()


def test_a_later_piece_does_not_count_as_arrived_with_an_earlier_one() -> None:
    """The second ends the wait of the first, but the connection is still among those that wait."""
    server = Server()
    for _ in range(3):
        server.send(0, 10)
        server.run_turn()
        server.now += 0.01
    last_sent = server.arrived[0][-1]

    server.answer(0)
    server.run_turn()
    server.finish()

    assert server.handled[0][-1][0] >= last_sent
    server.check()


def test_turns_wait_together_until_the_store_is_asked() -> None:
    """A later one waits for the next answer: this one may miss what was written before it."""
    server = Server(3)
    for number in range(2):
        server.send(number, 10)
        server.run_turn()
        server.now += 0.01
    server.ask(0)
    server.send(2, 10)
    server.run_turn()
    assert len(server.asked) == 2

    server.answer(0)
    server.run_turn()
    assert [len(handled) for handled in server.handled] == [10, 10, 0]
    for handled in server.handled[:2]:
        assert {fresh >= moment for moment, fresh in handled} == {True}  # no handler asks again

    server.finish()
    server.check()


def test_no_turn_joins_after_the_store_was_asked() -> None:
    """Whatever else a wait is for."""
    server = Server(2)
    server.then = SharedResult(cast(asyncio.AbstractEventLoop, server.loop))
    server.then.is_open = True
    server.send(0, 10)
    server.run_turn()
    server.answer(0)
    server.run_turn()
    server.now += 0.01
    server.send(1, 10)
    server.run_turn()
    assert len(server.asked) == 1

    server.then.finish(None)
    server.finish()

    server.check()


def test_of_turns_that_are_served_together_the_last_one_counts() -> None:
    """Also where an earlier turn waits longer, and is served with the rest of later ones."""
    server = Server(TOGETHER + 2)
    server.send(0, 10)
    server.run_turn()
    server.ask(0)
    for clients in (range(1, TOGETHER), range(TOGETHER, TOGETHER + 2)):
        server.now += 0.01
        for number in clients:
            server.send(number, 10)
        server.run_turn()
        server.shares = True

    server.answer(1)
    server.answer(0)
    server.finish()

    server.check()


def test_no_turn_waits_longer_because_others_join() -> None:
    """When the first has waited too long, all are handled, and ask for themselves."""
    server = Server(3)
    server.shares = True
    server.send(0, 10)
    server.run_turn()
    server.now += REFRESH_SECONDS / 2
    server.send(1, 10)
    server.run_turn()
    server.now += REFRESH_SECONDS / 2
    server.step("timers")
    assert [len(handled) for handled in server.handled] == [10, 10, 0]
    assert server.fresh_at == 0.0

    server.finish()

    server.check()


def test_what_has_waited_is_handled_without_another_wait() -> None:
    """What was written before it arrived is here then: its handler need not ask the store."""
    server = Server()
    server.send(0, 10)
    server.run_turn()
    server.now += 0.01

    server.finish()

    assert {fresh >= moment for moment, fresh in server.handled[0]} == {True}


def test_a_request_after_those_that_have_waited_arrives_when_it_is_handled() -> None:
    server = Server()
    server.send(0, 10)
    server.finish()

    assert server.turn.waited_since == 0.0


def test_after_a_failure_no_request_seems_to_have_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a turn ends."""
    server = Server()
    server.send(0, 10)
    server.run_turn()

    def interrupted(_: TlsChannel) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TlsChannel, "handle", interrupted)
    server.answer(0)
    with pytest.raises(KeyboardInterrupt):
        server.loop.turn()

    assert server.turn.waited_since == 0.0


def test_what_was_just_received_is_handled_before_a_listener_closes() -> None:
    """Idle connections are closed then; this one has sent a request."""
    clients = TOGETHER + 1
    server = Server(clients)
    for number in range(clients):
        server.send(number, 10)

    server.stages.stop_waiting()

    assert [len(handled) for handled in server.handled] == [10] * clients
    server.finish()
    server.check()


def test_a_silent_store_leaves_nothing_behind() -> None:
    """What has waited too long is served, and no longer waits."""
    server = Server()
    server.send(0, 10)
    server.run_turn()
    server.now += 2 * REFRESH_SECONDS

    server.step("timers")

    assert len(server.handled[0]) == 10
    assert server.loop.timers == []


class Store:
    """A store that answers when the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self._wait: SharedResult[None] = SharedResult(asyncio.get_running_loop())

    async def refresh(self, _: Arrival) -> None:
        self.asked += 1
        await self._wait

    def answer(self) -> None:
        self._wait.finish(None)


class Handler:
    """Knows every client, and notes since when their requests have waited."""

    def __init__(self) -> None:
        self.since: list[float] = []

    async def __call__(self, request: HttpRequest) -> Response:
        request.peer.known = True
        self.since.append(request.waited_since)
        return Response(200)


async def test_requests_of_a_client_wait_once_it_is_known(tmp_path: Path) -> None:
    """The first one authenticates it; the next ones wait, and say so to their handler."""
    authority, store, handler = Authority(tmp_path), Store(), Handler()
    async with serving(handler, tls=authority.files(), refresh=store.refresh) as running:
        client = await running.connect(authority.client())
        client.get("/")
        await client.answer()
        client.send(2 * b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: store.asked == 1)
        store.answer()
        for _ in range(2):
            await client.answer()

    first, second, third = handler.since
    assert first == 0.0
    assert second == third > 0.0


async def test_a_request_that_waits_is_answered_when_the_listener_closes(tmp_path: Path) -> None:
    """Its connection seems idle, and idle ones are closed."""
    authority, store, handler = Authority(tmp_path), Store(), Handler()
    async with serving(handler, tls=authority.files(), refresh=store.refresh) as running:
        client = await running.connect(authority.client())
        client.get("/")
        await client.answer()
        client.get("/")
        await until(lambda: store.asked == 1)
        await running.listener.drain(grace=5)

        answer = await client.answer()

    assert answer.status == 200
    assert answer.headers["connection"] == "close"
