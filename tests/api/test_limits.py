"""How many requests may be under way, and whose: beyond that they wait, and then 429."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchid.kernel.engine.request import Target
from orchid.kernel.server import fairness
from orchid.kernel.server.fairness import Fairness, Flow
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo
from tests.api.world import ADMIN, ALICE, BOB, Answer, Api, api

SA = "/api/v1/namespaces/default/serviceaccounts"
REVIEW = "/apis/authentication.orch.io/v1/selfsubjectreviews"


@pytest.fixture
async def narrow(server_files: Path) -> AsyncIterator[Api]:
    """A server with so few seats that each level has one or two."""
    async with api(
        server_files,
        max_requests_inflight=1,
        max_mutating_requests_inflight=1,
        request_timeout="1s",
    ) as server:
        yield server


def seats_of(server: Api) -> Fairness:
    found: Fairness = server.server.chain._fairness
    return found


@contextmanager
def taken(server: Api, username: str = "somebody") -> Iterator[list[Flow]]:
    """Every seat that ordinary users can have, taken by others."""
    seats, flows = seats_of(server), []
    while True:
        user = UserInfo(username=f"{username}-{len(flows)}", groups=(AUTHENTICATED,))
        flow = seats.flow_of(user, Target("get"))
        if not flow.enter():
            break
        flows.append(flow)
    try:
        yield flows
    finally:
        for flow in flows:
            flow.leave()


async def test_beyond_the_limit_is_429(narrow: Api) -> None:
    """The answer is plain text with Retry-After, and passes once there is room."""
    with taken(narrow):
        full = await narrow.call("GET", "/api", token=BOB)
        writing = await narrow.call("POST", REVIEW, {}, token=BOB)
        admin = await narrow.call("GET", SA, token=ADMIN)
        probe = await narrow.call("GET", "/livez", token=BOB)
        page = await narrow.call("GET", "/metrics")
    free = await narrow.call("GET", "/api", token=BOB)

    assert (full.status, full.text) == (429, "Too many requests, please try again later.\n")
    assert full.header("retry-after") == "1"
    assert full.header("content-type") == "text/plain; charset=utf-8"
    assert full.header("x-content-type-options") == "nosniff"
    assert full.header("x-orch-pf-flowschema-uid")
    statuses = [answer.status for answer in (writing, admin, probe, free)]
    assert statuses == [429, 200, 200, 200]
    rejected = 'rejected_requests_total{priority_level="global-default",reason="time-out"} 2\n'
    assert rejected in page.text


async def test_a_seat_that_gets_free_goes_to_who_waits(narrow: Api) -> None:
    """Waiting is the rule, a refusal the exception."""
    with taken(narrow) as flows:
        waiting = asyncio.create_task(narrow.call("GET", "/api", token=BOB))
        await asyncio.sleep(0)
        assert not waiting.done()
        flows.pop().leave()
        answer = await waiting

    assert answer.status == 200


async def test_a_greedy_caller_waits_for_himself(
    narrow: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests beyond the caller's own queue are refused; others get their turn before the rest."""
    monkeypatch.setattr(fairness, "MOST_QUEUED_PER_FLOW", 5)
    order: list[str] = []

    async def ask(name: str, token: str) -> Answer:
        answer = await narrow.call("GET", "/api", token=token)
        order.append(name)
        return answer

    with taken(narrow) as flows:
        greedy = [asyncio.create_task(ask("greedy", BOB)) for _ in range(8)]
        await asyncio.sleep(0)
        other = asyncio.create_task(ask("other", ALICE))
        await asyncio.sleep(0)
        refused = [task for task in greedy if task.done()]
        flows.pop().leave()
        answers = await asyncio.gather(*greedy, other)

    assert [task.result().status for task in refused] == [429] * 3
    assert [answer.status for answer in answers].count(200) == 6
    assert order.index("other") <= 3 + 1  # behind three refusals and one turn of the greedy


async def test_unauthenticated_callers_take_no_seat(narrow: Api) -> None:
    """An unauthenticated request gets 401 before it takes a seat."""
    with taken(narrow):
        answer = await narrow.call("GET", SA, token=None)

    assert answer.status == 401
    assert answer.header("x-orch-pf-flowschema-uid") is None


async def test_so_many_wait_for_a_revision_and_no_more(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits without a seat, so that they have a limit of their own."""
    monkeypatch.setattr(fairness, "MOST_PARKED_PER_FLOW", 3)
    async with api(server_files) as server:
        future = f"{SA}?resourceVersion={2**60}"
        asked = [asyncio.create_task(server.call("GET", future, token=ADMIN)) for _ in range(5)]
        answers = [await task for task in asked]
        seats = seats_of(server)

    assert sorted(answer.status for answer in answers) == [429, 429, 504, 504, 504]
    assert all(level.taken == 0 for level in seats.levels.values())
    assert all(flow.is_idle for flow in seats._flows.values())


async def test_every_seat_is_given_back(narrow: Api) -> None:
    """All seats are released after any outcome, also after a cancellation."""
    seats = seats_of(narrow)
    for target in (SA, f"{SA}?limit=x", f"{SA}/none", f"{SA}?watch=1", "/nowhere"):
        await narrow.call("GET", target, token=BOB)
        await narrow.call("POST", target, {"metadata": {"name": "a"}})
    with taken(narrow):
        waiting = [asyncio.create_task(narrow.call("GET", SA, token=BOB)) for _ in range(3)]
        waiting.append(
            asyncio.create_task(narrow.call("GET", f"{SA}?resourceVersion={2**60}", token=ADMIN))
        )
        while seats.levels["global-default"].queued < len(waiting) - 1:  # noqa: ASYNC110 -- no event says so
            await asyncio.sleep(0.001)
        for task in waiting:
            task.cancel()
        gone = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(one, asyncio.CancelledError) for one in gone)
    assert (seats.reading, seats.writing) == (0, 0)
    assert all((level.taken, level.queued) == (0, 0) for level in seats.levels.values())
    assert all(not level.rotation for level in seats.levels.values())
    pool = seats.levels["exempt"].pool
    assert (pool.taken, pool.queued, pool.parked) == (0, 0, 0)


async def test_zero_means_no_limit(server_files: Path) -> None:
    """A limit of 0 turns nobody away."""
    async with api(server_files, max_requests_inflight=0) as server:
        user = UserInfo(username="somebody", groups=(AUTHENTICATED,))
        flow = seats_of(server).flow_of(user, Target("get"))
        entered = [flow.enter() for _ in range(5_000)]
        answer = await server.call("GET", "/api", token=BOB)

    assert all(entered)
    assert answer.status == 200
