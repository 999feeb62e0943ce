"""A server with an authority that serves ACME, an account, and an external key for it."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.kernel.wire.naming import ORCH
from tests.api.world import Api, api
from tests.unit.features.acme.acme_client import AcmeClient
from tests.unit.features.beside import Beside, beside

SECRET = b"0123456789abcdef0123456789abcdef"
SIGNER = "example.com/servers"
KEY_TYPE = "identity.orch.io/acme-key"
AUTHORITIES = "/apis/identity.orch.io/v1alpha1/certificateauthorities"


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acme") / "data"


@dataclass
class World:
    """The server, and the account `web/frontend`."""

    api: Api
    account: dict[str, Any]
    made: Beside | None = None

    @property
    def beside(self) -> Beside:
        assert self.made is not None
        return self.made

    async def external_key(self, name: str = "eab", hours: float = 24, **notes: str) -> str:
        """Create an external account key; its identifier."""
        meta = self.account["metadata"]
        annotations = {
            ORCH.account_name_annotation: meta["name"],
            ORCH.account_uid_annotation: meta["uid"],
            **notes,
        }
        expires = (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "type": KEY_TYPE,
            "data": {"key": base64.b64encode(SECRET).decode()},
            "stringData": {"expiration": expires},
        }
        await self.api.make("/api/v1/namespaces/web/secrets", body)
        return f"web.{name}"

    async def client(self, kid: str = "", **more: Any) -> AcmeClient:
        """A client with an account."""
        made = AcmeClient(self.api, **more)
        answer = await made.register(kid or await self.external_key(f"k{id(made)}"), SECRET)
        assert answer.status == 201, answer.text
        return made


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[World]:
    async with api(server_files) as server:
        yield await prepared(server)


@pytest.fixture
async def issuing(server_files: Path) -> AsyncIterator[World]:
    async with issuing_world(server_files) as world:
        yield world


@asynccontextmanager
async def issuing_world(server_files: Path) -> AsyncIterator[World]:
    """The same, with controllers that create the authority's key, decide and sign."""
    async with beside(server_files) as made:
        names = ("certificate-authority", "csrapproving", "csrsigning", "acme-approvals")
        async with made.running(*names):
            world = await prepared(Api(made.server), made)
            await made.until_like(CertificateAuthority, "servers", "", lambda one: one.is_ready)
            yield world


async def prepared(server: Api, made: Beside | None = None) -> World:
    """An authority with ACME, and an account that may create requests."""
    spec = {
        "signerName": SIGNER,
        "key": {"algorithm": "ECDSA-P256"},
        "subject": {"commonName": "Servers"},
        "acme": {},
    }
    await server.make(AUTHORITIES, {"metadata": {"name": "servers"}, "spec": spec})
    account = await server.account("frontend", "web")
    binding = {
        "metadata": {"name": "frontend"},
        "roleRef": {"kind": "ClusterRole", "name": "acme-requester", "apiGroup": ORCH.rbac},
        "subjects": [{"kind": "ServiceAccount", "name": "frontend", "namespace": "web"}],
    }
    await server.make(f"/apis/{ORCH.rbac}/v1/clusterrolebindings", binding)
    return World(server, account, made)
