"""Answers too long to be sent at once: slow readers, what is kept for them, and who has to go."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from orchid.kernel.http.listener import PIECES_AT_ONCE, ConnectionLimits
from orchid.kernel.http.messages import Handler, HttpRequest, Response
from orchid.kernel.http.streaming import LongBody
from tests.unit.kernel.http.listening import TEXT, Running, echo, serving, until

BODY = b"0123456789abcdef" * (1 << 20)  # more than sockets hold on the way
MOST_BUFFERED = 200_000  # a piece, and what lay there when there was still room


def answering(*, is_cached: bool = False) -> Handler:
    """A server of one long answer, and of short ones elsewhere."""

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/long":
            return Response(200, TEXT, BODY, is_cached=is_cached)
        return await echo(request)

    return handler


def blocked(running: Running, count: int) -> Callable[[], bool]:
    connections = running.listener._service.connections
    return lambda: sum(one.blocked for one in connections) == count


async def test_a_slow_reader_gets_a_long_answer_and_little_waits_for_it() -> None:
    """Only a piece of it is encrypted and buffered, and the next answer follows it."""
    async with serving(answering()) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/long")
        client.get("/next")
        await until(blocked(running, 1))
        [connection] = running.listener._service.connections

        waiting = connection._transport.get_write_buffer_size()
        held = running.listener._service.unsent.total
        client.go_on_reading()
        long, after = await client.answer(), await client.answer()

        assert waiting < MOST_BUFFERED
        assert held == len(BODY)
        assert long.body == BODY
        assert after.status == 200
        assert running.listener._service.unsent.total == 0


async def test_what_is_buffered_does_not_depend_on_when_a_reader_stops() -> None:
    """Of many who stop somewhere, none has more than a piece waiting."""
    async with serving(answering(is_cached=True)) as running:
        for number in range(12):
            client = await running.connect()
            client.get("/long")
            await client.exactly(number * 100_000 + 1000)
            client.stop_reading()
        await until(blocked(running, 12))

        connections = running.listener._service.connections
        assert max(one._transport.get_write_buffer_size() for one in connections) < MOST_BUFFERED


async def test_a_connection_is_closed_behind_a_long_answer_if_it_should_be() -> None:
    """Not before all of it was sent."""
    async with serving(answering()) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/long", "Connection: close")
        await until(blocked(running, 1))
        client.go_on_reading()

        read = await client.rest()

        assert read.endswith(BODY)


async def test_the_loop_turns_while_a_long_answer_is_sent() -> None:
    """To a reader as fast as it can be, some megabytes in each turn and no more."""
    async with serving(answering()) as running:
        client = await running.connect()
        client.get("/long")
        connections = running.listener._service.connections
        sent = [0]
        await until(lambda: any(isinstance(one._current, LongBody) for one in connections))
        [body] = [one._current for one in connections]
        reading = asyncio.ensure_future(client.answer())
        while not reading.done():
            await asyncio.sleep(0)
            sent.append(body._sent)

        assert (await reading).body == BODY
        assert max(now - before for before, now in pairwise(sent)) <= PIECES_AT_ONCE << 20


async def test_those_who_wait_longest_make_room_for_others() -> None:
    """Unread bytes of slow readers are bounded; the newest answer is always begun."""
    limits = ConnectionLimits(max_unsent_answers=2 * len(BODY))
    async with serving(answering(), limits=limits) as running:
        clients = []
        for number in range(4):
            client = await running.connect()
            client.stop_reading()
            client.get("/long")
            clients.append(client)
            await until(blocked(running, min(number + 1, 2)))
        await until(lambda: running.listener.cut_off == 2)

        for client in clients:
            client.go_on_reading()
        lasting = [await client.answer() for client in clients[2:]]

        assert [answer.body for answer in lasting] == [BODY, BODY]
        for client in clients[:2]:
            assert len(await client.rest()) < len(BODY)


async def test_one_answer_may_be_longer_than_all_may_leave_unread() -> None:
    """Nobody is cut off for being alone."""
    limits = ConnectionLimits(max_unsent_answers=1000, max_unsent_answers_per_address=1000)
    async with serving(answering(), limits=limits) as running:
        client = await running.connect()
        client.stop_reading()
        client.get("/long")
        await until(blocked(running, 1))
        client.go_on_reading()

        assert (await client.answer()).body == BODY
        assert running.listener.cut_off == 0


async def test_what_is_kept_anyway_is_not_counted() -> None:
    """Any number of slow readers share one document."""
    limits = ConnectionLimits(max_unsent_answers=len(BODY))
    async with serving(answering(is_cached=True), limits=limits) as running:
        clients = [await running.connect() for _ in range(4)]
        for client in clients:
            client.stop_reading()
            client.get("/long")
        await until(blocked(running, 4))
        for client in clients:
            client.go_on_reading()

        for client in clients:
            assert (await client.answer()).body == BODY


@pytest.mark.parametrize("leaves", ["reset", "close"])
async def test_a_reader_that_goes_away_leaves_nothing_behind(leaves: str) -> None:
    """Neither bytes that count, nor a task, nor a step that fails."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with serving(answering()) as running:
        service = running.listener._service
        client = await running.connect()
        client.stop_reading()
        client.get("/long")
        await until(blocked(running, 1))

        if leaves == "reset":
            client.reset()
        else:
            await client.close()
        await until(lambda: not service.connections)

        assert service.unsent.total == 0
        assert not service.tasks
        assert failures == []
