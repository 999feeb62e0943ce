"""The key of an authority is the one that the server created, and no other that lies in its place.

Mallory may create Secrets in the system namespace, as a user who writes join tokens of hosts, or
update them, but reads none. She stored a pair of her own under the name of the Secret in which the
controller was about to store the key of a new authority: it was Ready with her certificate. Or she
replaced a Secret by a pair whose certificate carries the key identifier of the real key.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchid.features.authorities.controllers import keep_authorities
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.security.test_other_roots import user
from tests.unit.features.authorities.test_authority_rotation import ROTATION, new_key
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    SIGNING,
    create,
    issued,
    secret_of,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, beside

HOME = ORCH.system_namespace


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


def data_of(pair: Authority) -> dict[str, bytes]:
    return {"tls.crt": pair.chain_pem, "tls.key": pair.key_pem().reveal().encode()}


async def plant(world: Beside, authority: CertificateAuthority, client: Client) -> Authority:
    """Store a pair where earlier versions stored the key of an authority."""
    pair = Authority.create("Web CA", now=world.clock.now(), lifetime=30 * DAY)
    meta = ObjectMeta(name=f"authority-{authority.metadata.uid}", namespace=HOME)
    await client.create(Secret(metadata=meta, data=data_of(pair)))
    return pair


async def test_a_secret_in_the_place_of_a_new_key_is_not_the_key(world: Beside) -> None:
    """However early it is there: key, object and Secret are created together."""
    made = await create(world)
    pair = await plant(world, made, world.admin)

    async with world.running(KEEPER, SIGNING, ROTATION):
        ready = await until_ready(world)
        (leaf,) = await issued(world)

    root = x509.load_pem_x509_certificate(ready.status.certificate.encode())
    assert root.public_key() != pair.certificate.public_key()
    leaf.verify_directly_issued_by(root)
    assert (await secret_of(world)).data["tls.crt"].decode() == ready.status.certificate


def test_the_controller_of_authorities_creates_no_secrets() -> None:
    """Nobody takes its account for that: the server stores a key with its object."""
    rules = keep_authorities.CONTROLLER.rights_at_home(ORCH)

    assert [(rule.resources, rule.verbs) for rule in rules] == [(("secrets",), ("list", "watch"))]


async def mallory_of(world: Beside) -> Client:
    return await user(
        world,
        "mallory",
        ("secrets", "", ("create",)),
        ("certificateauthorities", ORCH.identity, ("get", "patch", "update")),
    )


@pytest.mark.parametrize("is_planted", [True, False], ids=["a pair", "no pair"])
async def test_the_status_of_a_new_authority_brings_no_key(
    world: Beside, *, is_planted: bool
) -> None:
    """A user who may write it names the root of a pair where earlier versions stored the key.

    No other key replaces it by itself: clients of an earlier version trust the root in the status.
    """
    mallory = await mallory_of(world)
    authority = await create(world)
    if is_planted:
        pair = await plant(world, authority, mallory)
    else:
        pair = Authority.create("Web CA", now=world.clock.now(), lifetime=30 * DAY)
    status = replace(authority.status, certificate=pair.chain_pem.decode())
    await mallory.update_status(replace(authority, status=status))

    async with world.running(KEEPER):
        after = await until_not_ready(world, "KeyLost")

    assert not after.is_ready
    assert await world.admin.find(SigningKey, "web-1") is None


async def test_a_key_without_a_source_is_created_whatever_the_status_is(world: Beside) -> None:
    """Who may create SigningKeys, but not import any, brings no pair either."""
    mallory = await mallory_of(world)
    authority = await create(world)
    pair = await plant(world, authority, mallory)
    status = replace(authority.status, certificate=pair.chain_pem.decode())
    await mallory.update_status(replace(authority, status=status))

    key = await new_key(world, "web-1", is_present=True)

    assert key.spec.secret_ref is None
    assert key.status.certificate != pair.chain_pem.decode()
    async with world.running(KEEPER):
        ready = await until_ready(world)
    assert ready.status.certificate == key.status.certificate


def with_identifier(of: x509.Certificate, world: Beside) -> dict[str, bytes]:
    """A pair of Mallory; the certificate has the subject and the key identifier of another."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = of.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    now = world.clock.now()
    usage = of.extensions.get_extension_for_class(x509.KeyUsage).value
    certificate = (
        x509.CertificateBuilder()
        .subject_name(of.subject)
        .issuer_name(of.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"tls.crt": certificate.public_bytes(Encoding.PEM), "tls.key": private}


@pytest.mark.parametrize("source", ["created", "of a user"])
async def test_a_key_identifier_makes_no_key(world: Beside, source: str) -> None:
    """The issuer of a certificate chooses it: public keys are compared."""
    if source == "created":
        await create(world)
        async with world.running(KEEPER):
            ready = await until_ready(world)
        secret = await secret_of(world)
    else:
        pair = Authority.create("Web CA", now=world.clock.now(), lifetime=30 * DAY)
        meta = ObjectMeta(name="ca", namespace=HOME)
        secret = await world.admin.create(Secret(metadata=meta, data=data_of(pair)))
        reference = {"namespace": HOME, "name": "ca"}
        await create(world, key=None, subject=None, secretRef=reference)
        async with world.running(KEEPER):
            ready = await until_ready(world)
    real = x509.load_pem_x509_certificate(ready.status.certificate.encode())
    await world.admin.update(replace(secret, data=with_identifier(real, world)))

    async with world.running(KEEPER, SIGNING, "revocation-list-publisher"):
        after = await until_not_ready(world, "KeyMismatch")

    assert after.status.certificate == ready.status.certificate
    assert [key.name for key in after.status.keys] == ["web-1"]
    stored = await world.admin.find(ConfigMap, "crl.web", HOME)
    if stored is not None:  # the first list of a key that the server created
        assert x509.load_der_x509_crl(stored.binary_data["crl"]).is_signature_valid(
            real.public_key()  # type: ignore[arg-type] -- an EC key
        )
