"""A removed right or credential is refused everywhere once the removal was acknowledged.

Another worker, or another server on the same store, removes it; this server gets a request before
it has received the change, and must wait for it. tests/e2e/test_fresh_rights.py tests the same with
processes.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, Batch, Change, Revision, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.user import MASTERS
from tests.api.world import ADMIN, BOB, NODE, Answer, Api, api
from tests.security.certified import cluster_authority, issued, other_authority

DEFAULT = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
SYSTEM = "/api/v1/namespaces/orch-system"
WORKER = "worker-1"
TURNS = 200  # of the loop, in which a server that does not wait has answered


class LaggingStore(MemoryStore):
    """A store whose changes arrive late, as from another process."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()
        self.heard.set()

    async def watch(self, span: Span, *, after: Revision) -> AsyncGenerator[Batch, None]:
        async for batch in super().watch(span, after=after):
            await self.heard.wait()
            yield batch


class Behind:
    """A server, and another writer to its store."""

    def __init__(self, server: Api, store: LaggingStore) -> None:
        self.server = server
        self.was_early = False  # whether the last answer came before the news
        self._store = store

    async def answer(self, change: Change, call: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer to a call that begins after a change of which the server has not heard."""
        self._store.heard.clear()
        await self._store.commit([change])
        asking = asyncio.create_task(call)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.was_early = asking.done()
        self._store.heard.set()
        return await asking

    def entry(self, type_: type[Object], namespace: str, name: str) -> Any:
        found = self.server.server.feed.of(type_).get(namespace, name)
        assert found is not None
        return found

    def entry_kind(self) -> Any:
        return self.server.server.catalog.of(ServiceAccount)

    def gone(self, type_: type[Object], namespace: str, name: str) -> Change:
        entry = self.entry(type_, namespace, name)
        return Change(entry.key, None, entry.revision)


@pytest.fixture
async def behind(server_files: Path) -> AsyncIterator[Behind]:
    store = LaggingStore()
    async with api(server_files, store=store) as server:
        yield Behind(server, store)


async def test_a_right_is_gone_with_its_binding(behind: Behind) -> None:
    """Nobody reads by a binding that was deleted before they asked."""
    server = behind.server
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    await server.make(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    group = "rbac.authorization.orch.io"
    subject = {"kind": "User", "name": "bob", "apiGroup": group}
    role = {"kind": "Role", "name": "r", "apiGroup": group}
    binding = {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role}
    await server.make(f"{RBAC}/rolebindings", binding)
    asking = f"{DEFAULT}/secrets?resourceVersion=0"
    before = await server.call("GET", asking, token=BOB)

    after = await behind.answer(
        behind.gone(RoleBinding, "default", "b"), server.call("GET", asking, token=BOB)
    )

    assert (before.status, after.status) == (200, 403)


@pytest.mark.parametrize("page", ["/metrics", "/%6detrics", "/ledger/checkpoint", "/openapi/v2"])
async def test_a_right_to_a_page_is_gone_with_its_binding(behind: Behind, page: str) -> None:
    """As with objects: only health pages answer by what has arrived."""
    server, group = behind.server, "rbac.authorization.orch.io"
    cluster = f"/apis/{group}/v1"
    rule = {"nonResourceURLs": ["/metrics", "/ledger/*", "/openapi/*"], "verbs": ["get"]}
    await server.make(f"{cluster}/clusterroles", {"metadata": {"name": "p"}, "rules": [rule]})
    subject = {"kind": "User", "name": "bob", "apiGroup": group}
    role = {"kind": "ClusterRole", "name": "p", "apiGroup": group}
    binding = {"metadata": {"name": "p"}, "subjects": [subject], "roleRef": role}
    await server.make(f"{cluster}/clusterrolebindings", binding)
    await server.call("DELETE", f"{cluster}/clusterrolebindings/system:discovery")
    before = await server.call("GET", page, token=BOB)

    after = await behind.answer(
        behind.gone(ClusterRoleBinding, "", "p"), server.call("GET", page, token=BOB)
    )

    assert (before.status == 403, after.status) == (False, 403)  # an empty ledger is not found


async def test_a_nodes_right_is_gone_with_its_pod(behind: Behind) -> None:
    """A node reads the Secrets of Pods that it runs at this moment."""
    server = behind.server
    await server.account("default")
    await server.make(f"{DEFAULT}/secrets", {"metadata": {"name": "s"}})
    volume = {"name": "v", "secret": {"secretName": "s"}}
    spec = {"nodeName": WORKER, "volumes": [volume], "containers": [{"name": "c", "image": "i"}]}
    await server.make(f"{DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": spec})
    asking = f"{DEFAULT}/secrets/s?resourceVersion=0"
    before = await server.call("GET", asking, token=NODE)

    after = await behind.answer(
        behind.gone(Pod, "default", "p"), server.call("GET", asking, token=NODE)
    )

    assert (before.status, after.status) == (200, 403)


@pytest.mark.parametrize("gone", ["account", "bound secret"])
async def test_a_token_is_gone_with_its_account_and_with_what_it_is_bound_to(
    behind: Behind, gone: str
) -> None:
    """The token of an account that another server has deleted opens nothing."""
    server = behind.server
    await server.account("robot")
    await server.make(f"{DEFAULT}/secrets", {"metadata": {"name": "s"}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    token = await server.token("robot", boundObjectRef=reference)
    change = (
        behind.gone(ServiceAccount, "default", "robot")
        if gone == "account"
        else behind.gone(Secret, "default", "s")
    )
    before = await server.call("GET", "/version", token=token)

    after = await behind.answer(change, server.call("GET", "/version", token=token))

    assert (before.status, after.status) == (200, 401)


def revoked(behind: Behind, certificate: bytes) -> Change:
    """A revocation of a certificate, as another server stores it."""
    sha256 = hashlib.sha256(certificate).hexdigest()
    spec = CredentialRevocationSpec(certificate=RevokedCertificate(sha256=sha256))
    kind = behind.server.server.catalog.of(CredentialRevocation)
    revocation = CredentialRevocation(metadata=ObjectMeta(name="stolen", uid="7"), spec=spec)
    return Change(kind.key("", "stolen"), stored_form(revocation), ABSENT)


SECRETS = f"{DEFAULT}/secrets?resourceVersion=0"
SPELLINGS = [
    SECRETS,
    SECRETS.replace("/api/", "/%61pi/"),
    SECRETS.replace("/api/", "/api%2F"),
    "/api/v1",
    "/version",
    "/metrics",
    "/ledger/checkpoint",
    "/openid/v1/jwks",
]


@pytest.mark.parametrize("asking", SPELLINGS)
async def test_a_certificate_is_gone_with_its_revocation(behind: Behind, asking: str) -> None:
    """A certificate that another server revoked is refused, also where no right is needed."""
    server = behind.server
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)
    before = await server.call("GET", asking, token=None, peer=jane.peer)

    after = await behind.answer(
        revoked(behind, jane.der), server.call("GET", asking, token=None, peer=jane.peer)
    )

    assert (before.status == 401, after.status) == (False, 401)  # an empty ledger is not found


async def test_health_is_reported_by_certificate_while_the_store_is_behind(behind: Behind) -> None:
    """Health pages do not wait for the store, with any credential."""
    server = behind.server
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)

    answer = await behind.answer(
        revoked(behind, issued(other_authority(), "other").der),
        server.call("GET", "/livez", token=None, peer=jane.peer),
    )

    assert (answer.status, behind.was_early) == (200, True)


async def test_a_bootstrap_token_is_gone_with_its_secret(behind: Behind) -> None:
    """It is the Secret; without that there is no such token."""
    server = behind.server
    data = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
    }
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    name = "bootstrap-token-abcdef"
    body = {"metadata": {"name": name}, "type": "bootstrap.orch.io/token", "data": coded}
    await server.make(f"{SYSTEM}/secrets", body)
    token = "abcdef.0123456789abcdef"
    before = await server.call("GET", "/version", token=token)

    after = await behind.answer(
        behind.gone(Secret, "orch-system", name), server.call("GET", "/version", token=token)
    )

    assert (before.status, after.status) == (200, 401)


async def test_nothing_comes_into_a_namespace_that_is_on_its_way_out(behind: Behind) -> None:
    """Also not by the administrator, whose rights nobody has to look up."""
    server = behind.server
    await server.make("/api/v1/namespaces", {"metadata": {"name": "old"}})
    entry = behind.entry(Namespace, "", "old")
    marked = entry.object.with_meta(deletion_timestamp=entry.meta.creation_timestamp)
    change = Change(entry.key, encode(marked.with_meta(resource_version="")), entry.revision)
    body = {"metadata": {"name": "late"}}

    after = await behind.answer(
        change,
        server.call("POST", "/api/v1/namespaces/old/serviceaccounts?dryRun=All", body, token=ADMIN),
    )

    assert after.status == 403
    assert "being terminated" in after.json["message"]


async def test_a_node_brings_no_namespace_with_it(behind: Behind) -> None:
    """Writing into a namespace that is not there takes the right to create it."""
    server = behind.server
    event = {
        "metadata": {"name": "e", "namespace": "invented"},
        "involvedObject": {"kind": "Node", "name": WORKER, "namespace": "invented"},
        "reason": "Because",
        "type": "Normal",
    }

    refused = await server.call("POST", "/api/v1/namespaces/invented/events", event, token=NODE)
    missing = await server.call("GET", "/api/v1/namespaces/invented")
    granted = await server.call("POST", "/api/v1/namespaces/invented/events", event, token=ADMIN)

    assert (refused.status, missing.status, granted.status) == (404, 404, 201)
    assert refused.json["message"] == 'namespaces "invented" not found'


@pytest.mark.parametrize("page", ["/livez", "/readyz", "/healthz"])
async def test_health_is_reported_while_the_store_is_behind(behind: Behind, page: str) -> None:
    """Health pages hold nothing of the store, and wait for nobody."""
    server = behind.server
    await server.account("any")
    change = behind.gone(ServiceAccount, "default", "any")

    answer = await behind.answer(change, server.call("GET", page, token=BOB))

    assert (answer.status, behind.was_early) == (200, True)
