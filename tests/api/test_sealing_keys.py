"""Sealing keys rotate while servers run: files change one by one, every value stays readable."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.sealing.sealing import Sealing
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import Span
from orchid.kernel.store.memory import MemoryStore
from tests.api.world import Api, api

SECRETS = "/api/v1/namespaces/vault/secrets"
STORED = "core/secrets/vault/s"
LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases"


class Kept(MemoryStore):
    """A store that outlives a server."""

    async def close(self) -> None:
        pass


def write(file: Path, *keys: str, resources: str = "secrets") -> str:
    """A file with keys, the first of them in front."""
    listed = "\n".join(
        f"      - {{name: {name}, secret: {base64.b64encode(name[-1:].encode() * 32).decode()}}}"
        for name in keys
    )
    file.touch(mode=0o600)
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
        f"- resources: [{resources}]\n  providers:\n  - aesgcm:\n      keys:\n{listed}\n"
        "  - identity: {}\n"
    )
    return str(file)


@asynccontextmanager
async def servers(
    directory: Path, store: MemoryStore, *files: str
) -> AsyncIterator[tuple[Api, ...]]:
    """Servers over one store, each with its own file; all have reported their keys."""
    async with AsyncExitStack() as opened:
        found = [
            await opened.enter_async_context(
                api(directory, store=store, encryption_provider_config=file)
            )
            for file in files
        ]
        await report(*found)
        yield tuple(found)


async def report(*found: Api) -> None:
    """Read changed files, and write the Leases."""
    for one in found:
        one.server.context.port(Sealing).check()
    for one in found:
        await one.server.context.port(AppliedRevision).report()
    for one in found:
        await one.server.feed.fresh()


async def sealed_with(store: MemoryStore, key: str = STORED) -> str:
    (record,) = (await store.read(Span.key(key))).records
    return record.value.split(b":")[4].decode() if record.value.startswith(b"k8s:enc:") else ""


async def counts(server: Api) -> dict[str, float]:
    """The metric of sealed Secrets, without zeros."""
    family = server.server.context.port(Sealing).metrics[0].family()
    found = {dict(one.labels)["key"]: one.value for one in family.samples if one.value}
    assert {dict(one.labels)["resource"] for one in family.samples} <= {"secrets"}
    return {key: float(value) for key, value in found.items() if isinstance(value, float)}


async def save(server: Api, name: str = "s") -> None:
    await server.make(SECRETS, {"metadata": {"name": name}, "stringData": {"password": "p"}})


async def test_files_change_one_by_one_and_no_server_meets_a_value_it_cannot_read(
    server_files: Path, tmp_path: Path
) -> None:
    """The new key seals when the last server has it; the leader rewrites; the old key can go."""
    store, one, two = Kept(), tmp_path / "one.yaml", tmp_path / "two.yaml"
    async with servers(server_files, store, write(one, "a"), write(two, "a")) as (first, second):
        await save(first)
        write(one, "b", "a")
        await report(first, second)
        await save(first, "while-one-has-it")
        only_one = await sealed_with(store, f"{STORED[:-1]}while-one-has-it")
        write(two, "b", "a")
        await report(first, second)
        await save(second, "when-both-have-it")
        await first.server.feed.fresh()
        both = await sealed_with(store, f"{STORED[:-1]}when-both-have-it")
        before = await counts(first)
        await first.server.context.port(Sealing).resealing(first.server.settings).turn()
        await first.server.feed.fresh()
        after = await counts(first)
        write(one, "b")
        write(two, "b")
        await report(first, second)  # all report that they seal with b
        await report(first, second)
        found = (await second.call("GET", f"{SECRETS}/s")).json

    assert (only_one, both) == ("a", "b")
    assert before["a"] >= 2
    assert after == {"b": sum(before.values())}
    assert found["data"]["password"] == base64.b64encode(b"p").decode()
    assert (
        "core/secrets/b-"
        in first.server.context.port(Sealing).annotations()["identity.orch.io/opens"]
    )
    assert (
        "core/secrets/a-"
        not in first.server.context.port(Sealing).annotations()["identity.orch.io/opens"]
    )


async def test_a_file_without_a_key_of_current_values_is_not_loaded(
    server_files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server keeps the old one, says why, and loads it when no value needs the key."""
    store, file = Kept(), tmp_path / "keys.yaml"
    async with servers(server_files, store, write(file, "b", "a")) as (server,):
        await save(server)
        write(file, "a")
        await report(server)
        refused = server.server.context.port(Sealing).metrics[1].family().samples[0].value
        found = (await server.call("GET", f"{SECRETS}/s")).status
        write(file, "c", "b", "a")
        await report(server)
        write(file, "c")
        await report(server)
        await server.server.context.port(Sealing).resealing(server.server.settings).turn()
        await server.server.feed.fresh()
        await report(server)
        loaded = server.server.context.port(Sealing).metrics[1].family().samples[0].value
        assert await sealed_with(store) == "c"

    assert (refused, found, loaded) == (1.0, 200, 0.0)
    reasons = [one.__dict__.get("why", "") for one in caplog.records]
    assert any("it lacks b, with which 3 values of secrets are sealed" in one for one in reasons)


async def test_a_key_with_which_another_server_seals_is_not_dropped(
    server_files: Path, tmp_path: Path
) -> None:
    """Its next value could not be read here."""
    store, one, two = Kept(), tmp_path / "one.yaml", tmp_path / "two.yaml"
    async with servers(server_files, store, write(one, "b", "a"), write(two, "a", "b")) as (
        first,
        second,
    ):
        write(one, "b")
        await report(first, second)
        opens = first.server.context.port(Sealing).annotations()["identity.orch.io/opens"]
        write(two, "b", "a")
        await report(second)
        await first.server.context.port(Sealing).resealing(first.server.settings).turn()
        await first.server.feed.fresh()
        await report(first, second)
        after = first.server.context.port(Sealing).annotations()["identity.orch.io/opens"]

    assert "core/secrets/a-" in opens
    assert "core/secrets/a-" not in after


async def test_a_broken_file_changes_nothing(server_files: Path, tmp_path: Path) -> None:
    """Half a file, or one that others can read: the keys in use stay."""
    store, file = Kept(), tmp_path / "keys.yaml"
    async with servers(server_files, store, write(file, "a")) as (server,):
        await save(server)
        file.write_text("apiVersion: apiserver.config.k8s.io/v1\nkind: Encr")
        await report(server)
        broken = server.server.context.port(Sealing).metrics[1].family().samples[0].value
        write(file, "b", "a")
        file.chmod(0o644)
        await report(server)
        exposed = server.server.context.port(Sealing).metrics[1].family().samples[0].value
        file.chmod(0o600)
        await report(server)
        await save(server, "later")

        assert (broken, exposed) == (1.0, 1.0)
        assert await sealed_with(store, f"{STORED[:-1]}later") == "b"
        assert (await server.call("GET", f"{SECRETS}/s")).status == 200


async def test_a_start_without_a_key_of_current_values_is_refused(
    server_files: Path, tmp_path: Path
) -> None:
    """With a sentence that names the file and the key."""
    store, file = Kept(), tmp_path / "keys.yaml"
    async with servers(server_files, store, write(file, "a")) as (server,):
        await save(server)

    with pytest.raises(BadSettings, match=r"keys\.yaml lacks a key .* sealed: a\. Add it"):
        async with servers(server_files, store, write(file, "b")):
            pass


async def test_an_old_server_holds_the_change_of_the_key(
    server_files: Path, tmp_path: Path
) -> None:
    """A live Lease without sealing keys is a server of an earlier version, which may lack it."""
    store, file = Kept(), tmp_path / "keys.yaml"
    async with servers(server_files, store, write(file, "a")) as (server,):
        await save(server)
        lease = (await server.call("GET", LEASES)).json["items"][0]
        old = {
            "metadata": {"name": f"{lease['metadata']['name']}x", "labels": {}},
            "spec": lease["spec"],
        }
        await server.make(LEASES, old)
        write(file, "b", "a")
        await report(server)
        await save(server, "later")

        assert await sealed_with(store, f"{STORED[:-1]}later") == "a"


async def test_another_resource_is_sealed_from_the_next_reload(
    server_files: Path, tmp_path: Path
) -> None:
    """Values that are there are counted, and written again."""
    store, file = Kept(), tmp_path / "keys.yaml"
    place = "/api/v1/namespaces/vault/configmaps"
    async with servers(server_files, store, write(file, "a")) as (server,):
        await server.make(place, {"metadata": {"name": "c"}})
        write(file, "a", resources="secrets, configmaps")
        await report(server)
        async with asyncio.timeout(10):
            while not await sealed_with(store, "core/configmaps/vault/c"):
                await asyncio.sleep(0.01)  # the feed loads everything again
                await server.server.context.port(Sealing).resealing(server.server.settings).turn()

        assert await sealed_with(store, "core/configmaps/vault/c") == "a"
        assert (await server.call("GET", f"{place}/c")).status == 200
