"""A store that does not answer: requests get 503, readiness fails, and both recover."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from orchid.kernel.engine.cache import feed as feed_module
from orchid.kernel.settings.errors import NotAvailable
from orchid.kernel.store.interface import Change, DeleteRange, Revision, StoreFull
from orchid.kernel.store.memory import MemoryStore
from tests.api.clusters import asked, cluster, review, revoked, webhook
from tests.api.world import Api, api
from tests.unit.kernel.engine.troubled import TroubledStore

SA = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
async def troubled(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Api, TroubledStore]]:
    monkeypatch.setattr(feed_module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(feed_module, "LONGEST_WAIT", 0.002)
    store = TroubledStore()
    async with api(server_files, store=store) as server:
        yield server, store


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- the feed has no event for this
        await asyncio.sleep(0.001)


class FullStore(MemoryStore):
    """A store on a full disk: what is there can be read."""

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        raise StoreFull("no room left for the data file")


async def test_a_first_start_on_a_full_disk_ends_with_a_sentence(server_files: Path) -> None:
    """One line for the person who starts it, and no traceback."""
    with pytest.raises(NotAvailable, match=r"cannot start: .*no room left for the data file"):
        async with api(server_files, store=FullStore()):
            pass


async def test_every_verb_says_that_the_store_is_away(
    troubled: tuple[Api, TroubledStore],
) -> None:
    """503, never a 500; what needs no store is still served."""
    server, store = troubled
    made = await server.account("a")
    page = await server.call("GET", f"{SA}?limit=1")
    store.cut()
    await until(lambda: not server.server.feed.following)
    merge = {"content-type": "application/merge-patch+json"}
    answers = [
        await server.call("GET", SA),
        await server.call("GET", f"{SA}/a"),
        await server.call("POST", SA, {"metadata": {"name": "b"}}),
        await server.call("PUT", f"{SA}/a", made),
        await server.call("PATCH", f"{SA}/a", b"{}", headers=merge),
        await server.call("DELETE", f"{SA}/a"),
        await server.call("DELETE", SA),
        await server.call("GET", f"{SA}?watch=1"),
    ]

    assert page.status == 200
    assert {answer.status for answer in answers} == {503}
    assert {answer.json["reason"] for answer in answers} == {"ServiceUnavailable"}
    assert (await server.call("GET", f"{SA}?resourceVersion=0")).status == 200
    assert (await server.call("GET", "/api/v1")).status == 200


async def test_readiness_follows_the_store(troubled: tuple[Api, TroubledStore]) -> None:
    """Not ready while it is away; ready, and with all that happened, when it is back."""
    server, store = troubled
    await server.account("a")
    store.cut()
    await until(lambda: not server.server.feed.following)
    away = await server.call("GET", "/readyz")
    store.mend()
    await until(lambda: server.server.feed.following)
    back = await server.call("GET", "/readyz")

    assert away.status == 500
    assert "[-]etcd failed: reason withheld" in away.text
    assert back.status == 200
    assert (await server.call("GET", f"{SA}/a")).status == 200


async def test_watchers_stay_through_a_short_absence(
    troubled: tuple[Api, TroubledStore],
) -> None:
    """An open watch continues, and receives the changes made meanwhile, once."""
    server, store = troubled
    async with server.watch(f"{SA}?watch=1") as stream:
        await server.account("a")
        first = await stream.next()
        store.cut()
        await until(lambda: not server.server.feed.following)
        store.mend()
        await until(lambda: server.server.feed.following)
        await server.account("b")
        second = await stream.next()

    assert [e["object"]["metadata"]["name"] for e in (first, second)] == ["a", "b"]
    assert stream.now() == []


async def test_the_webhook_of_a_cluster_does_not_answer_from_memory(
    troubled: tuple[Api, TroubledStore],
) -> None:
    """Without the store nobody knows what was revoked: 503, and the failurePolicy decides."""
    server, store = troubled
    await cluster(server)
    await revoked(server, "stolen", user={"username": "alice"})
    store.cut()
    await until(lambda: not server.server.feed.following)

    known = await server.call("POST", webhook("prod"), review("alice"))
    other = await server.call("POST", webhook("prod"), review("bob"))
    store.mend()
    await until(lambda: server.server.feed.following)

    assert (known.status, other.status) == (503, 503)
    assert (await asked(server, "alice"))["denied"] is True
    assert "denied" not in await asked(server, "bob")
