"""Leases of earlier processes: on the embedded store they are gone with the next start."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchid.features.objects.kinds.lease import signs_annotation
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.token_keys.files.file_keys import FileKeyObjects
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import Api, api
from tests.e2e.serving import sealing_flags
from tests.unit.kernel.credentials.samples import rsa_key

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
        await killed.server.context.port(AppliedRevision).report()
        await killed.make(LEASES, {"metadata": {"name": "other"}})
        before = await names(killed)

    async with api(server_files, store=store) as server:
        after = await names(server)
        live = server.server.context.port(ServerLeases).live()

    assert len(before) == 2
    assert after == ["other"]
    assert live == {}


async def test_over_etcd_another_server_may_be_live(server_files: Path, tmp_path: Path) -> None:
    """Its Lease stays, and it counts."""
    store, (_, file) = Kept(), sealing_flags(tmp_path)
    on_etcd = {"etcd_servers": ["http://127.0.0.1:1"], "encryption_provider_config": file}
    async with api(server_files, store=store, **on_etcd) as one:
        await one.server.context.port(AppliedRevision).report()
        async with api(server_files, store=store, **on_etcd) as two:
            assert list(two.server.context.port(ServerLeases).live()) == [
                one.server.context.port(AppliedRevision).name
            ]


DEAD = "orch-server-dead"


@pytest.mark.parametrize(
    ("is_renewed", "state"), [(False, "Verifying"), (True, "Active")], ids=["found", "renewed"]
)
async def test_a_key_of_files_does_not_become_active_with_a_dead_server(
    server_files: Path, tmp_path: Path, is_renewed: bool, state: str
) -> None:
    """Otherwise a server that starts would write Active, and the others Verifying."""
    other = tmp_path / "other.key"
    other.write_bytes(
        rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    flags = {
        "etcd_servers": ["http://127.0.0.1:1"],
        "service_account_signing_key_file": str(server_files / "token-signing.key"),
        "service_account_key_file": [str(server_files / "token-signing.key"), str(other)],
    }
    async with api(server_files, **flags) as server:
        shown = server.server.context.optional(FileKeyObjects)
        assert shown is not None
        await shown.update()
        before = await states(server)
        (verifying,) = [key for key, one in before.items() if one == "Verifying"]

        marks = {signs_annotation(server.server.settings.naming): verifying}
        dead = {"metadata": {"name": DEAD, "annotations": marks}, "spec": {"holderIdentity": DEAD}}
        made = await server.make(LEASES, dead)
        if is_renewed:
            again = made | {"spec": {"holderIdentity": "again"}}
            await server.call("PUT", f"{LEASES}/{DEAD}", again)
            await server.server.feed.fresh()
        await shown.update()

        assert (await states(server))[verifying] == state


async def states(server: Api) -> dict[str, str]:
    """The state of each key, by its id."""
    await server.server.feed.fresh()
    cache = server.server.feed.of(SigningKey)
    return {one.object.key_id: one.object.state for one in cache.entries.values()}
