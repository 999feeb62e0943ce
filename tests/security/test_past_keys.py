"""The attack: a key that was stolen, or only replaced, comes back when what names it is deleted.

Who may delete SigningKeys and CredentialRevocations has no right to import, to activate or to
revoke. The Secret of the user, or the file of a server, still had the key.
"""

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds.signing_key import ACTIVE, RETIRED, SigningKey
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.store.interface import ABSENT, Change, Span
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedKey
from tests.api.clusters import cluster
from tests.api.test_signing_keys import (
    KEYS,
    REVOCATIONS,
    jwks,
    key,
    later,
    make,
    report,
    revoke,
    stepped,
    successor,
)
from tests.api.world import Api, api
from tests.unit.features.authorities.test_authority_rotation import (
    make_activatable,
    new_key,
    step,
    until_signs,
)
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    bring_authority,
    from_secret,
    looked_at,
    until_ready,
)
from tests.unit.features.beside import Beside, beside


async def deleted(world: Beside, type_: Any, name: str) -> bool:
    try:
        await world.admin.delete(type_, name)
    except Forbidden:
        return False
    return True


async def second_secret(world: Beside, made: Authority, name: str = "next") -> dict[str, Any]:
    """Store a pair; return the spec that imports it."""
    data = {"tls.crt": made.chain_pem, "tls.key": made.key_pem().reveal().encode()}
    meta = ObjectMeta(name=name, namespace="pki")
    await world.admin.create(Secret(metadata=meta, data=data))
    return {"secretRef": {"namespace": "pki", "name": name}}


async def replaced(world: Beside) -> None:
    """An authority of a user's Secret, whose key was revoked, and another Secret's key signs."""
    await bring_authority(world, "Stolen CA")
    await from_secret(world)
    await until_ready(world)
    made = Authority.create("Next CA", now=world.clock.now(), lifetime=30 * DAY)
    await new_key(world, "web-2", **await second_secret(world, made))
    await make_activatable(world, "web-2")
    await step(world, "web-2", ACTIVE)
    spec = CredentialRevocationSpec(key=RevokedKey(name="web-1"), reason="keyCompromise")
    meta = ObjectMeta(name="stolen")
    await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
    await step(world, "web-1", RETIRED)
    await until_signs(world, "web-2")


async def test_a_stolen_key_does_not_come_back_from_its_secret(tmp_path: Path) -> None:
    """Its revocation stays; without its object, too, the Secret of the authority is not adopted."""
    async with beside(tmp_path) as world:
        async with world.running(KEEPER):
            await replaced(world)
        revocation_gone = await deleted(world, CredentialRevocation, "stolen")
        await deleted(world, SigningKey, "web-1")
        after = await looked_at(world)

        assert [one.name for one in after.status.keys] == ["web-2"]
        assert after.is_ready
        assert await world.admin.find(SigningKey, "web-3") is None
        assert not revocation_gone


async def test_another_certificate_does_not_make_it_another_key(tmp_path: Path) -> None:
    """The subject key identifier can be chosen; the public key is remembered."""
    async with beside(tmp_path) as world:
        async with world.running(KEEPER):
            await replaced(world)
        secret = await world.admin.get(Secret, "ca", "pki")
        stolen = Authority.load(secret.data["tls.crt"], secret.data["tls.key"])
        other = renamed(stolen)
        spec = await second_secret(world, other, "other")
        with pytest.raises(Invalid, match="web-1 has the same key"):
            await new_key(world, "web-3", **spec)
        await world.admin.delete(SigningKey, "web-1")
        with pytest.raises(Invalid, match="the key of web-1, which was retired or revoked"):
            await new_key(world, "web-3", **spec)

    assert other.key_id != stolen.key_id


def renamed(made: Authority) -> Authority:
    """The key of an authority with another certificate, and another identifier in it."""
    private: Any = load_pem_private_key(made.key_pem().reveal().encode(), None)
    name, own = made.certificate.subject, made.certificate
    certificate = (
        x509.CertificateBuilder(name, name, private.public_key(), 7)
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(b"another identifier"), critical=False)
        .sign(private, hashes.SHA256())
    )
    chain = certificate.public_bytes(Encoding.PEM)
    return Authority.load(chain, made.key_pem().reveal().encode())


# --- token keys -------------------------------------------------------------------------------


async def copied(store: MemoryStore) -> MemoryStore:
    """The store after a restart."""
    other = MemoryStore()
    for record in (await store.read(Span.all(), limit=10_000)).records:
        await other.commit([Change(record.key, record.value, ABSENT)])
    return other


def key_file(path: Path, private: keys.TokenKey) -> dict[str, Any]:
    path.write_text(private.pem().reveal())
    path.chmod(0o600)
    return {"service_account_signing_key_file": str(path), "token_keys": "stored"}


@pytest.mark.parametrize("is_revoked", [True, False], ids=["revoked", "retired"])
async def test_a_past_token_key_does_not_come_back_from_a_file(
    tmp_path: Path, is_revoked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the next start, and not by an import; the server starts all the same."""
    store, stolen = MemoryStore(), keys.generate()
    given = key_file(tmp_path / "mine.key", stolen)
    async with api(tmp_path / "data", store=store, **given) as server:
        await successor(server)
        await stepped(server, "tokens-2", "Active")
        if is_revoked:
            await revoke(server, "tokens-1")
            await stepped(server, "tokens-1", "Retired")
        else:
            await retired(server, monkeypatch)
        await server.call("DELETE", f"{REVOCATIONS}/lost-tokens-1")
        gone = await server.call("DELETE", f"{KEYS}/tokens-1")
        saved = await copied(store)
    async with api(tmp_path / "data", store=saved, **given) as server:
        accepted = await jwks(server)
        spec = {"publicKey": stolen.public.pem(), "cluster": "prod"}
        await cluster(server)
        body = {"metadata": {"name": "clusters.prod-1"}, "spec": spec}
        imported = await server.call("POST", KEYS, body)

    assert gone.status == 200
    assert stolen.kid not in accepted
    assert imported.status == 422
    assert "the key of tokens-1, which was retired or revoked" in imported.text


async def retired(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tokens-1 become Retired without a revocation: nothing depends on it."""
    await stepped(server, "tokens-1", "Verifying")
    later(server, monkeypatch, days=400)
    await report(server, [(await key(server, "tokens-2"))["status"]["keyID"]])
    await stepped(server, "tokens-1", "Retired")


async def test_a_store_without_keys_does_not_take_a_past_key_as_its_first(tmp_path: Path) -> None:
    """As after a restore of a backup without keys: the server creates another one."""
    store, stolen = MemoryStore(), keys.generate()
    given = key_file(tmp_path / "mine.key", stolen)
    async with api(tmp_path / "data", store=store, **given) as server:
        await make(server, "tokens-2", algorithm="ES256")
        await revoke(server, "tokens-1")
        records = (await store.read(Span.prefix("~tombstones/"), limit=10)).records
    saved = MemoryStore()
    for record in records:
        await saved.commit([Change(record.key, record.value, ABSENT)])
    async with api(tmp_path / "data", store=saved, **given) as server:
        found = await key(server, "tokens-1")

    assert found["spec"]["state"] == "Active"
    assert found["status"]["keyID"] != stolen.kid


async def test_the_files_of_a_server_do_not_bring_back_a_key_of_the_platform(
    tmp_path: Path,
) -> None:
    """As an earlier ca.key, put back after its key was retired and its object deleted."""
    store = MemoryStore()
    async with beside(tmp_path / "data", store=store) as world:
        first = await world.admin.get(SigningKey, "cluster-1")
        await new_key(world, "cluster-2", authority="cluster")
        spec = CredentialRevocationSpec(key=RevokedKey(name="cluster-1"), reason="keyCompromise")
        meta = ObjectMeta(name="stolen")
        await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
        await step(world, "cluster-1", RETIRED)
        await step(world, "cluster-2", ACTIVE)
        await deleted(world, CredentialRevocation, "stolen")
        await world.admin.delete(SigningKey, "cluster-1")
        saved = await copied(store)
    async with beside(tmp_path / "data", store=saved) as world:
        platform = world.server.context.port(PlatformAuthority)
        assert platform is not None
        trusted = [one.key_id for one in platform.chosen.verifying]
        authority = await world.admin.get(CertificateAuthority, "cluster")

    assert first.key_id not in trusted
    assert authority.name == "cluster"
