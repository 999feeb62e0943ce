"""The inventory of certificates: recorded with what is handed out, and for as long as it counts."""

import hashlib
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.certificates.inventory_metrics import IssuedCounts
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.client.client import ListSelection
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.wire.errors import Forbidden, Invalid, MethodNotAllowed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.beside import Beside
from tests.unit.kernel.credentials import samples

ALICE = UserInfo(username="alice", uid="7", groups=("dev", "system:masters"))


async def issued(world: Beside, name: str, user: str = "alice") -> x509.Certificate:
    """Have a certificate issued the ordinary way; the controller must be running."""
    await world.request(name, samples.request(user, ("dev",)), user=ALICE)
    await world.approve(await world.admin.get(Request, name))
    done = await world.until_like(Request, name, condition=lambda csr: csr.is_issued)
    return x509.load_pem_x509_certificate(done.status.certificate)


async def record_of(world: Beside, leaf: x509.Certificate) -> IssuedCertificate:
    return await world.admin.get(IssuedCertificate, f"{leaf.serial_number:x}")


def namesake(leaf: x509.Certificate) -> bytes:
    """Another certificate with the same number."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder(
        leaf.issuer,
        leaf.subject,
        key.public_key(),
        leaf.serial_number,
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    ).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


async def test_what_is_handed_out_is_recorded_with_who_asked_and_why(world: Beside) -> None:
    """The record has all fields of the certificate and its request."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")

    spec = (await record_of(world, leaf)).spec
    data = leaf.public_bytes(serialization.Encoding.DER)
    assert spec.certificate == data
    assert spec.sha256 == hashlib.sha256(data).hexdigest()
    assert (spec.signer_name, spec.subject) == (ORCH.client_signer, "CN=alice,O=dev")
    assert spec.usages == ("digital signature", "client auth")
    assert spec.key.algorithm == "ECDSA-P256"
    assert (spec.not_before, spec.not_after) == (
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )
    assert (spec.request.name, spec.requester.username, spec.requester.uid) == (
        "alice",
        "alice",
        "7",
    )
    assert (spec.approval.reason, spec.approval.message) == ("ByTest", "said the test")


async def test_the_record_and_the_ledger_stand_in_the_commit_that_hands_out(world: Beside) -> None:
    """All three have one revision, so there is no moment between them."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")

    request = await world.admin.get(Request, "alice")
    record = await record_of(world, leaf)
    pending = (await world.server.store.read(store_keys.PENDING)).records
    revisions = [one.revision for one in pending if b'"certificate.issued"' in one.value]
    assert request.metadata.resource_version == record.metadata.resource_version
    assert revisions == [int(record.metadata.resource_version)]
    assert not [one for one in pending if b"alice" in one.value]


async def test_a_certificate_of_somebody_elses_signer_is_not_recorded(world: Beside) -> None:
    """Its numbers are not ours, and could be those of one of ours."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")
    foreign = await world.request(
        "foreign", samples.request("bob"), signer="example.com/x", approved=True
    )

    await world.admin.update_status(
        foreign.with_certificate(leaf.public_bytes(serialization.Encoding.PEM))
    )

    found = [one.name async for one in world.admin.scan(ListSelection(IssuedCertificate))]
    assert found == [f"{leaf.serial_number:x}"]


async def test_one_number_never_stands_for_two_certificates(world: Beside) -> None:
    """A certificate whose number is taken is not handed out for one of our signers."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")
    other = namesake(leaf)
    waiting = await world.request("second", samples.request("bob"), approved=True)

    with pytest.raises(Invalid, match="another certificate has the serial number"):
        await world.admin.update_status(waiting.with_certificate(other))

    assert not (await world.admin.get(Request, "second")).is_issued


async def test_nobody_writes_records_by_hand(world: Beside) -> None:
    """Not even an administrator can invent, change or remove one while its certificate counts."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")
    record = await record_of(world, leaf)

    with pytest.raises(Forbidden, match="only the server records"):
        await world.admin.create(IssuedCertificate(metadata=ObjectMeta(name="abc")))
    with pytest.raises(MethodNotAllowed):
        await world.admin.update(record)
    with pytest.raises(Forbidden, match="valid until"):
        await world.admin.delete(IssuedCertificate, record.name)


async def test_a_record_is_removed_some_time_after_the_end(world: Beside) -> None:
    """While the retention lasts it stays, also after the certificate's end."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")
    (cleaner,) = world.made("issued-cleaner")
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time moves too

    world.clock.ahead = timedelta(days=365 + 29)
    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper
    kept = await world.admin.find(IssuedCertificate, f"{leaf.serial_number:x}")
    world.clock.ahead = timedelta(days=365 + 31)
    await cleaner.sweep()  # type: ignore[attr-defined]  # as above

    assert kept is not None
    assert await world.admin.find(IssuedCertificate, f"{leaf.serial_number:x}") is None


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.request.name=alice", 1),
        ("spec.requester.username=alice", 2),
        ("status.revoked=true", 0),
        (f"spec.signerName={ORCH.client_signer}", 2),
        ("spec.sha256=00", 0),
    ],
)
async def test_records_are_found_by_their_fields(world: Beside, selector: str, found: int) -> None:
    """A list by signer does not read all certificates."""
    async with world.running("csrsigning"):
        await issued(world, "alice")
        await issued(world, "bob")

    wanted = ListSelection(IssuedCertificate, fields=selector)

    assert len([one async for one in world.admin.scan(wanted)]) == found


async def test_metrics_count_valid_certificates_and_the_first_expiry(world: Beside) -> None:
    """Both follow the inventory; what has ended no longer counts."""
    async with world.running("csrsigning"):
        first = await issued(world, "alice")
        await issued(world, "bob")
    await world.server.feed.fresh()

    before = world.server.context.port(IssuedCounts).ends()
    world.clock.ahead = timedelta(days=366)
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time moves too
    after = world.server.context.port(IssuedCounts).ends()

    end = int(first.not_valid_after_utc.timestamp())
    assert before == {ORCH.client_signer: (2, end)}
    assert after == {}
