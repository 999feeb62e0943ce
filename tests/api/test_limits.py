"""How many requests may be under way: beyond that 429, but never for those who must look."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.world import ADMIN, BOB, Api, api

SA = "/api/v1/namespaces/default/serviceaccounts"
REVIEW = "/apis/authentication.orch.io/v1/selfsubjectreviews"


@pytest.fixture
async def narrow(server_files: Path) -> AsyncIterator[Api]:
    """A server with one place for reading and one for writing."""
    async with api(
        server_files, max_requests_inflight=1, max_mutating_requests_inflight=1
    ) as server:
        yield server


async def test_beyond_the_limit_is_429(narrow: Api) -> None:
    """The answer is plain text with Retry-After, and passes once there is room."""
    limits = narrow.server.chain._in_flight
    with limits.reading:
        full = await narrow.call("GET", "/api", token=BOB)
        writing = await narrow.call("POST", REVIEW, {}, token=BOB)
        admin = await narrow.call("GET", SA, token=ADMIN)
    free = await narrow.call("GET", "/api", token=BOB)

    assert (full.status, full.text) == (429, "Too many requests, please try again later.\n")
    assert full.header("retry-after") == "1"
    assert full.header("content-type") == "text/plain; charset=utf-8"
    assert full.header("x-content-type-options") == "nosniff"
    assert full.header("x-orch-pf-flowschema-uid")
    assert (writing.status, admin.status, free.status) == (201, 200, 200)


async def test_reading_and_writing_have_places_of_their_own(narrow: Api) -> None:
    """A flood of writes does not starve who only looks."""
    with narrow.server.chain._in_flight.writing:
        refused = await narrow.call("POST", REVIEW, {}, token=BOB)
        reading = await narrow.call("GET", "/api", token=BOB)

    assert (refused.status, reading.status) == (429, 200)


async def test_unauthenticated_callers_take_no_place(narrow: Api) -> None:
    """Who is not known is told so before places are counted."""
    with narrow.server.chain._in_flight.reading:
        answer = await narrow.call("GET", SA, token=None)

    assert answer.status == 401
    assert answer.header("x-orch-pf-flowschema-uid") is None


async def test_every_place_is_given_back(narrow: Api) -> None:
    """Whatever becomes of requests, nothing is left taken, also when they are given up."""
    limits = narrow.server.chain._in_flight
    for target in (SA, f"{SA}?limit=x", f"{SA}/none", f"{SA}?watch=1", "/nowhere"):
        await narrow.call("GET", target)
        await narrow.call("POST", target, {"metadata": {"name": "a"}})
    waiting = asyncio.create_task(narrow.call("GET", f"{SA}?resourceVersion={2**60}", token=ADMIN))
    await asyncio.sleep(0)
    assert limits.reading.taken == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (limits.reading.taken, limits.writing.taken) == (0, 0)


async def test_zero_means_no_limit(server_files: Path) -> None:
    """A limit of 0 turns nobody away."""
    async with api(server_files, max_requests_inflight=0) as server:
        room = server.server.chain._in_flight.reading
        with room, room, room:
            assert (await server.call("GET", "/api", token=BOB)).status == 200
