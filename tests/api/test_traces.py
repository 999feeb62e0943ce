"""How many of our files a request enters: a limit for each kind of request.

Each file is one that a reader has to open to follow the request. The connection and the caches are
warm, and the store is in memory, as in test_call_budgets.py. Of several requests the one with the
fewest files counts. docs/architecture.md names the files in order.
"""

import cProfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.api.test_call_budgets import (
    ACCOUNTS,
    AUTHENTICATION,
    OURS,
    Counting,
    Job,
    account,
)
from tests.api.world import Api, api

WARM, COUNTED = 5, 10
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
GET, POST, TOKEN_REVIEW, REVOCATION = 17, 38, 23, 60


class Tracing(Counting):
    """One connection to a server, and the files that each request on it enters."""

    async def files(self, method: str, path: str, body: Any) -> set[str]:
        self.entered: set[str] = set()
        await self.cost(method, path, body)
        return self.entered

    def counted(self, profile: cProfile.Profile) -> int:
        codes = [entry.code for entry in profile.getstats() if isinstance(entry.code, CodeType)]
        self.entered = {code.co_filename for code in codes if code.co_filename.startswith(OURS)}
        return len(self.entered)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path / "data") as made:
        await made.account("a0", "calls")
        yield made


async def fewest(server: Api, job: Job) -> int:
    tracing = Tracing(server)
    found = [await tracing.files(*job(number)) for number in range(WARM + COUNTED)]
    return min(map(len, found[WARM:]))


async def test_a_get_enters_few_files(server: Api) -> None:
    """Of an object that was read before."""
    assert await fewest(server, lambda _: ("GET", f"{ACCOUNTS}/a0", None)) <= GET


async def test_a_create_enters_few_files(server: Api) -> None:
    """Of an object that is stored; the change reaches the cache before the answer."""
    assert await fewest(server, account) <= POST


async def test_a_token_review_enters_few_files(server: Api) -> None:
    """Of a token of this server."""
    token = await server.token("a0", "calls")
    review = {"spec": {"token": token}}

    path = f"/apis/{AUTHENTICATION}/tokenreviews"
    assert await fewest(server, lambda _: ("POST", path, review)) <= TOKEN_REVIEW


async def test_a_revocation_enters_few_files(server: Api) -> None:
    """Of a token, by its id."""

    def revocation(number: int) -> tuple[str, str, Any]:
        token = {"jti": f"id-{number}", "namespace": "calls", "name": "a0"}
        spec = {"token": token, "reason": "keyCompromise"}
        return "POST", REVOCATIONS, {"metadata": {"name": f"r{number}"}, "spec": spec}

    assert await fewest(server, revocation) <= REVOCATION
