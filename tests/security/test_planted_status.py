"""The status of an authority names its keys; whatever else somebody writes into it counts nothing.

Mallory may write the status of authorities, and reads no Secret. Between her write and the
correction the publisher of revocation lists signed a list with the name of another authority's.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedKey
from orchid.kernel.wire.struct import replace
from tests.security.test_other_roots import user
from tests.unit.features.authorities.test_authority_rotation import LISTS
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    create,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside

HOME = ORCH.system_namespace
OF_ANOTHER = "of-another"


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


async def mallory_of(world: Beside) -> Client:
    return await user(
        world,
        "mallory",
        ("certificateauthorities", ORCH.identity, ("get", "patch", "update")),
    )


async def name_another_list(world: Beside, authority: CertificateAuthority) -> None:
    """Have the status of an authority name the revocation list of somebody else."""
    keys = tuple(replace(key, revocation_list=OF_ANOTHER) for key in authority.status.keys)
    status = replace(authority.status, keys=keys)
    await (await mallory_of(world)).update_status(replace(authority, status=status))


async def test_the_status_of_an_authority_names_no_list_of_another(world: Beside) -> None:
    """The list has the name that is in its SigningKey, which nobody changes."""
    await create(world)
    async with world.running(KEEPER):
        authority = await until_ready(world)
    await name_another_list(world, authority)
    head = await world.admin.get(ConfigMap, stored_list.head_name("web"), HOME)
    await world.admin.delete(ConfigMap, head.name, HOME)

    async with world.running(LISTS):
        await world.until(lambda: world.admin.find(ConfigMap, stored_list.head_name("web"), HOME))

    assert await world.admin.find(ConfigMap, stored_list.head_name(OF_ANOTHER), HOME) is None


async def test_a_certificate_that_no_key_has_leaves_the_status(world: Beside) -> None:
    """Also of an authority that has no key left: the console and the clients show it."""
    await create(world)
    async with world.running(KEEPER):
        before = await until_ready(world)
        own = (await world.admin.get(SigningKey, "web-1")).status.certificate
        spec = CredentialRevocationSpec(key=RevokedKey(name="web-1"), reason="keyCompromise")
        meta = ObjectMeta(name="stolen")
        await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
        authority = await until_not_ready(world, "NoKey")
        planted = Authority.create("Web CA", now=world.clock.now()).chain_pem.decode()
        status = replace(authority.status, certificate=planted, keys=before.status.keys)
        await (await mallory_of(world)).update_status(replace(authority, status=status))

        async def corrected() -> bool:
            found = await world.admin.get(CertificateAuthority, "web")
            return found.status.certificate == own and not found.status.keys

        await world.until(corrected)
