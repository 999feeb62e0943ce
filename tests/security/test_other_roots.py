"""The attack: a key of an authority gets a certificate below a root of the attacker.

The public key of an authority is public, so anybody can certify it. Verifiers trust the last
certificate of its chain: for the platform's authority, this server accepts client certificates of
any user below it.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.rights.kinds.role import ClusterRole
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding
from orchid.features.token_keys.kinds.signing_key import ACTIVE, SigningKey
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.store.interface import Change
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.authorities.test_authority_rotation import (
    install,
    make_activatable,
    new_key,
    pem,
    signed_elsewhere,
    step,
)
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    bring,
    bring_authority,
    create,
    from_secret,
    looked_at,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside

SIGNER_RIGHTS = ("signers", ORCH.certificates, ("sign", "attest"))
KEY_RIGHTS = ("signingkeys", ORCH.identity, ("get", "patch", "update", "activate"))


def certified(world: Beside, public: str, root: Authority, name: str, key_id: bytes) -> str:
    """A certificate for a public key by another root, and that root."""
    now, own = world.clock.now(), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    private: Any = load_pem_private_key(root.key_pem().reveal().encode(), None)
    key: Any = load_pem_public_key(public.encode())
    made = (
        x509.CertificateBuilder(root.certificate.subject, own, key, 9)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + 300 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(key_id), critical=False)
        .sign(private, hashes.SHA256())
    )
    return pem(made) + root.chain_pem.decode()


async def user(world: Beside, name: str, *rights: tuple[str, str, tuple[str, ...]]) -> Client:
    rules = [
        {"apiGroups": [group], "resources": [resource, f"{resource}/status"], "verbs": list(verbs)}
        for resource, group, verbs in rights
    ]
    role = {"metadata": {"name": name}, "rules": rules}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": ORCH.rbac}],
    }
    await world.admin.create(convert(role, ClusterRole))
    await world.admin.create(convert(binding, ClusterRoleBinding))
    return world.server.clients.of_user(UserInfo(username=name))


# --- status.certificate -----------------------------------------------------------------------


async def own_root(world: Beside, name: str, position: str) -> tuple[SigningKey, Authority, str]:
    """A key, a root of the attacker, and a chain for the key with that root."""
    key = await world.admin.get(SigningKey, name)
    root = Authority.create("Evil Root", now=world.clock.now())
    key_id = bytes.fromhex(key.key_id)
    chain = certified(world, key.status.public_key, root, "Orchid", key_id)
    if position == "middle":
        chain = chain + key.status.certificate
    if position == "after":
        chain = key.status.certificate + root.chain_pem.decode()
    return key, root, chain


@pytest.mark.parametrize("position", ["top", "middle", "after"])
async def test_a_status_does_not_bring_another_root(tmp_path: Path, position: str) -> None:
    """Neither as the root of the chain nor inside it: the whole chain is checked."""
    async with beside(tmp_path) as world:
        mallory = await user(world, "mallory", KEY_RIGHTS)
        key, root, chain = await own_root(world, "cluster-1", position)
        with pytest.raises(Invalid, match=r"status\.certificate"):
            await mallory.update_status(replace(key, status=replace(key.status, certificate=chain)))
        platform = world.server.context.port(PlatformAuthority)
        assert platform is not None
        trusted = platform.certificates

    assert root.certificate not in trusted


@pytest.mark.parametrize("position", ["top", "middle", "after"])
async def test_the_server_trusts_no_other_root_that_is_stored(
    tmp_path: Path, position: str
) -> None:
    """However it was written: the platform trusts self-signed certificates of its own keys."""
    store = MemoryStore()
    async with beside(tmp_path, store=store) as world:
        key, root, chain = await own_root(world, "cluster-1", position)
        kind = world.server.catalog.of(SigningKey)
        entry = world.server.feed.of(SigningKey).find(kind, "", "cluster-1")
        old, new = key.status.certificate, chain
        value = entry.data.replace(_escaped(old), _escaped(new))
        assert value != entry.data
        await store.commit([Change(entry.key, value, entry.revision)])
        await world.server.feed.fresh()
        platform = world.server.context.port(PlatformAuthority)
        assert platform is not None
        pool = platform.pool()

    assert root.certificate not in platform.certificates
    assert root.certificate not in pool.authorities


def _escaped(text: str) -> bytes:
    return text.replace("\n", "\\n").encode()


async def test_the_owner_of_a_secret_renews_the_root_in_it(tmp_path: Path) -> None:
    """The server reads that Secret itself; another chain for the key is refused."""
    async with beside(tmp_path) as world:
        made = await bring_authority(world, "Brought CA")
        await from_secret(world)
        assert (await looked_at(world)).is_ready
        key = await world.admin.get(SigningKey, "web-1")
        other = Authority.create("Corp Root", now=world.clock.now())
        chain = certified(world, key.status.public_key, other, "Brought CA", made.key_id)
        with pytest.raises(Invalid, match="below another root"):
            await world.admin.update_status(
                replace(key, status=replace(key.status, certificate=chain))
            )
        await bring(world, crt=chain.encode(), key=made.key_pem().reveal().encode())
        await looked_at(world)
        renewed = await world.admin.get(SigningKey, "web-1")

    assert renewed.status.certificate == chain
    assert renewed.key_id == key.key_id


# --- spec.chain -------------------------------------------------------------------------------


async def below_offline_root(world: Beside) -> Authority:
    """The authority `web` below an offline root; it is Ready."""
    root = Authority.create("Offline Root", now=world.clock.now())
    await create(world, parent={"external": True})
    waiting = await until_not_ready(world, "ChainMissing")
    await install(world, "web-1", signed_elsewhere(waiting.status.request, root))
    await until_ready(world)
    await step(world, "web-1", ACTIVE)
    return root


async def installed_by(client: Client, name: str, chain: str) -> SigningKey:
    key = await client.get(SigningKey, name)
    await client.update(replace(key, spec=replace(key.spec, chain=chain)))
    return await client.get(SigningKey, name)


async def roots_of(world: Beside) -> set[str]:
    keys = [await world.admin.find(SigningKey, name) for name in ("web-1", "web-2")]
    chains = [key.status.certificate for key in keys if key]
    return {chain[chain.rindex("-----BEGIN") :] for chain in chains if chain}


async def test_an_operator_does_not_replace_the_offline_root(tmp_path: Path) -> None:
    """Not of the signer, not of a successor, nor before the first chain."""
    async with beside(tmp_path) as world, world.running(KEEPER):
        evil = Authority.create("Evil Root", now=world.clock.now())
        operator = await user(world, "operator", KEY_RIGHTS)
        await create(world, "shop", signerName="example.com/shop", parent={"external": True})
        shop = await until_not_ready(world, "ChainMissing", "shop")
        await below_offline_root(world)
        await new_key(world, "web-2")
        before = await roots_of(world)
        for name in ("web-1", "web-2"):
            request = (await world.admin.get(SigningKey, name)).status.request
            with pytest.raises(Forbidden, match="not permitted to import keys"):
                await installed_by(operator, name, signed_elsewhere(request, evil))
        with pytest.raises(Forbidden, match="not permitted to import keys"):
            await installed_by(operator, "shop-1", signed_elsewhere(shop.status.request, evil))

        assert await roots_of(world) == before
        selection = ListSelection(ClusterTrustBundle)
        bundles = [one.spec.trust_bundle async for one in world.admin.scan(selection)]
    assert evil.chain_pem.decode() not in bundles


async def test_an_operator_installs_a_chain_below_the_same_root(tmp_path: Path) -> None:
    """Of a successor, and a renewed one: that is the purpose of the role."""
    async with beside(tmp_path) as world, world.running(KEEPER):
        operator = await user(world, "operator", KEY_RIGHTS)
        root = await below_offline_root(world)
        await new_key(world, "web-2")
        for name in ("web-1", "web-2"):
            request = (await world.admin.get(SigningKey, name)).status.request
            chain = signed_elsewhere(request, root)
            key = await installed_by(operator, name, chain)
            assert key.status.certificate == chain


@pytest.mark.parametrize(
    ("rights", "text"),
    [
        ((("signingkeys", ORCH.identity, ("import",)),), "not permitted to sign requests"),
        ((SIGNER_RIGHTS,), "not permitted to import keys"),
    ],
)
async def test_another_root_takes_every_right_of_an_import(
    tmp_path: Path, rights: tuple[Any, ...], text: str
) -> None:
    """The verb on keys, and those on the signer."""
    async with beside(tmp_path) as world, world.running(KEEPER):
        operator = await user(world, "operator", KEY_RIGHTS, *rights)
        await below_offline_root(world)
        await new_key(world, "web-2")
        request = (await world.admin.get(SigningKey, "web-2")).status.request
        other = Authority.create("New Root", now=world.clock.now())
        with pytest.raises(Forbidden, match=text):
            await installed_by(operator, "web-2", signed_elsewhere(request, other))


async def test_another_root_waits_until_verifiers_have_it(tmp_path: Path) -> None:
    """A signer does not get one; a published key is published again; a step does not go along."""
    async with beside(tmp_path) as world, world.running(KEEPER):
        owner = await user(
            world,
            "owner",
            KEY_RIGHTS,
            SIGNER_RIGHTS,
            ("signingkeys", ORCH.identity, ("import",)),
        )
        root = await below_offline_root(world)
        other = Authority.create("New Root", now=world.clock.now())
        first = (await world.admin.get(SigningKey, "web-1")).status.request
        with pytest.raises(Invalid, match="verifiers do not have its root yet"):
            await installed_by(owner, "web-1", signed_elsewhere(first, other))
        second = (await new_key(world, "web-2")).status.request
        await installed_by(owner, "web-2", signed_elsewhere(second, root))
        await make_activatable(world, "web-2")
        chain = signed_elsewhere(second, other)
        key = await world.admin.get(SigningKey, "web-2")
        both = replace(key, spec=replace(key.spec, chain=chain, state=ACTIVE))
        with pytest.raises(Invalid, match="not change together with the chain"):
            await owner.update(both)
        after = await installed_by(owner, "web-2", chain)
        with pytest.raises(Invalid, match="the leader has not recorded yet"):
            await step(world, "web-2", ACTIVE)
        third = (await new_key(world, "web-3")).status.request
        await installed_by(owner, "web-3", signed_elsewhere(third, other))
        await world.server.context.port(AppliedRevision).report()
        with pytest.raises(Invalid, match="the leader has not recorded yet"):
            await step(world, "web-3", ACTIVE)

    assert after.status.times.published is None
