"""The attack: a stolen key goes on under a second name, after its revocation under the first.

The pair of one Secret was imported as a token key, and then as the key of an authority. One key has
a different id as each, so the revocation of one of them left the other in the JWKS document.
"""

from pathlib import Path

import pytest

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    IMPORTED,
    RETIRED,
    VERIFYING,
    SigningKey,
    authority_public_key,
    status_of,
)
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.revoked_credentials import RevokedKey
from tests.unit.features.authorities.test_authority_rotation import new_key
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    bring_authority,
    from_secret,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside
from tests.unit.features.clusters.test_clusters import cluster

TOKEN_ROTATION = "token-key-rotation"
PLACE = SecretReference(namespace="pki", name="ca")


async def test_a_token_key_does_not_become_the_key_of_an_authority(tmp_path: Path) -> None:
    """As the key of an authority does not become a token key."""
    async with beside(tmp_path) as world:
        await bring_authority(world, "Web CA")
        spec = SigningKeySpec(secret_ref=PLACE)
        await world.admin.create(SigningKey(metadata=ObjectMeta(name="tokens-2"), spec=spec))
        await from_secret(world)

        with pytest.raises(Invalid, match="tokens-2 has the same key"):
            await new_key(world, "web-1", secretRef={"namespace": "pki", "name": "ca"})


async def test_a_public_key_of_a_cluster_ends_no_key_of_an_authority(tmp_path: Path) -> None:
    """Anybody can name the public key of a certificate as that of a cluster, and revoke that."""
    async with beside(tmp_path) as world:
        pair = await bring_authority(world, "Web CA")
        public = authority_public_key(pair.chain_pem.decode())
        await cluster(world, "mine")
        spec = SigningKeySpec(public_key=public, cluster="mine")
        meta = ObjectMeta(name="clusters.mine-1")
        await world.admin.create(SigningKey(metadata=meta, spec=spec))
        await from_secret(world)
        async with world.running(KEEPER):
            await until_ready(world)
            await revoke(world, "clusters.mine-1")
            revoked = world.server.context.port(Revocations).revoked_keys()

    key = await world.admin.get(SigningKey, "web-1")
    assert not key.is_revoked(revoked)


async def from_earlier_version(world: Beside, pair: Authority) -> keys.VerificationKey:
    """Store the key of an authority as a token key, which is refused today."""
    (public,) = keys.read_verification_keys(
        authority_public_key(pair.chain_pem.decode()).encode(), "ca"
    )
    kind = world.admin.catalog.of(SigningKey)
    stored = SigningKey(
        kind=kind.name,
        api_version=kind.api_version,
        metadata=ObjectMeta(name="tokens-7", uid="tokens-7", creation_timestamp=world.clock.now()),
        spec=SigningKeySpec(public_key=public.pem(), state=VERIFYING),
        status=status_of(public, IMPORTED),
    )
    await world.server.store.commit([Change(kind.key("", "tokens-7"), stored_form(stored), ABSENT)])
    return public


async def revoke(world: Beside, name: str) -> None:
    spec = CredentialRevocationSpec(key=RevokedKey(name=name), reason="keyCompromise")
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="stolen"), spec=spec))


async def test_the_revocation_of_an_authoritys_key_ends_it_as_a_token_key(tmp_path: Path) -> None:
    """It is not published, verifies no token, and is Retired."""
    async with beside(tmp_path) as world:
        pair = await bring_authority(world, "Web CA")
        await from_secret(world)
        async with world.running(KEEPER, TOKEN_ROTATION):
            await until_ready(world)
            public = await from_earlier_version(world, pair)
            before = await published(world)
            await revoke(world, "web-1")
            after = await published(world)
            await world.until_like(
                SigningKey, "tokens-7", condition=lambda one: one.state == RETIRED
            )

    assert public.kid in before
    assert public.kid not in after


async def test_the_revocation_of_a_token_key_ends_it_as_the_key_of_an_authority(
    tmp_path: Path,
) -> None:
    """The authority is not Ready, and nothing is signed with it."""
    async with beside(tmp_path) as world:
        pair = await bring_authority(world, "Web CA")
        await from_secret(world)
        async with world.running(KEEPER):
            await until_ready(world)
            await from_earlier_version(world, pair)
            await revoke(world, "tokens-7")
            await until_not_ready(world, "NoKey")


async def published(world: Beside) -> list[str]:
    await world.server.feed.fresh()
    return [key.kid for key in world.server.context.port(FollowedKeys).keys.verifying.keys]
