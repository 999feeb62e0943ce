"""Requests that wait for one result together: without a task, and as safely as with one."""

import asyncio

import pytest

from orchid.kernel.base.scheduling.shared_result import SharedResult
from orchid.kernel.http.messages import CallerStatus, HttpRequest, Response
from tests.unit.kernel.http.listening import PATIENCE, TEXT, serving, until

MANY = 70  # more than are served together


def new_wait() -> SharedResult[str]:
    return SharedResult(asyncio.get_running_loop())


async def test_many_requests_wait_together_and_need_no_task() -> None:
    """Each is answered with the result, after it and not before."""
    wait, waiting, tasks = new_wait(), [], set()

    async def handler(request: HttpRequest) -> Response:
        waiting.append(request.path)
        result = await wait
        tasks.add(asyncio.current_task())
        return Response(200, TEXT, result.encode() + request.path.encode())

    async with serving(handler) as running:
        clients = [await running.connect() for _ in range(MANY)]
        for number, client in enumerate(clients):
            client.get(f"/{number}")
        await until(lambda: len(waiting) == MANY)
        wait.finish("done")
        answers = [await client.answer() for client in clients]

    assert [answer.body for answer in answers] == [b"done/%d" % n for n in range(MANY)]
    assert tasks == {None}


async def test_each_request_gets_a_failure_of_its_own() -> None:
    """A failed call fails all that waited for it; a shared exception would grow."""
    wait, found = new_wait(), []

    async def handler(request: HttpRequest) -> Response:
        try:
            await wait
        except ValueError as problem:
            found.append(problem)
            raise
        return Response(200)

    async with serving(handler) as running:
        clients = [await running.connect() for _ in range(3)]
        for client in clients:
            client.get("/")
        await until(lambda: running.listener.requests == 3)
        wait.fail(ValueError)
        answers = [await client.answer() for client in clients]

    assert [(answer.status, answer.body) for answer in answers] == [(500, b"ValueError")] * 3
    assert len({id(problem) for problem in found}) == 3


async def test_a_result_that_is_there_is_not_waited_for() -> None:
    wait = new_wait()
    wait.finish("done")

    assert await wait == "done"


async def test_a_handler_that_waits_for_two_results_still_needs_no_task() -> None:
    first, second = new_wait(), new_wait()

    async def handler(request: HttpRequest) -> Response:
        body = await first + await second
        return Response(200, TEXT, body.encode() + str(asyncio.current_task()).encode())

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)
        first.finish("a")
        await asyncio.sleep(0)
        second.finish("b")

        assert (await client.answer()).body == b"abNone"


async def test_a_handler_may_wait_for_anything_afterwards() -> None:
    """From its first other wait on it runs in a task, with timeouts and task groups."""
    wait = new_wait()

    async def handler(request: HttpRequest) -> Response:
        result = await wait
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return Response(200, TEXT, result.encode())

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)
        wait.finish("done")

        assert (await client.answer()).body == b"done"


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_request_that_waits_too_long_is_cancelled_and_answered_once(
    stubborn: bool,
) -> None:
    """The result that comes later changes nothing, even for a handler that goes on."""
    wait, ends = new_wait(), []

    async def handler(request: HttpRequest) -> Response:
        if request.path == "/fine":
            return Response(200, TEXT, b"fine")
        request.timeout = 0.01
        try:
            await wait
        except asyncio.CancelledError:
            ends.append(request.path)
            if not stubborn:
                raise
            await asyncio.sleep(0)
        return Response(200, TEXT, b"late")

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/stuck")
        first = await client.answer()
        await until(lambda: ends == ["/stuck"])
        wait.finish("done")
        client.get("/fine")
        second = await client.answer()

    assert (first.status, first.body) == (504, b"too late")
    assert second.body == b"fine"


async def test_a_client_that_leaves_does_not_stop_a_request_that_waits() -> None:
    """The work is finished, also while the server stops; the answer is dropped."""
    wait, ended = new_wait(), asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        await wait
        ended.set()
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)
        client.reset()
        await until(lambda: running.listener.connections == 0)
        stopping = asyncio.create_task(running.listener.drain(PATIENCE))
        await asyncio.sleep(0)
        assert not stopping.done()
        wait.finish("done")
        await stopping

    assert ended.is_set()


async def test_the_sender_of_a_body_may_be_authenticated_by_a_shared_result() -> None:
    """The body is read after it."""
    wait: SharedResult[str] = new_wait()

    async def recognize(request: HttpRequest) -> CallerStatus:
        return CallerStatus.KNOWN if await wait else CallerStatus.REFUSED

    async def handler(request: HttpRequest) -> Response:
        return Response(200, TEXT, request.body)

    async with serving(handler, recognize=recognize) as running:
        client = await running.connect()
        client.get("/", "Content-Length: 4", method="POST")
        await until(lambda: bool(wait._futures))
        wait.finish("known")
        client.send(b"body")

        assert (await client.answer()).body == b"body"


async def test_a_request_that_waits_is_cancelled_when_the_time_to_drain_is_up() -> None:
    """As one with a task: it ends before drain returns, and what it waits for changes nothing."""
    wait, ends = new_wait(), []

    async def handler(request: HttpRequest) -> Response:
        try:
            await wait
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("done")
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        await until(lambda: running.listener.requests == 1)

        await running.listener.drain(grace=0.01)

        assert ends == ["cancelled"]
        wait.finish("done")
        await asyncio.sleep(0)
    assert ends == ["cancelled"]


async def test_a_cancelled_handler_is_not_continued_by_what_it_waited_for() -> None:
    """While it cleans up, it waits for something else."""
    first, second, ends = new_wait(), new_wait(), []

    async def handler(request: HttpRequest) -> Response:
        request.timeout = 0.01
        try:
            await first
        finally:
            ends.append(await second)
        return Response(200)

    async with serving(handler) as running:
        client = await running.connect()
        client.get("/")
        assert (await client.answer()).status == 504
        first.finish("first")
        for _ in range(3):
            await asyncio.sleep(0)
        assert ends == []
        second.finish("second")
        await until(lambda: bool(ends))

    assert ends == ["second"]


@pytest.mark.parametrize("end", ["finish", "fail"])
async def test_nobody_joins_a_wait_that_is_over(end: str) -> None:
    wait = new_wait()
    wait.is_open = True

    if end == "finish":
        wait.finish("done")
    else:
        wait.fail(ValueError)

    assert not wait.is_open
