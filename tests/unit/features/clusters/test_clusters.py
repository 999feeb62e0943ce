"""Clusters: their certificates get into the inventory, and their silence is reported.

The cluster is the server itself: its certificate requests are read under another name.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.cluster_status import ClusterStatusWriter
from orchid.features.clusters.connection import ClusterConnection
from orchid.features.clusters.controllers.check_clusters import CheckClusters
from orchid.features.clusters.controllers.clean_clusters import CleanClusters
from orchid.features.clusters.controllers.record_cluster_certificates import (
    RecordClusterCertificates,
)
from orchid.features.clusters.kinds.cluster import (
    INVENTORIED,
    Cluster,
    ClusterInventory,
    ClusterSpec,
    ClusterStatus,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.rights.kinds.role import Role
from orchid.features.rights.kinds.role_binding import RoleBinding, RoleRef, Subject
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.remote import InvalidRemote
from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import rule
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.struct import replace
from tests.security.left_behind import put
from tests.unit.features.beside import Beside
from tests.unit.features.certificates.test_issued_certificates import issued

HOME = ORCH.system_namespace
SECRET = "cluster-prod"


class Elsewhere:
    """The API server of the cluster: the same objects, and answers to token requests."""

    def __init__(self, world: Beside) -> None:
        self._world = world
        self.sent: list[tuple[str, str, Any]] = []
        self.token = token_of(world, 3600)
        self.answer: bytes | None = None  # instead of a token

    def connect(self, kubeconfig: bytes, where: str) -> ClusterConnection:
        if kubeconfig == b"nonsense":
            raise InvalidRemote(f"{where} is not a kubeconfig")
        return ClusterConnection(self._world.admin, self)

    async def send(self, method: str, target: str, body: bytes = b"", media: str = "") -> Answer:
        self.sent.append((method, target, json.loads(body)))
        token = json.dumps({"status": {"token": self.token}}).encode()
        return Answer(201, token if self.answer is None else self.answer)

    def stream(self, target: str) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def token_of(world: Beside, age: int) -> str:
    """A token of an account that has lived for some seconds of two hours."""
    now = int(world.clock.now().timestamp())
    claims = {"sub": "system:serviceaccount:kube-system:reader", "iat": now - age}
    text = json.dumps({**claims, "exp": claims["iat"] + 7200}).encode()
    return f"e30.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.c2ln"


@asynccontextmanager
async def recording(world: Beside, elsewhere: Elsewhere) -> AsyncIterator[None]:
    client = world.server.clients("cluster-inventory")
    controller = RecordClusterCertificates(client, elsewhere.connect, world.clock, ORCH)
    task = asyncio.create_task(controller.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def registered(world: Beside) -> Cluster:
    authorities = await asyncio.to_thread(world.server.files.ca_certificate.read_text)
    inventory = ClusterInventory(secret_name=SECRET)
    spec = ClusterSpec(
        issuer="https://prod.example", client_authorities=authorities, inventory=inventory
    )
    return await world.admin.create(Cluster(metadata=ObjectMeta(name="prod"), spec=spec))


async def granted(world: Beside, kubeconfig: bytes) -> None:
    """The Secret, and the Role for it, as `orchid cluster add` makes them."""
    meta = ObjectMeta(name=SECRET, namespace=HOME)
    await world.admin.create(Secret(metadata=meta, data={"kubeconfig": kubeconfig}))
    allowed = rule(("get", "update"), "", ("secrets",), SECRET)
    await world.admin.create(Role(metadata=meta, rules=(allowed,)))
    subject = Subject(kind="ServiceAccount", name="cluster-inventory", namespace=HOME)
    reference = RoleRef(api_group=ORCH.rbac, kind="Role", name=SECRET)
    await world.admin.create(RoleBinding(metadata=meta, subjects=(subject,), role_ref=reference))


def kubeconfig_with(token: str) -> bytes:
    return json.dumps({"users": [{"name": "a", "user": {"token": token}}]}).encode()


async def condition(world: Beside, status: str) -> Condition:
    """The condition Inventoried, once it has this status."""

    async def look() -> Condition | None:
        found = (await world.admin.get(Cluster, "prod")).status.conditions
        wanted = (one for one in found if (one.type, one.status) == (INVENTORIED, status))
        return next(wanted, None)

    return await world.until(look)


async def test_certificates_that_exist_and_that_come_are_recorded(world: Beside) -> None:
    """With request and requester; once each, also after the controller has started again."""
    elsewhere = Elsewhere(world)
    await registered(world)
    await granted(world, kubeconfig_with(token_of(world, 10)))
    async with world.running("csrsigning"):
        first = await issued(world, "before")
        async with recording(world, elsewhere):
            await condition(world, "True")
            second = await issued(world, "after")
            for leaf, name in ((first, "before"), (second, "after")):
                data = leaf.public_bytes(serialization.Encoding.DER)
                record = await world.until_like(
                    IssuedCertificate, f"prod.{hashlib.sha256(data).hexdigest()}"
                )
                assert (record.spec.request.name, record.spec.cluster) == (name, "prod")
                assert record.spec.request.created is not None
                assert record.spec.requester.username == "alice"
        async with recording(world, elsewhere):
            await condition(world, "True")

    assert elsewhere.sent == []  # the token is young


async def test_why_nothing_is_recorded_is_a_condition(world: Beside) -> None:
    """No right, no Secret, an unusable kubeconfig; it goes on when that is mended."""
    await registered(world)
    async with recording(world, Elsewhere(world)):
        refused = await condition(world, "False")
        assert "forbidden" in refused.message

        await granted(world, b"nonsense")

        def is_unusable(one: Cluster) -> bool:
            return any("is not a kubeconfig" in each.message for each in one.status.conditions)

        await world.until_like(Cluster, "prod", condition=is_unusable)
        secret = await world.admin.get(Secret, SECRET, HOME)
        await world.admin.update(replace(secret, data={"kubeconfig": kubeconfig_with("plain")}))
        await condition(world, "True")


async def test_a_token_is_renewed_when_half_of_its_life_is_over(world: Beside) -> None:
    """By the account itself, for as long again; the Secret has the new one."""
    elsewhere = Elsewhere(world)
    elsewhere.token = token_of(world, 0)
    await registered(world)
    await granted(world, kubeconfig_with(token_of(world, 4000)))

    async with recording(world, elsewhere):
        await condition(world, "True")

    (sent,) = elsewhere.sent
    assert sent[:2] == ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/reader/token")
    assert sent[2]["spec"] == {"expirationSeconds": 7200}
    secret = await world.admin.get(Secret, SECRET, HOME)
    assert elsewhere.token in secret.data["kubeconfig"].decode()


@pytest.mark.parametrize(
    "answer", [b"nonsense", b"[]", b'{"status": null}', b'{"status": {"token": 5}}']
)
async def test_a_cluster_that_answers_nonsense_stops_nothing(
    world: Beside, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its old token is used on, and other clusters are recorded: one controller serves all."""
    elsewhere = Elsewhere(world)
    elsewhere.answer = answer
    await registered(world)
    old = kubeconfig_with(token_of(world, 4000))
    await granted(world, old)

    async with recording(world, elsewhere):
        await condition(world, "True")

    assert "cluster.token_not_renewed" in caplog.text
    assert (await world.admin.get(Secret, SECRET, HOME)).data["kubeconfig"] == old


async def cluster(world: Beside, name: str) -> Cluster:
    spec = ClusterSpec(issuer="https://prod.example")
    return await world.admin.create(Cluster(metadata=ObjectMeta(name=name), spec=spec))


async def test_revocations_of_a_removed_cluster_stay(world: Beside) -> None:
    """A restore brings the cluster back, with everything that was revoked."""
    spec = CredentialRevocationSpec(cluster="prod", user=RevokedUser(username="jane"))
    revocation = CredentialRevocation(metadata=ObjectMeta(name="jane"), spec=spec)
    await cluster(world, "prod")
    await world.admin.create(revocation)
    await world.admin.delete(Cluster, "prod")

    cleaner = CleanClusters(world.server.clients("cluster-cleaner"))
    await cleaner.attend("", None)
    await cleaner.attend("prod", None)

    assert await world.admin.find(CredentialRevocation, "jane") is not None


async def test_the_records_of_a_removed_cluster_are_removed(world: Beside) -> None:
    """Though their certificates are still valid."""
    await registered(world)
    await granted(world, kubeconfig_with("plain"))
    async with world.running("csrsigning"), recording(world, Elsewhere(world)):
        leaf = await issued(world, "alice")
        data = leaf.public_bytes(serialization.Encoding.DER)
        name = f"prod.{hashlib.sha256(data).hexdigest()}"
        await world.until_like(IssuedCertificate, name)

    await world.admin.delete(Cluster, "prod")
    async with world.running("cluster-cleaner"):
        await world.until_gone(IssuedCertificate, name)
    assert await world.admin.find(IssuedCertificate, f"{leaf.serial_number:x}") is not None


async def test_the_records_of_an_earlier_cluster_of_the_name_are_removed(world: Beside) -> None:
    """By uid, also if it was created again in the same second and nobody saw it removed."""
    before = await cluster(world, "prod")
    await world.admin.delete(Cluster, "prod")
    now = await cluster(world, "prod")
    for name, uid in (("prod.a", before.metadata.uid), ("prod.b", now.metadata.uid)):
        meta = ObjectMeta(name=name, uid=name, creation_timestamp=now.metadata.creation_timestamp)
        spec = IssuedCertificateSpec(cluster="prod", cluster_uid=uid)
        await put(world, IssuedCertificate(metadata=meta, spec=spec))

    async with world.running("cluster-cleaner"):
        await world.until_gone(IssuedCertificate, "prod.a")

    assert await world.admin.find(IssuedCertificate, "prod.b") is not None


async def test_a_cluster_that_does_not_call_is_reported(world: Beside) -> None:
    """After ten minutes without a call; a call makes it connected again."""
    called_by = (await cluster(world, "prod")).metadata
    calls = ClusterCalls(world.clock)
    writer = ClusterStatusWriter(calls, world.admin, world.clock)

    async def connected() -> list[str]:
        """The condition after each of two sweeps; the second one has nothing to write."""
        found = []
        for _ in range(2):
            await checker.sweep()
            current = await world.admin.get(Cluster, "prod")
            found += [one.status for one in current.status.conditions]
        return found

    checker = CheckClusters(world.server.clients("cluster-checker"), world.clock)
    new = await connected()
    world.clock.ahead += timedelta(minutes=11)
    silent = await connected()
    calls.answered(called_by, world.clock.monotonic(), denied=False)
    await writer.write()
    called = await connected()
    world.clock.ahead += timedelta(minutes=11)

    assert (new, silent, called) == ([], ["False", "False"], ["True", "True"])
    assert await connected() == ["False", "False"]


async def test_calls_of_an_earlier_cluster_are_not_in_the_status(world: Beside) -> None:
    before = await cluster(world, "prod")
    calls = ClusterCalls(world.clock)
    calls.answered(before.metadata, world.clock.monotonic(), denied=True)
    await world.admin.delete(Cluster, "prod")
    await cluster(world, "prod")

    await ClusterStatusWriter(calls, world.admin, world.clock).write()

    assert (await world.admin.get(Cluster, "prod")).status == ClusterStatus()


class Followed(RecordClusterCertificates):
    """Notes which clusters are followed, in place of doing so."""

    def __init__(self, *batches: list[Any]) -> None:
        parts: Any = self, None, None, ORCH
        super().__init__(*parts)
        self._batches = batches
        self.kept: list[str] = []
        self.now: set[str] = set()
        self._stopped = asyncio.Event()

    async def follow(self, _selection: Any) -> AsyncIterator[list[Any]]:
        """As a client."""
        for batch in self._batches:
            yield batch
            await asyncio.sleep(0)

    async def _keep(self, cluster: Cluster) -> None:
        self.kept.append(cluster.name)
        self.now.add(cluster.name)
        try:
            await self._stopped.wait()
        finally:
            self.now.discard(cluster.name)

    def stop(self) -> None:
        self._stopped.set()


def seen(secret: str = "", type_: str = "MODIFIED", name: str = "prod") -> Any:
    inventory = ClusterInventory(secret_name=secret) if secret else None
    spec = ClusterSpec(issuer="https://prod.example", inventory=inventory)
    return SimpleNamespace(type=type_, object=Cluster(metadata=ObjectMeta(name=name), spec=spec))


@pytest.mark.parametrize(
    ("batches", "kept", "now"),
    [
        ([[seen("a", "ADDED")], [seen("a")]], ["prod"], {"prod"}),
        ([[seen("a")], [seen()]], ["prod"], set()),
        ([[seen("a")], [seen()], [seen("a")]], ["prod", "prod"], {"prod"}),
        ([[seen("a")], [seen("a", "DELETED")], [seen("a")]], ["prod", "prod"], {"prod"}),
        ([[seen("a")], [seen("b")]], ["prod", "prod"], {"prod"}),
        ([[seen("a"), seen("a", name="test")], [seen()]], ["prod", "test"], {"test"}),
    ],
    ids=["unchanged", "taken", "given again", "created again", "another", "two clusters"],
)
async def test_a_cluster_is_followed_while_it_has_an_inventory(
    batches: list[list[Any]], kept: list[str], now: set[str]
) -> None:
    """By one task each, also after its inventory was away."""
    controller = Followed(*batches)

    async with asyncio.TaskGroup() as tasks:
        await controller._follow_clusters(tasks)
        await asyncio.sleep(0)
        there = set(controller.now)
        controller.stop()

    assert controller.kept == kept
    assert there == now
