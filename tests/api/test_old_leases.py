"""Leases of earlier processes: on the embedded store they are gone with the next start."""

from pathlib import Path

from orchid.store.memory import MemoryStore
from tests.api.world import Api, api
from tests.e2e.serving import sealing_flags

LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases"


class Kept(MemoryStore):
    """A store that outlives a server."""

    async def close(self) -> None:
        pass


async def names(server: Api) -> list[str]:
    found = (await server.call("GET", LEASES)).json["items"]
    return [one["metadata"]["name"] for one in found]


async def test_a_killed_server_does_not_count_after_a_restart(server_files: Path) -> None:
    """A step that waits for every live server would wait for it, after each restart."""
    store = Kept()
    async with api(server_files, store=store) as killed:
        await killed.server.applied.report()
        await killed.make(LEASES, {"metadata": {"name": "other"}})
        before = await names(killed)

    async with api(server_files, store=store) as server:
        after = await names(server)
        live = server.server.access.servers.live()

    assert len(before) == 2
    assert after == ["other"]
    assert live == {}


async def test_over_etcd_another_server_may_be_live(server_files: Path, tmp_path: Path) -> None:
    """Its Lease stays, and it counts."""
    store, (_, file) = Kept(), sealing_flags(tmp_path)
    on_etcd = {"etcd_servers": ["http://127.0.0.1:1"], "encryption_provider_config": file}
    async with api(server_files, store=store, **on_etcd) as one:
        await one.server.applied.report()
        async with api(server_files, store=store, **on_etcd) as two:
            assert list(two.server.access.servers.live()) == [one.server.applied.name]
