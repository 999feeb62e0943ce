"""CertificateAuthorities: keys are created, trust bundles published, requests signed.

The controllers run against a real server in memory, with their own accounts and rights.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.features.authorities.authorities_metrics import AuthorityEnds
from orchid.features.authorities.controllers.keep_authorities import CLOCK_SECONDS, KeepAuthorities
from orchid.features.authorities.kinds.certificate_authority import EXPIRING, CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS, algorithm_name
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.codec.documents import convert, encode
from orchid.kernel.wire.conditions import is_true
from orchid.kernel.wire.errors import Conflict, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import chains, samples
from tests.unit.kernel.credentials.own_authorities import ML_DSA, is_ml_dsa_signature

KEEPER, SIGNING = "certificate-authority", "csrsigning"
SIGNER = "example.com/web"
HOST = "web.example.com"
REQUEST = samples.request("", (), alternative_names=(x509.DNSName(HOST),))
DAY = timedelta(days=1)


async def create(world: Beside, name: str = "web", **spec: Any) -> CertificateAuthority:
    given = {"signerName": SIGNER, "key": {}, "subject": {"commonName": "Web CA"}, **spec}
    plain = {key: value for key, value in given.items() if value is not None}
    return await world.admin.create(
        convert({"metadata": {"name": name}, "spec": plain}, CertificateAuthority)
    )


async def bring(world: Beside, **data: bytes) -> Secret:
    """Put an authority into the Secret `pki/ca`, in the place of what is there."""
    meta = ObjectMeta(name="ca", namespace="pki")
    wanted = Secret(metadata=meta, data={f"tls.{key}": value for key, value in data.items()})
    there = await world.admin.find(Secret, "ca", "pki")
    if there is None:
        return await world.admin.create(wanted)
    await world.admin.update(replace(there, data=wanted.data))
    return await world.admin.get(Secret, "ca", "pki")


async def bring_authority(world: Beside, name: str, lifetime: timedelta = 30 * DAY) -> Authority:
    made = Authority.create(name, now=world.clock.now(), lifetime=lifetime)
    await bring(world, crt=made.chain_pem, key=made.key_pem().reveal().encode())
    return made


async def from_secret(world: Beside, name: str = "web") -> CertificateAuthority:
    reference = {"namespace": "pki", "name": "ca"}
    return await create(world, name, key=None, subject=None, secretRef=reference)


async def until_ready(world: Beside, name: str = "web") -> CertificateAuthority:
    return await world.until_like(CertificateAuthority, name, condition=lambda one: one.is_ready)


async def until_not_ready(world: Beside, reason: str, name: str = "web") -> CertificateAuthority:
    def says(found: CertificateAuthority) -> bool:
        return any(one.reason == reason for one in found.status.conditions)

    return await world.until_like(CertificateAuthority, name, condition=says)


@asynccontextmanager
async def keeper(world: Beside) -> AsyncIterator[KeepAuthorities]:
    """A controller that follows, but works only when a test says so."""
    (controller,) = world.made(KEEPER)
    assert isinstance(controller, KeepAuthorities)
    followers: list[asyncio.Task[None]] = []
    await controller.follow(lambda each: followers.append(asyncio.create_task(each)))
    await controller.listed.wait()
    try:
        yield controller
    finally:
        for each in followers:
            each.cancel()
        await asyncio.wait(followers)


async def looked_at(world: Beside, name: str = "web") -> CertificateAuthority:
    """Have the controller look once, as it does every half minute."""
    async with keeper(world) as controller:
        await controller.reconcile(await world.admin.get(CertificateAuthority, name))
    return await world.admin.get(CertificateAuthority, name)


async def issued(world: Beside, name: str = "r", **more: Any) -> list[x509.Certificate]:
    more = {"signer": SIGNER, "usages": (), "approved": True, **more}
    await world.request(name, more.pop("request", REQUEST), **more)
    found = await world.until_like(Request, name, condition=lambda one: one.is_issued)
    return x509.load_pem_x509_certificates(found.status.certificate)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_algorithm_gets_a_key_a_bundle_and_certificates(
    world: Beside, algorithm: str
) -> None:
    """From the object alone to a certificate that the published bundle verifies."""
    async with world.running(KEEPER, SIGNING):
        await create(world, key={"algorithm": algorithm})
        ready = await until_ready(world)
        (leaf,) = await issued(world)

    anchor = x509.load_pem_x509_certificate(ready.status.certificate.encode())
    bundle = await world.admin.get(ClusterTrustBundle, ready.status.trust_bundle)
    public: Any = anchor.public_key()
    assert algorithm_name(public) == algorithm
    assert bundle.spec.trust_bundle == ready.status.certificate
    assert bundle.spec.signer_name == SIGNER
    assert ready.status.not_after == anchor.not_valid_after_utc
    assert anchor.subject.rfc4514_string() == "CN=Web CA"
    leaf.verify_directly_issued_by(anchor)
    if algorithm == ML_DSA:
        assert is_ml_dsa_signature(anchor, leaf.tbs_certificate_bytes, leaf.signature)
        assert is_ml_dsa_signature(anchor, anchor.tbs_certificate_bytes, anchor.signature)


async def test_a_request_without_usages_gets_those_of_the_authority(world: Beside) -> None:
    """And the life that the authority usually gives."""
    async with world.running(KEEPER, SIGNING):
        await create(world, issues={"usages": ["digital signature", "client auth"]})
        (leaf,) = await issued(world)

    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == timedelta(hours=720)


async def test_what_is_issued_is_in_the_inventory(world: Beside) -> None:
    """The signer of a CertificateAuthority counts as a signer of this server."""
    async with world.running(KEEPER, SIGNING):
        await create(world)
        (leaf,) = await issued(world)

    record = await world.admin.get(IssuedCertificate, f"{leaf.serial_number:x}")
    assert record.spec.signer_name == SIGNER


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"usages": ("code signing",)}, "usage is not allowed: code signing"),
        (
            {
                "request": samples.request(
                    "x", alternative_names=(x509.RFC822Name("a@example.com"),)
                )
            },
            "Email subjectAltNames are not allowed",
        ),
        ({"request": samples.request("x", ("system:masters",))}, "system:masters"),
    ],
    ids=["usage", "name", "group"],
)
async def test_what_the_terms_forbid_ends_as_failed(
    world: Beside, more: dict[str, Any], says: str
) -> None:
    """The condition says which of the terms it is."""
    async with world.running(KEEPER, SIGNING):
        await create(world)
        given = {"request": REQUEST, "usages": (), **more}
        await world.request("f", given.pop("request"), signer=SIGNER, approved=True, **given)
        failed = await world.until_like(Request, "f", condition=lambda one: one.has("Failed"))

    assert says in failed.status.conditions[1].message
    assert failed.status.conditions[1].reason == "SignerValidationFailure"


async def test_a_request_may_come_before_its_authority(world: Beside) -> None:
    """It waits, and is signed when there is one."""
    async with world.running(KEEPER, SIGNING):
        await world.request("early", REQUEST, signer=SIGNER, usages=(), approved=True)
        await create(world)

        await world.until_like(Request, "early", condition=lambda one: one.is_issued)


async def test_a_certificate_ends_with_its_authority_at_the_latest(world: Beside) -> None:
    """Whatever was asked for."""
    async with world.running(KEEPER, SIGNING):
        await create(world, duration="24h")
        (leaf,) = await issued(world, seconds=90 * 24 * 3600)
        ready = await until_ready(world)

    assert ready.status.not_after is not None
    assert leaf.not_valid_after_utc <= ready.status.not_after


async def secret_of(world: Beside, key: str = "web-1") -> Secret:
    """The Secret with the private key of a SigningKey that the server created."""
    stored = await world.admin.get(SigningKey, key)
    return await world.admin.get(Secret, stored.secret_name, world.naming.system_namespace)


async def test_the_key_is_in_a_secret_that_belongs_to_the_authority(world: Beside) -> None:
    """Of the type for keys, in the system namespace, and nowhere else."""
    async with world.running(KEEPER):
        made = await create(world)
        ready = await until_ready(world)

    secret, key = await secret_of(world), await world.admin.get(SigningKey, "web-1")
    assert secret.type == world.naming.own("tls")
    assert belongs_to(secret, key)
    assert belongs_to(key, made)
    assert secret.data["tls.crt"].decode() == ready.status.certificate
    assert b"PRIVATE KEY" in secret.data["tls.key"]
    assert "PRIVATE" not in repr(ready)


async def test_a_deleted_authority_takes_its_key_and_its_bundle_along(world: Beside) -> None:
    """They belong to it."""
    async with world.running(KEEPER, "garbagecollector"):
        await create(world)
        ready = await until_ready(world)
        secret = await secret_of(world)
        await world.admin.delete(CertificateAuthority, "web")

        await world.until_gone(Secret, secret.name, secret.namespace)
        await world.until_gone(ClusterTrustBundle, ready.status.trust_bundle)


async def test_an_authority_that_is_being_deleted_shows_no_foreign_root(world: Beside) -> None:
    """A finalizer may keep it for long, and its status can be written."""
    await create(world)
    async with world.running(KEEPER):
        ready = await until_ready(world)
    await world.admin.update(ready.with_meta(finalizers=("example.com/held",)))
    await world.admin.delete(CertificateAuthority, "web")
    held = await world.admin.get(CertificateAuthority, "web")
    unchanged = await looked_at(world)
    foreign = Authority.create("foreign", now=world.clock.now()).chain_pem.decode()
    await world.admin.update_status(replace(held, status=replace(held.status, certificate=foreign)))

    shown = await looked_at(world)

    assert unchanged.metadata.resource_version == held.metadata.resource_version
    assert held.metadata.deletion_timestamp is not None
    assert shown.status.certificate == held.status.certificate != foreign


async def test_a_bundle_that_is_deleted_or_changed_is_put_back(world: Beside) -> None:
    """It is kept in step with its authority."""
    async with world.running(KEEPER):
        await create(world)
        ready = await until_ready(world)
        name, text = ready.status.trust_bundle, ready.status.certificate
        await world.admin.delete(ClusterTrustBundle, name)
        again = await world.until_like(ClusterTrustBundle, name)
        other = Authority.create("other", now=world.clock.now()).certificate_pem.decode()
        await world.admin.update(replace(again, spec=replace(again.spec, trust_bundle=other)))

        await world.until_like(
            ClusterTrustBundle, name, condition=lambda one: one.spec.trust_bundle == text
        )


async def test_a_lost_key_is_reported_and_not_replaced(world: Beside) -> None:
    """Another key under the same name would break what trusts the first."""
    async with world.running(KEEPER):
        await create(world)
        before = await until_ready(world)
    place = (await secret_of(world)).name
    await world.admin.delete(Secret, place, world.naming.system_namespace)

    after = await looked_at(world)

    assert not after.is_ready
    assert after.status.conditions[0].reason == "KeyLost"
    assert place in after.status.conditions[0].message
    assert after.status.certificate == before.status.certificate
    assert await world.admin.find(Secret, place, world.naming.system_namespace) is None


async def test_what_becomes_of_a_key_at_home_is_seen_at_once(world: Beside) -> None:
    """Lost and brought back, without waiting for the next look; a Secret of others is not ours."""
    async with world.running(KEEPER):
        await create(world)
        await until_ready(world)
        secret = await secret_of(world)
        place, home = secret.name, secret.namespace
        await world.admin.delete(Secret, place, home)

        lost = await until_not_ready(world, "KeyLost")
        again = ObjectMeta(name=place, namespace=home)
        await world.admin.create(replace(secret, metadata=again))
        ready = await until_ready(world)

    assert not lost.is_ready
    assert ready.status.certificate.encode() == secret.data["tls.crt"]


async def test_an_authority_from_a_secret_signs_and_follows_it(world: Beside) -> None:
    """Another authority in the Secret is used from then on; the old bundle stays while valid."""
    first = await bring_authority(world, "first")
    await from_secret(world)
    async with world.running(KEEPER, SIGNING):
        old = await until_ready(world)
        (leaf,) = await issued(world, "before")
        leaf.verify_directly_issued_by(first.certificate)
        second = await bring_authority(world, "second")

        await looked_at(world)
        new = await until_ready(world)
        (leaf,) = await issued(world, "after")

    leaf.verify_directly_issued_by(second.certificate)
    assert new.status.certificate.encode() == second.chain_pem
    for name in (old.status.trust_bundle, new.status.trust_bundle):
        assert await world.admin.find(ClusterTrustBundle, name) is not None


async def test_a_bundle_whose_certificates_are_past_goes(world: Beside) -> None:
    """Nobody needs it once an authority has another."""
    await bring_authority(world, "first", 10 * DAY)
    await from_secret(world)
    old = await looked_at(world)
    world.clock.ahead = 11 * DAY
    await bring_authority(world, "second")

    new = await looked_at(world)

    assert await world.admin.find(ClusterTrustBundle, old.status.trust_bundle) is None
    assert await world.admin.find(ClusterTrustBundle, new.status.trust_bundle) is not None


async def test_what_is_wrong_with_a_secret_is_the_reason(world: Beside) -> None:
    """Each by its own name; the chain that was good before stays in the status."""
    made = await bring_authority(world, "good")
    other = Authority.create("other", now=world.clock.now())
    await from_secret(world)
    await looked_at(world)

    await bring(world, crt=made.chain_pem, key=other.key_pem().reveal().encode())
    mismatch = await looked_at(world)
    await world.admin.delete(Secret, "ca", "pki")
    missing = await looked_at(world)
    await bring_authority(world, "good again")
    ready = await looked_at(world)

    assert mismatch.status.conditions[0].reason == "KeyMismatch"
    assert missing.status.conditions[0].reason == "SecretMissing"
    assert "pki/ca" in missing.status.conditions[0].message
    assert mismatch.status.certificate.encode() == made.chain_pem
    assert ready.is_ready


async def test_nothing_is_signed_with_a_key_that_the_status_does_not_show(world: Beside) -> None:
    """The published certificate signs: a changed Secret waits until it has been checked."""
    await bring_authority(world, "first")
    await from_secret(world)
    await looked_at(world)
    await bring_authority(world, "second")
    async with world.running(SIGNING):
        await world.request("w", REQUEST, signer=SIGNER, usages=(), approved=True)
        await world.request("other", samples.request("bob"), approved=True)
        await world.until_like(Request, "other", condition=lambda one: one.is_issued)

        assert not (await world.admin.get(Request, "w")).is_issued
        await looked_at(world)
        await world.until_like(Request, "w", condition=lambda one: one.is_issued)


@pytest.mark.parametrize("hours", [-2, 24 * 365 * 30])
async def test_an_authority_out_of_time_is_checked_again_soon(world: Beside, hours: int) -> None:
    """The clock of the server may be wrong: nothing is issued until it is right again."""
    await create(world)
    async with keeper(world) as controller:
        pause = await controller.reconcile(await world.admin.get(CertificateAuthority, "web"))
        assert pause is not None
        assert pause > 60
        world.clock.ahead = timedelta(hours=hours)
        authority = await world.admin.get(CertificateAuthority, "web")

        assert await controller.reconcile(authority) == CLOCK_SECONDS
    assert not (await world.admin.get(CertificateAuthority, "web")).is_ready


async def test_expiry_is_reported_in_advance(world: Beside) -> None:
    """Expiring in the last third, with an event; not Ready after the end, and nothing is issued."""
    async with world.running(KEEPER):
        await create(world, duration="720h")
        young = await until_ready(world)
    world.clock.ahead = 21 * DAY
    async with world.running():
        late = await looked_at(world)

        async def event_found() -> Event | None:
            found = await world.admin.page(ListSelection(Event))
            return next((one for one in found.items if one.reason == EXPIRING), None)

        event = await world.until(event_found)
    world.clock.ahead = 31 * DAY
    over = await looked_at(world)

    assert not is_true(young.status.conditions, EXPIRING)
    assert is_true(late.status.conditions, EXPIRING)
    assert late.is_ready
    assert event.type == "Warning"
    assert not over.is_ready
    assert over.status.conditions[0].reason == "AuthorityExpired"


async def warning_about(world: Beside, name: str) -> Event:
    """Wait for an event that says why a request is not signed."""

    async def event_found() -> Event | None:
        found = await world.admin.page(ListSelection(Event))
        about = (one for one in found.items if one.involved_object.name == name)
        return next((one for one in about if one.reason == "AuthorityNotReady"), None)

    return await world.until(event_found)


async def test_a_request_that_waits_for_an_expired_authority_says_so(world: Beside) -> None:
    """An event names the reason; the request stays open, and a renewed authority signs it."""
    await bring_authority(world, "first", lifetime=DAY)
    await from_secret(world)
    await looked_at(world)
    world.clock.ahead = 2 * DAY
    await looked_at(world)
    async with world.running(SIGNING):
        await world.request("w", REQUEST, signer=SIGNER, usages=(), approved=True)
        event = await warning_about(world, "w")
        waiting = await world.admin.get(Request, "w")
        await bring_authority(world, "second")
        await looked_at(world)
        await world.until_like(Request, "w", condition=lambda one: one.is_issued)

    assert event.type == "Warning"
    assert "cannot sign now: a certificate of the chain has expired" in event.message
    assert not waiting.is_issued
    assert not waiting.has("Failed")


async def test_a_request_that_waits_says_so_when_its_authority_turns_out_unusable(
    world: Beside,
) -> None:
    """Also if nothing was known of the authority when the request was approved."""
    made = await bring_authority(world, "own")
    await from_secret(world)
    await bring(world, crt=made.chain_pem, key=b"no key")
    async with world.running(SIGNING):
        await world.request("w", REQUEST, signer=SIGNER, usages=(), approved=True)
        await world.request("other", samples.request("bob"), approved=True)
        await world.until_like(Request, "other", condition=lambda one: one.is_issued)
        await looked_at(world)
        event = await warning_about(world, "w")

    assert "cannot sign now" in event.message


async def test_no_certificate_outlives_the_root_of_its_chain(world: Beside) -> None:
    """An authority that was given a longer life than its root issues for as long as the root."""
    now = world.clock.now().replace(microsecond=0)
    above, start = samples.OTHER_P256, now - DAY
    root = chains.authority("root", key=above, start=start, end=now + 5 * DAY)
    between = chains.authority(
        "between", issuer="root", signer=above, start=start, end=now + 100 * DAY
    )
    pem = b"".join(one.public_bytes(Encoding.PEM) for one in (between, root))
    key = samples.P256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    await bring(world, crt=pem, key=key)
    await from_secret(world)
    async with world.running(KEEPER, SIGNING):
        leaf, *_ = await issued(world, seconds=30 * 24 * 3600)

    assert leaf.not_valid_after_utc <= root.not_valid_after_utc


async def test_the_younger_of_two_for_one_signer_says_so(world: Beside) -> None:
    """If two servers were asked at one moment, the first stays and nobody signs for the other."""
    first = await create(world)
    kind = world.server.catalog.of(CertificateAuthority)
    later = first.metadata.creation_timestamp
    assert later is not None
    raced = first.with_meta(name="second", uid="2", creation_timestamp=later + DAY)
    # Past admission, as what another server was asked in the same moment.
    await world.server.store.commit(
        [Change(kind.key("", "second"), encode(raced.with_meta(resource_version="")), ABSENT)]
    )
    await world.server.feed.fresh()

    await looked_at(world)
    after = await looked_at(world, "second")

    assert after.status.conditions[0].reason == "SignerTaken"
    assert after.status.trust_bundle == ""


async def test_our_controllers_sign_for_no_signer_of_somebody_elses(world: Beside) -> None:
    """Their rights reach as far as there are authorities."""
    made = await world.request("x", REQUEST, signer="example.org/other", usages=(), approved=True)
    client = world.server.clients(SIGNING)

    with pytest.raises(Forbidden):
        await client.update_status(made.with_condition("Failed", "ByTest", "no"))


async def test_only_one_key_is_made_by_two_at_once(world: Beside) -> None:
    """Several servers share the first that is stored; the other looks again."""
    await create(world)
    async with keeper(world) as first, keeper(world) as second:
        found = await world.admin.get(CertificateAuthority, "web")
        outcomes = await asyncio.gather(
            first.reconcile(found), second.reconcile(found), return_exceptions=True
        )

    assert [type(one) for one in outcomes if isinstance(one, Exception)] in ([TryAgain], [Conflict])
    keys = await world.admin.page(ListSelection(SigningKey, fields="spec.authority=web"))
    assert [key.name for key in keys.items] == ["web-1"]


async def test_it_works_under_the_names_of_the_reference(tmp_path: Path) -> None:
    """The group is ours; Secrets and bundles are where that naming has them."""
    async with beside(tmp_path / "data", naming="kubernetes") as world:
        async with world.running(KEEPER, SIGNING):
            await create(world)
            await until_ready(world)
            await issued(world)

        key = await world.admin.get(SigningKey, "web-1")
        assert await world.admin.get(Secret, key.secret_name, "kube-system")


async def test_metrics_have_the_expiry_of_each_authority(world: Beside) -> None:
    """By authority and signer, since the epoch."""
    await create(world)
    ready = await looked_at(world)

    *platform, sample = AuthorityEnds(world.server.feed.of(CertificateAuthority)).family().samples

    assert [one.labels[1][1] for one in platform] == list(world.naming.issuing_signers)
    assert sample.labels == (("authority", "web"), ("signer", SIGNER))
    assert ready.status.not_after is not None
    assert sample.value == ready.status.not_after.timestamp()
