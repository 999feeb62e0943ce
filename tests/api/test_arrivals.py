"""A request sees what was written before it arrived, and asks the store for it once at most."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.http.peer import Peer
from orchid.kernel.store.interface import ABSENT, Change, Revision
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from tests.api.world import ADMIN, Api, api
from tests.security.test_fresh_rights import Behind, LaggingStore

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class CountedStore(LaggingStore):
    """Counts how often it is asked for its newest revision."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def revision(self) -> Revision:
        self.asked += 1
        return await super().revision()


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


@pytest.fixture
async def server(server_files: Path, store: CountedStore) -> AsyncIterator[Api]:
    async with api(server_files, store=store) as server:
        await server.account("old")
        yield server


@pytest.mark.parametrize(("method", "kind"), [("PATCH", "merge-patch+json"), ("DELETE", "json")])
async def test_a_write_applies_to_what_another_server_has_just_created(
    server: Api, store: CountedStore, method: str, kind: str
) -> None:
    """Of an administrator, too, whose rights no server looks up in the store."""
    behind = Behind(server, store)
    old = behind.entry(ServiceAccount, "default", "old")
    new = replace(old.object, metadata=ObjectMeta(name="new", namespace="default", uid="another"))
    created = Change(old.key.replace("/old", "/new"), stored_form(new), ABSENT)

    headers = {"content-type": f"application/{kind}"}
    answer = await behind.answer(
        created, server.call(method, f"{ACCOUNTS}/new", b"{}", token=ADMIN, headers=headers)
    )

    assert (answer.status, behind.was_early) == (200, False)


@pytest.mark.parametrize(("later", "asks"), [(0.0, 0), (1.0, 1)], ids=["before", "after"])
async def test_a_request_that_has_waited_asks_only_for_later_writes(
    server: Api, store: CountedStore, later: float, asks: int
) -> None:
    """What its turn has waited for is here; `later` is when it has waited, after the answer."""
    since = server.server.clock.monotonic()
    await asyncio.sleep(0)
    await server.server.feed.fresh()
    before = store.asked
    request = HttpRequest(
        "GET",
        f"{ACCOUNTS}/old",
        f"{ACCOUNTS}/old",
        "",
        {"authorization": f"Bearer {ADMIN}"},
        Peer("127.0.0.1:1"),
        waited_since=since + later,
    )

    answer = await server.server.chain(request)

    assert isinstance(answer, Response)
    assert answer.status == 200
    assert store.asked - before == asks
