"""A sealing key that was replaced does not come back: a start seals nothing with it."""

import base64
from pathlib import Path

from orchid.features.objects.kinds.lease import opens_annotation
from orchid.features.objects.server_leases import ServerLeases
from orchid.kernel.store.encryption import key_name
from orchid.kernel.wire.naming import ORCH
from tests.api.test_old_leases import DEAD, LEASES, Kept
from tests.api.world import Api, api

SECRETS = "/api/v1/namespaces/default/secrets"


def lease_of(name: str, opens: str) -> dict[str, object]:
    """The Lease of a server, as it reports the keys that it can open values with."""
    marks = {opens_annotation(ORCH): opens}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"holderIdentity": name}}


def key_file(directory: Path, *names: str) -> dict[str, object]:
    """Settings of a server over etcd with these sealing keys, the first one in front."""
    listed = ", ".join(
        f"{{name: {name}, secret: {base64.b64encode(name[-1:].encode() * 32).decode()}}}"
        for name in names
    )
    file = directory / f"{'-'.join(names)}.yaml"
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
        f"- resources: [secrets]\n  providers:\n  - aesgcm: {{keys: [{listed}]}}\n"
    )
    file.chmod(0o600)
    return {"etcd_servers": ["http://127.0.0.1:1"], "encryption_provider_config": str(file)}


def seals(server: Api) -> set[str]:
    """The names of the keys with which a server seals."""
    return {key_name(one.rpartition("/")[2]) for one in server.server.store.sealing_ids()}


async def test_a_start_seals_no_secret_with_the_key_before(
    server_files: Path, tmp_path: Path
) -> None:
    """The Lease of a server that was killed before it had the new key stays for minutes."""
    store = Kept()
    async with api(server_files, store=store, **key_file(tmp_path, "key1")) as before:
        opened = ",".join(before.server.store.key_ids())
    async with api(server_files, store=store, **key_file(tmp_path, "key2", "key1")) as first:
        for number in range(3):
            await first.make(SECRETS, {"metadata": {"name": f"s{number}"}})
        await first.make(LEASES, lease_of(DEAD, opens=opened))

    async with api(server_files, store=store, **key_file(tmp_path, "key2", "key1")) as started:
        counted = set(started.server.context.port(ServerLeases).live())
        after = seals(started)
        stale = [one for one in started.server.store.stale_keys(1000) if "/default/s" in one]

    assert counted == {DEAD}
    assert after == {"key2"}
    assert stale == []


async def test_a_key_waits_for_a_server_that_may_live(server_files: Path, tmp_path: Path) -> None:
    """No value is sealed with it yet: a server that was just found may not be able to open it."""
    store = Kept()
    async with api(server_files, store=store, **key_file(tmp_path, "key1")) as before:
        await before.make(SECRETS, {"metadata": {"name": "a"}})
        opened = ",".join(before.server.store.key_ids())
        await before.make(LEASES, lease_of(DEAD, opens=opened))

    async with api(server_files, store=store, **key_file(tmp_path, "key2", "key1")) as started:
        assert seals(started) == {"key1"}


async def test_a_live_server_without_a_key_takes_it_back(
    server_files: Path, tmp_path: Path
) -> None:
    """It renews its Lease and cannot open the key: the others seal so that it can read."""
    store = Kept()
    async with api(server_files, store=store, **key_file(tmp_path, "key1")) as before:
        opened = ",".join(before.server.store.key_ids())
    async with api(server_files, store=store, **key_file(tmp_path, "key2", "key1")) as server:
        await server.make(SECRETS, {"metadata": {"name": "a"}})
        alone = seals(server)
        made = await server.make(LEASES, lease_of(DEAD, opens=opened))
        await server.call("PUT", f"{LEASES}/{DEAD}", made | {"spec": {"holderIdentity": "again"}})
        await server.server.feed.fresh()

        assert alone == {"key2"}
        assert seals(server) == {"key1"}
