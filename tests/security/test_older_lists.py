"""A revocation list is never replaced by an earlier one, whatever is written into its ConfigMap.

Mallory may write ConfigMaps of the system namespace, and nothing else. Her certificate was revoked.
She put back the list of before, which has the right signature and had not expired: it was served
with its lower number, until the next revocation or day. Or she deleted the list.
"""

import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.api.world import Api, api
from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.e2e.worker_processes import Lines
from tests.security.test_restored_revocations import certified
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    create,
    issued,
    until_ready,
)
from tests.unit.features.beside import Beside, beside
from tests.unit.features.revoking.test_published_lists import CONTROLLERS, list_of, revoke

HOME = ORCH.system_namespace
HEAD = stored_list.head_name("web")
PUBLISHER = "revocation-list-publisher"
List = x509.CertificateRevocationList


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def world(server_files: Path, store: MemoryStore) -> AsyncIterator[Beside]:
    async with beside(server_files, store=store) as made:
        yield made


def number_of(found: List) -> int:
    return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


async def served(server: Api) -> List | None:
    """The list that anybody gets; None if there is none."""
    answer = await server.call("GET", "/crl/web.crl", token=None)
    return x509.load_der_x509_crl(answer.body) if answer.status == 200 else None


async def writer_of_maps(world: Beside) -> Client:
    """Mallory."""
    rbac = f"/apis/rbac.authorization.orch.io/v1/namespaces/{HOME}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    role = {"apiGroup": "rbac.authorization.orch.io", "kind": "Role", "name": "maps"}
    user = {"apiGroup": "rbac.authorization.orch.io", "kind": "User", "name": "mallory"}
    server = Api(world.server)
    await server.make(f"{rbac}/roles", {"metadata": {"name": "maps"}, "rules": [rule]})
    binding = {"metadata": {"name": "maps"}, "roleRef": role, "subjects": [user]}
    await server.make(f"{rbac}/rolebindings", binding)
    return world.server.clients.of_user(UserInfo(username="mallory"))


async def lists_of_two_days(world: Beside) -> tuple[ConfigMap, List]:
    """The ConfigMap of the list before the revocation, and the list after it."""
    async with world.running(*CONTROLLERS, KEEPER):
        await create(world)
        await until_ready(world)
        await list_of(world, 0, "web")
        await issued(world, "host")
        await world.until_like(
            SigningKey, "web-1", condition=lambda one: one.status.revocation_list_number > 0
        )
        before = await world.admin.get(ConfigMap, HEAD, HOME)
        await revoke(world, "host", "keyCompromise")
        newest = await list_of(world, 1, "web")
        await world.until_like(
            SigningKey,
            "web-1",
            condition=lambda one: one.status.revocation_list_number == number_of(newest),
        )
    return before, newest


async def attack(mallory: Client, before: ConfigMap, how: str) -> None:
    """Write the earlier list, or something else, in place of the newest one."""
    there = await mallory.get(ConfigMap, HEAD, HOME)
    if how in ("deleted", "created again"):
        await mallory.delete(ConfigMap, HEAD, HOME)
        if how == "created again":
            meta = ObjectMeta(name=HEAD, namespace=HOME)
            again = ConfigMap(metadata=meta, data=before.data, binary_data=before.binary_data)
            await mallory.create(again)
        return
    data, content = before.data, before.binary_data
    if how == "with the new number":
        data = {**before.data, stored_list.NUMBER: there.data[stored_list.NUMBER]}
    if how == "without a signature":
        content = {stored_list.DATA: b"0" * 500}
    await mallory.update(replace(there, data=data, binary_data=content))


ATTACKS = (
    "the earlier list",
    "with the new number",
    "without a signature",
    "deleted",
    "created again",
)


@pytest.mark.parametrize("how", ATTACKS)
async def test_no_earlier_list_is_served(
    world: Beside, server_files: Path, store: MemoryStore, how: str
) -> None:
    """Nor by a server that starts afterwards and has never seen the newest one."""
    before, newest = await lists_of_two_days(world)
    mallory = await writer_of_maps(world)

    await attack(mallory, before, how)
    found = await served(Api(world.server))
    async with api(server_files, store=store) as second:
        elsewhere = await served(second)

    assert found == newest
    assert elsewhere is None


@pytest.mark.parametrize("how", ATTACKS)
async def test_the_list_is_published_again_immediately(
    world: Beside, server_files: Path, store: MemoryStore, how: str
) -> None:
    """With another number, on every server; meanwhile the newest one is served, or none."""
    before, newest = await lists_of_two_days(world)
    mallory, server = await writer_of_maps(world), Api(world.server)
    numbers = [number_of(newest)]

    async def newer() -> List | None:
        found = await served(server)
        assert found is not None
        assert number_of(found) >= numbers[-1]
        if number_of(found) == numbers[-1]:
            return None
        numbers.append(number_of(found))
        return found

    async with world.running(PUBLISHER), api(server_files, store=store) as second:
        await world.until(newer)  # the publisher signs when it starts
        await attack(mallory, before, how)
        again = await world.until(newer)
        elsewhere = await world.until(lambda: served(second))

    assert len(again) == 1
    assert number_of(elsewhere) in numbers[1:]
    assert len(elsewhere) == 1


async def test_the_number_of_a_key_never_decreases(world: Beside) -> None:
    """Also for a user who may write the status of a SigningKey."""
    await lists_of_two_days(world)
    key = await world.admin.get(SigningKey, "web-1")
    lower = replace(key.status, revocation_list_number=key.status.revocation_list_number - 1)

    with pytest.raises(Invalid, match="must not decrease"):
        await world.admin.update_status(replace(key, status=lower))


def test_no_worker_serves_an_earlier_list(tmp_path: Path) -> None:
    """Nor after a restart while nobody publishes; the next leader publishes it again."""
    data, home, token = tmp_path / "data", tmp_path / "home", tokens_by_user()["admin"]
    home.mkdir()
    flags = ("--token-auth-file", str(TOKENS), "--workers", "2")
    maps = f"/api/v1/namespaces/{HOME}/configmaps/{stored_list.head_name('cluster')}"

    def lists(server: Server) -> list[List | None]:
        """The list of each worker."""
        with closing(Lines(token)) as lines:
            pages = [line.text("/crl/cluster.pem") for line in lines.to_each(server, 2)]
        found = [text.startswith("-----BEGIN X509 CRL") for text in pages]
        return [
            x509.load_pem_x509_crl(text.encode()) if is_list else None
            for text, is_list in zip(pages, found, strict=True)
        ]

    def revoked(server: Server) -> list[int]:
        """The number of each worker's list, once it has the certificate."""
        limit = time.monotonic() + 30
        while not all(found is not None and len(found) == 1 for found in lists(server)):
            assert time.monotonic() < limit, "the certificate is not on the list"
        return [number_of(found) for found in lists(server) if found is not None]

    with running_server(data, *flags) as server:
        person = Person(home, server.kubeconfig)
        certified(person, "mallory")
        with Https(server.port) as admin:
            before = admin.send("GET", maps, token=token).json
        person.types("revoke", "csr/mallory", "--yes", "--reason", "keyCompromise")
        newest = revoked(server)
    with running_server(data, *flags, "--controllers", "", port=server.port) as server:
        loaded = revoked(server)
        with Https(server.port) as admin:
            there = admin.send("GET", maps, token=token).json
            earlier = {**there, "data": before["data"], "binaryData": before["binaryData"]}
            answer = admin.send("PUT", maps, earlier, token=token)
        kept = revoked(server)
    with running_server(data, *flags, "--controllers", "", port=server.port) as server:
        restarted = lists(server)
    with running_server(data, *flags, port=server.port) as server:
        again = revoked(server)

    assert answer.status == 200
    assert (loaded, kept, restarted) == (newest, newest, [None, None])
    assert min(again) > max(newest)
