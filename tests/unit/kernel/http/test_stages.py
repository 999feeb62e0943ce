"""Requests of one turn of the event loop are served in stages, and none is lost or reordered."""

import asyncio
import functools
import ssl
from collections.abc import Callable, Iterable, Iterator
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.kernel.base.arrival import Arrival
from orchid.kernel.base.scheduling.shared_result import SharedResult
from orchid.kernel.http.stages import TOGETHER, Stages
from orchid.kernel.http.tls.channel import ServedProtocol, TlsChannel

LARGE = 20_000  # bytes: more than a channel holds back
CLIENTS = 3
NUMBERS = b"".join(b"%06d," % number for number in range(130_000))

sizes = st.one_of(st.integers(1, 300), st.integers(300, 40_000))
pieces = st.tuples(st.integers(0, CLIENTS - 1), sizes)


class Loop:
    """Runs the steps of a turn when the test says so."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.problems: list[Any] = []

    def call_soon(self, step: Callable[..., None], *given: object) -> None:
        self.steps.append(functools.partial(step, *given))

    def call_later(self, seconds: float, step: Callable[[], None]) -> None:
        self.timers.append(step)

    def end_timers(self) -> None:
        timers, self.timers = self.timers, []
        for step in timers:
            step()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(context["exception"])

    def turn(self) -> None:
        steps, self.steps = self.steps, []
        for step in steps:
            step()

    def staged(self) -> Stages:
        return Stages(
            cast(asyncio.AbstractEventLoop, self),
            SimpleNamespace(waited_since=0.0),
            monotonic=lambda: 0.0,
        )


class Recorded:
    """A channel that writes down its stages; one of them may fail."""

    def __init__(self, name: str, stages: Stages, log: list[str], fails: str = "") -> None:
        self._name = name
        self._stages = stages
        self._log = log
        self._fails = fails

    @property
    def known(self) -> bool:
        return not self._name.startswith("stranger")

    def _step(self, stage: str) -> None:
        self._log.append(f"{stage} {self._name}")
        if stage == self._fails:
            raise RuntimeError(stage)

    def decrypt_received(self) -> bytes:
        self._step("decrypt")
        return b"data"

    def parse(self, data: bytes) -> None:
        self._step("parse")

    def handle(self) -> None:
        assert self._stages.handling
        self._step("handle")
        self._stages.send_later(self)

    def encrypt_unsent(self) -> None:
        assert not self._stages.handling
        self._step("encrypt")

    def abort(self) -> None:
        self._log.append(f"abort {self._name}")


def test_each_stage_is_done_for_all_connections_before_the_next() -> None:
    """All that is received in one turn is decrypted, then parsed, handled, and answered."""
    loop = Loop()
    log: list[str] = []
    stages = loop.staged()
    for name in "ab":
        stages.receive(Recorded(name, stages, log))

    loop.turn()

    names = ("decrypt", "parse", "handle", "encrypt")
    assert log == [f"{stage} {name}" for stage in names for name in "ab"]


def without_task(step: Callable[[], None]) -> None:
    """Call a step as an event loop does, outside of any task; raises what the step raises."""
    loop = asyncio.new_event_loop()
    problems: list[BaseException] = []
    loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))
    try:
        loop.call_soon(step)
        loop.call_soon(loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    if problems:
        raise problems[0]


class Writes:
    """Earlier writes, which arrive when the test says so."""

    def __init__(self, loop: Loop) -> None:
        self._wait: SharedResult[None] = SharedResult(cast(asyncio.AbstractEventLoop, loop))
        self.asked = 0
        self._wait.is_open = True
        self.arrive = functools.partial(self._wait.finish, None)
        self.fail = functools.partial(self._wait.fail, OSError)

    def begin(self) -> None:
        self._wait.is_open = False

    async def refresh(self, _: Arrival) -> None:
        self.asked += 1
        await self._wait


class Timed(Recorded):
    """A channel that writes down since when its turn has waited."""

    def __init__(self, name: str, stages: Stages, log: list[str], turn: SimpleNamespace) -> None:
        super().__init__(name, stages, log)
        self._turn = turn

    def handle(self) -> None:
        super().handle()
        self._log.append(f"since {self._turn.waited_since:g}")


class Waits:
    """Stages whose requests wait for earlier writes."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.writes = Writes(self.loop)
        self.log: list[str] = []
        self.now = 7.0
        self._turn = SimpleNamespace(waited_since=0.0)
        self.stages = Stages(
            cast(asyncio.AbstractEventLoop, self.loop),
            self._turn,
            monotonic=lambda: self.now,
            refresh=self.writes.refresh,
        )

    def turn(self, *names: str) -> None:
        """A turn of the event loop in which some connections have received data."""
        for name in names:
            self.stages.receive(Timed(name, self.stages, self.log, self._turn))
        without_task(self.loop.turn)

    def done(self, stage: str) -> list[str]:
        return [line.split()[1] for line in self.log if line.startswith(stage)]


def test_a_turn_waits_for_earlier_writes_before_its_requests_are_handled() -> None:
    """All that is known of their arrival is the time before the question."""
    waits = Waits()
    waits.turn("a", "b")
    assert waits.log == []
    waits.now = 8.0

    waits.writes.arrive()
    waits.turn()

    assert waits.writes.asked == 1
    assert waits.done("since") == ["7", "7"]
    assert waits.log[-2:] == ["encrypt a", "encrypt b"]


def test_turns_that_wait_for_the_same_writes_are_served_together() -> None:
    """As of the time at which the last of them began to wait."""
    waits = Waits()
    waits.turn("a")
    waits.now = 8.0
    waits.turn("b")

    waits.writes.arrive()
    waits.turn()

    assert waits.log[:2] == ["decrypt a", "decrypt b"]
    assert waits.done("since") == ["8", "8"]


def test_of_very_many_that_have_waited_a_few_are_served_in_each_turn() -> None:
    waits = Waits()
    names = [str(number) for number in range(2 * TOGETHER + 1)]
    for start in range(0, len(names), 7):
        waits.turn(*names[start : start + 7])

    waits.writes.arrive()
    served = []
    while waits.loop.steps:
        before = len(waits.done("encrypt"))
        waits.turn()
        served.append(len(waits.done("encrypt")) - before)

    assert [count for count in served if count] == [TOGETHER, TOGETHER, 1]
    assert waits.done("encrypt") == names


def test_strangers_do_not_make_a_turn_wait() -> None:
    """A client that has never authenticated is served immediately, and nobody is asked."""
    waits = Waits()

    waits.turn("stranger")

    assert waits.done("since") == ["0"]
    assert waits.done("encrypt") == ["stranger"]
    assert waits.writes.asked == 0


def test_requests_are_served_when_the_store_fails() -> None:
    """Each of them then meets the failure by itself."""
    waits = Waits()
    waits.turn("a")

    waits.writes.fail()
    waits.turn()

    assert waits.done("encrypt") == ["a"]
    assert waits.loop.problems == []


def test_requests_are_served_when_the_store_is_silent() -> None:
    """A turn waits for a tenth of a second; its requests then wait by themselves, once."""
    waits = Waits()
    waits.turn("a")
    waits.writes.begin()
    waits.now = 7.05
    waits.turn("b")

    waits.now = 7.11
    waits.loop.end_timers()
    assert waits.done("encrypt") == ["a"]
    waits.now = 7.21
    waits.loop.end_timers()
    waits.writes.arrive()
    waits.turn()

    assert waits.done("encrypt") == ["a", "b"]


def test_what_waits_is_served_before_a_listener_closes() -> None:
    """The requests then count as unfinished, so that their connections stay until the answer."""
    waits = Waits()
    waits.turn("a")

    waits.stages.stop_waiting()
    waits.writes.arrive()
    waits.turn()

    assert waits.done("encrypt") == ["a"]


def test_a_wait_that_is_not_shared_is_left_to_the_requests() -> None:
    """As for changes that the store has announced, and not sent yet."""
    loop, turn, log = Loop(), SimpleNamespace(waited_since=0.0), list[str]()

    async def refresh(_: Arrival) -> None:
        await asyncio.get_running_loop().create_future()

    stages = Stages(
        cast(asyncio.AbstractEventLoop, loop), turn, monotonic=lambda: 7.0, refresh=refresh
    )
    stages.receive(Timed("a", stages, log, turn))
    without_task(loop.turn)

    assert log[-1] == "encrypt a"


@pytest.mark.parametrize("stage", ["decrypt", "parse", "handle", "encrypt"])
def test_a_connection_that_fails_affects_no_other(stage: str) -> None:
    """It is aborted, and the failure is reported."""
    loop = Loop()
    log: list[str] = []
    stages = loop.staged()
    stages.receive(Recorded("bad", stages, log, fails=stage))
    stages.receive(Recorded("good", stages, log))

    loop.turn()

    assert "abort bad" in log
    done_by_it = [line for line in log if line.endswith(" bad")]
    assert done_by_it[-2:] == [f"{stage} bad", "abort bad"]
    assert "encrypt good" in log
    assert "abort good" not in log
    assert [str(problem) for problem in loop.problems] == [stage]


def test_of_very_many_connections_a_few_are_served_together() -> None:
    """The first ones are answered before the last ones are handled; all get their turn."""
    loop = Loop()
    log: list[str] = []
    stages = loop.staged()
    for number in range(2 * TOGETHER + 1):
        stages.receive(Recorded(str(number), stages, log))

    loop.turn()
    first = [line for line in log if line.startswith("encrypt")]
    while loop.steps:
        loop.turn()

    assert len(first) == TOGETHER
    assert f"handle {TOGETHER}" not in log[: 4 * TOGETHER]
    answered = [line for line in log if line.startswith("encrypt")]
    assert answered == [f"encrypt {number}" for number in range(2 * TOGETHER + 1)]


class Socket(asyncio.Transport):
    """What a channel writes to its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Upper(ServedProtocol):
    """Answers with what it received, or as the test says."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.parsed = b""
        self.answer: Callable[[bytes], Iterable[bytes]] = lambda data: [data]
        self.closes = False

    @property
    def known(self) -> bool:
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.parse(data)
        self.proceed()

    def parse(self, data: bytes) -> None:
        self.received.append(data)
        self.parsed += data

    def proceed(self) -> None:
        parsed, self.parsed = self.parsed, b""
        for piece in self.answer(parsed) if parsed else ():
            self.transport.write(piece)
        if self.closes:
            self.transport.close()

    def eof_received(self) -> bool:
        self.received.append(b"<end>")
        return False


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS settings of the server and of the client."""
    authority = trustme.CA()
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    authority.issue_cert("localhost").configure_cert(server)
    server.num_tickets = 0
    authority.configure_trust(client)
    return server, client


class Pair:
    """A client and a channel, without a network between them."""

    def __init__(self, loop: Loop, stages: Stages) -> None:
        self.loop = loop
        self.socket, self.upper = Socket(), Upper()
        server, client = contexts()
        self.channel = TlsChannel(
            server,
            lambda step: step(),
            lambda _: self.upper,
            lambda _: None,
            deadline=inf,
            later=lambda step: step(),
            soon=lambda step: step(),
            stages=stages,
            monotonic=lambda: 0.0,
        )
        self.channel.connection_made(self.socket)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client.wrap_bio(self._in, self._out, server_hostname="localhost")
        for _ in range(2):
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.channel.data_received(self._out.read())
                self._in.write(bytes(self.socket.written))
                self.socket.written.clear()
        self.channel.data_received(self._out.read())
        self.send(b"first")  # from now on the client is known
        self.loop.turn()
        assert self.answers() == b"first"
        self.upper.received.clear()

    def send(self, data: bytes, cut: int = 1 << 20) -> None:
        """Send data as one write of the client, which arrives in parts of at most `cut` bytes."""
        self._tls.write(data)
        while part := self._out.read(cut):
            self.channel.data_received(part)

    def answers(self) -> bytes:
        """What the client can decrypt so far."""
        self._in.write(bytes(self.socket.written))
        self.socket.written.clear()
        found = b""
        try:
            while part := self._tls.read(1 << 16):
                found += part
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return found


@pytest.fixture
def pair() -> Pair:
    loop = Loop()
    return Pair(loop, loop.staged())


def test_a_request_is_answered_at_the_end_of_the_turn(pair: Pair) -> None:
    pair.send(b"ask")
    assert pair.upper.received == []

    pair.loop.turn()

    assert pair.answers() == b"ask"


@pytest.mark.parametrize("sizes", [(10, 10, 10), (10, 5_000, 10), (5_000, 10, 40_000, 10)])
def test_data_of_one_turn_keeps_its_order(pair: Pair, sizes: tuple[int, ...]) -> None:
    """Short pieces wait for their stage, longer ones do not; none overtakes another."""
    sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    for data in sent:
        pair.send(data)
    while pair.loop.steps:
        pair.loop.turn()

    assert b"".join(pair.upper.received) == b"".join(sent)
    assert pair.answers() == b"".join(sent)


@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(st.lists(pieces, max_size=5), max_size=4),
    cut=st.integers(500, 70_000),
    answers=st.lists(sizes, min_size=1, max_size=3),
)
def test_pieces_arrive_whole_and_in_order(
    turns: list[list[tuple[int, int]]], cut: int, answers: list[int]
) -> None:
    """Of every size and in every turn, on connections that share the stages; answers likewise."""
    loop = Loop()
    stages = loop.staged()
    pairs = [Pair(loop, stages) for _ in range(CLIENTS)]
    written = [b""] * CLIENTS

    def answered(client: int, _data: bytes) -> Iterator[bytes]:
        for size in answers:
            begin = len(written[client]) % 500_000
            part = NUMBERS[begin : begin + size]
            written[client] += part
            yield part

    for number, pair in enumerate(pairs):
        pair.upper.answer = functools.partial(answered, number)
    sent, received = [0] * CLIENTS, [b""] * CLIENTS

    for turn in turns:
        for client, size in turn:
            pairs[client].send(NUMBERS[sent[client] : sent[client] + size], cut)
            sent[client] += size
        loop.turn()
        received = [got + pair.answers() for got, pair in zip(received, pairs, strict=True)]
    while loop.steps:
        loop.turn()
    received = [got + pair.answers() for got, pair in zip(received, pairs, strict=True)]

    taken = [b"".join(pair.upper.received) for pair in pairs]
    assert taken == [NUMBERS[:size] for size in sent]
    assert received == written
    assert loop.problems == []


def test_responses_of_one_turn_keep_their_order(pair: Pair) -> None:
    """Short ones are held back, and sent before a long one that is not."""
    pair.upper.answer = lambda _: [b"a" * 10, b"b" * LARGE, b"c" * 10]
    pair.send(b"ask")
    pair.loop.turn()

    assert pair.answers() == b"a" * 10 + b"b" * LARGE + b"c" * 10


def test_a_response_is_sent_before_the_connection_closes(pair: Pair) -> None:
    pair.upper.closes = True
    pair.send(b"ask")
    pair.loop.turn()

    assert pair.answers() == b"ask"
    assert pair.socket.is_closed


def test_a_response_that_is_held_back_counts_as_unsent(pair: Pair) -> None:
    """Limits on unread data see it."""
    sizes: list[int] = []

    def twice(data: bytes) -> Iterator[bytes]:
        for _ in range(2):
            yield data
            sizes.append(pair.channel.get_write_buffer_size())

    pair.upper.answer = twice
    pair.send(b"12345")
    pair.loop.turn()

    assert sizes == [5, 10]
    assert pair.channel.get_write_buffer_size() == 0


def test_a_request_before_the_end_of_the_connection_is_handled(pair: Pair) -> None:
    """Its data comes before the end, although its stage would be later."""
    pair.send(b"ask")
    pair.channel.eof_received()
    pair.loop.turn()

    assert pair.upper.received == [b"ask", b"<end>"]


def test_a_request_of_a_lost_connection_is_handled_once(pair: Pair) -> None:
    """As if the connection had been lost a moment later; nothing is sent any more."""
    pair.send(b"ask")
    pair.channel.connection_lost(None)
    pair.loop.turn()

    assert pair.upper.received == [b"ask"]
    assert pair.loop.problems == []
    assert not pair.socket.written


def test_an_aborted_connection_sends_nothing(pair: Pair) -> None:
    """A response that was held back is dropped."""

    def then_abort(data: bytes) -> Iterator[bytes]:
        yield data
        pair.channel.abort()

    pair.upper.answer = then_abort
    pair.send(b"ask")
    pair.loop.turn()

    assert not pair.socket.written
