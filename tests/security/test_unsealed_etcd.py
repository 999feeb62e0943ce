"""etcd without encryption: it is said, no key is made for it, and a missing key is noticed.

The attacker has a copy of etcd's data directory. Without --encryption-provider-config it would hold
the private key of every authority in clear text, as both shipped deployments once did.
"""

import logging
import re
from pathlib import Path

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.conditions import FALSE, READY
from tests.api.world import Api, api
from tests.e2e.serving import sealing_flags
from tests.unit.features.beside import Beside, beside

KEEPER = "certificate-authority"
HOME = "orch-system"
ON_ETCD = {"etcd_servers": ["https://127.0.0.1:1"]}  # as the settings say; the store is in memory
SPEC = {"signerName": "example.com/web", "key": {}, "subject": {"commonName": "Web CA"}}
SIGNING_KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
SECRETS = "/api/v1/namespaces/vault/secrets"


def edit(file: str, pattern: str, replacement: str) -> None:
    """Replace the first match of a pattern in a file."""
    path = Path(file)
    path.write_text(re.sub(pattern, replacement, path.read_text(), count=1))


async def authority_of(world: Beside) -> CertificateAuthority:
    """An authority whose key the server is to make, once the controller has looked at it."""
    body = {"metadata": {"name": "web"}, "spec": SPEC}
    await world.admin.create(convert(body, CertificateAuthority))
    async with world.running(KEEPER):
        return await world.until_like(
            CertificateAuthority, "web", condition=lambda one: bool(one.status.conditions)
        )


async def test_no_key_of_an_authority_gets_into_etcd_in_clear_text(
    server_files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The authority says why it is not ready, and the start has warned of it."""
    with caplog.at_level(logging.WARNING):
        async with beside(server_files, **ON_ETCD) as world:
            found = await authority_of(world)
            secrets = await world.admin.find(Secret, "web", HOME)

    ready = next(one for one in found.status.conditions if one.type == READY)
    assert (ready.status, ready.reason) == (FALSE, "KeyNotSealed")
    assert "--encryption-provider-config" in ready.message
    assert secrets is None
    assert "store.unsealed" in caplog.text


@pytest.mark.parametrize("provider", ["aesgcm", "identity"])
async def test_a_given_file_decides(
    server_files: Path, tmp_path: Path, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With a key, or with `identity` as the word of the operator, the key is made."""
    _, file = sealing_flags(tmp_path)
    if provider == "identity":
        edit(file, r"  - aesgcm: .*\n", "")
    store = MemoryStore()
    given = {**ON_ETCD, "encryption_provider_config": file}
    async with beside(server_files, store=store, **given) as world:
        found = await authority_of(world)

    assert found.is_ready
    assert "store.unsealed" not in caplog.text


async def test_what_an_authority_owns_is_not_made_by_others_either(server_files: Path) -> None:
    """A controller that runs elsewhere does not know the settings of the server."""
    owner = {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "CertificateAuthority",
        "name": "web",
        "uid": "u",
        "controller": True,
    }
    body = {"metadata": {"name": "key", "ownerReferences": [owner]}}
    async with api(server_files, **ON_ETCD) as server:
        answer = await server.call("POST", SECRETS, body)
        own = await server.call("POST", SECRETS, {"metadata": {"name": "own"}})

    assert answer.status == 403
    assert "Secrets are not encrypted in the store" in answer.json["message"]
    assert own.status == 201


@pytest.mark.parametrize("lacks", ["the file", "the key"])
async def test_a_server_without_the_key_of_sealed_secrets_is_not_ready(
    server_files: Path, tmp_path: Path, lacks: str
) -> None:
    """It would serve everything but Secrets, and a load balancer would send it requests."""
    _, file = sealing_flags(tmp_path)
    store = Kept()
    async with api(server_files, store=store, **ON_ETCD, encryption_provider_config=file) as server:
        await server.make(SECRETS, {"metadata": {"name": "s"}})
        assert await readiness(server) == 200
    given = {}
    if lacks == "the key":
        edit(file, "AAAA", "AAAB")
        given["encryption_provider_config"] = file

    async with api(server_files, store=store, **ON_ETCD, **given) as server:
        assert await readiness(server) == 500
        reason = (await server.call("GET", "/readyz/informer-sync")).text
        assert "a key that this server does not have" in reason
        gone = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
        await server.call("DELETE", f"{SECRETS}/s{gone}")
        assert await readiness(server) == 500  # the private keys that sign are sealed, too
        for key in (await server.call("GET", SIGNING_KEYS)).json["items"]:
            private = f"signing-key-{key['metadata']['uid']}"
            await server.call("DELETE", f"/api/v1/namespaces/orch-system/secrets/{private}{gone}")
        assert await readiness(server) == 200


class Kept(MemoryStore):
    """A store that outlives a server."""

    async def close(self) -> None:
        pass


async def readiness(server: Api) -> int:
    await server.server.feed.fresh()
    return (await server.call("GET", "/readyz", token=None)).status
