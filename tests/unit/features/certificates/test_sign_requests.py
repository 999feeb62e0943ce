"""The signing controller, against a real server in memory."""

import datetime
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchid.features.certificates.controllers.sign_requests import SignRequests
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.objects.kinds.event import Event
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding
from orchid.kernel.client.client import ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import CHECK_INTERVAL_SECONDS
from orchid.kernel.credentials.refusals import MalformedRequest
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import AUTHENTICATED, MASTERS, UserInfo
from tests.unit.features.beside import Beside, authorities_loaded, beside
from tests.unit.kernel.credentials import samples

DECODER = msgspec.json.Decoder(Request)
NODE_DNS = x509.DNSName("n1.example.com")


async def test_approved_request_is_signed_by_the_cluster_authority(world: Beside) -> None:
    """The certificate is issued by the CA, for the requested subject, with client usage alone."""
    async with world.running("csrsigning"):
        await world.request("c", samples.request("alice", ("dev",)), approved=True)

        issued = await world.until_like(Request, "c", condition=lambda csr: csr.is_issued)

    leaf = x509.load_pem_x509_certificate(issued.status.certificate)
    authority = x509.load_pem_x509_certificate(world.server.files.ca_certificate.read_bytes())
    leaf.verify_directly_issued_by(authority)
    assert leaf.subject.rfc4514_string() == "CN=alice,O=dev"


@pytest.mark.parametrize(
    ("signer", "request_", "purpose"),
    [
        (ORCH.client_signer, samples.request("alice"), ExtendedKeyUsageOID.CLIENT_AUTH),
        (
            ORCH.node_client_signer,
            samples.request("system:node:n1", ("system:nodes",)),
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
        (
            ORCH.node_serving_signer,
            samples.request("system:node:n1", ("system:nodes",), alternative_names=(NODE_DNS,)),
            ExtendedKeyUsageOID.SERVER_AUTH,
        ),
    ],
    ids=["client", "node client", "node serving"],
)
async def test_request_without_usages_gets_those_of_its_signer(
    world: Beside, signer: str, request_: bytes, purpose: x509.ObjectIdentifier
) -> None:
    """Section 2.6: `usages` is optional; the certificate gets the usual ones for TLS."""
    async with world.running("csrsigning"):
        await world.request("u", request_, signer=signer, usages=(), approved=True)

        issued = await world.until_like(Request, "u", condition=lambda csr: csr.is_issued)

    leaf = x509.load_pem_x509_certificate(issued.status.certificate)
    bits = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
    assert (bits.digital_signature, bits.key_encipherment) == (True, True)
    assert issued.spec.usages == ()


async def test_request_that_was_approved_before_the_start_is_signed(world: Beside) -> None:
    """Requests that were approved while no controller ran are signed."""
    await world.request("early", samples.request("alice"), approved=True)

    async with world.running("csrsigning"):
        await world.until_like(Request, "early", condition=lambda csr: csr.is_issued)


async def test_request_of_a_revoked_requester_fails(world: Beside) -> None:
    """The revocation came between approval and signature; a refusal for other reasons waits."""
    jane = UserInfo(username="jane", groups=(MASTERS, AUTHENTICATED))
    await world.request("late", samples.request("db"), user=jane, approved=True)
    spec = CredentialRevocationSpec(user=RevokedUser(username="jane"))
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="r"), spec=spec))

    async with world.running("csrsigning"):
        failed = await world.until_like(Request, "late", condition=lambda csr: csr.has("Failed"))

    condition = failed.status.conditions[-1]
    assert condition.reason == "RequesterRevoked"
    assert "the credentials of this user have been revoked" in condition.message
    assert not failed.is_issued


async def test_request_that_the_controller_may_not_sign_waits(world: Beside) -> None:
    """Its role may come back; it does not fail for good."""
    made = await world.request("early", samples.request("alice"), approved=True)
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    await authorities_loaded(controller)
    binding = await world.admin.get(ClusterRoleBinding, "system:controller:csrsigning")
    await world.admin.delete_gone(ClusterRoleBinding, binding)
    await world.server.feed.fresh()

    with pytest.raises(Forbidden):
        await controller.reconcile(made)

    assert not (await world.admin.get(Request, "early")).has("Failed")


async def test_denied_and_undecided_requests_are_never_signed(world: Beside) -> None:
    """Only an approval leads to a certificate."""
    denied = await world.request("denied", samples.request("alice"))
    await world.admin.update(denied.with_condition("Denied", "ByTest"), "approval")
    await world.request("pending", samples.request("alice"))
    async with world.running("csrsigning"):
        await world.request("later", samples.request("bob"), approved=True)
        await world.until_like(Request, "later", condition=lambda csr: csr.is_issued)

    for name in ("denied", "pending"):
        assert not (await world.admin.get(Request, name)).is_issued


async def test_request_for_a_signer_of_somebody_elses_is_left_alone(world: Beside) -> None:
    """A platform signer answers for its own name only."""
    async with world.running("csrsigning"):
        await world.request("x", samples.request("alice"), signer="example.com/x", approved=True)
        await world.request("ours", samples.request("bob"), approved=True)
        await world.until_like(Request, "ours", condition=lambda csr: csr.is_issued)

    left = await world.admin.get(Request, "x")
    assert [one.type for one in left.status.conditions] == ["Approved"]


async def test_what_the_profile_forbids_ends_as_failed_and_says_why(world: Beside) -> None:
    """A broken rule is final: a Failed condition, no certificate, and an Event for people."""
    async with world.running("csrsigning"):
        await world.request("f", samples.request("alice"), usages=("server auth",), approved=True)
        failed = await world.until_like(Request, "f", condition=lambda csr: csr.has("Failed"))

        async def event() -> Event | None:
            found = await world.admin.page(ListSelection(Event))
            return found.items[0] if found.items else None

        warning = await world.until(event)

    assert failed.status.conditions[1].reason == "SignerValidationFailure"
    assert failed.status.conditions[1].message == (
        "invalid usage for client certificate: server auth"
    )
    assert not failed.is_issued
    assert warning.involved_object.name == "f"
    assert warning.type == "Warning"


async def test_reserved_group_is_not_signed_even_if_approved(world: Beside) -> None:
    """Should admission ever let it through, the signer still refuses."""
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    await authorities_loaded(controller)
    made = await world.request("m", samples.request("mallory"), approved=True)
    forbidden = samples.request("mallory", ("system:masters",))
    smuggled = replace(made, spec=replace(made.spec, request=forbidden))

    await controller.reconcile(smuggled)

    stored = await world.admin.get(Request, "m")
    assert stored.has("Failed")
    assert not stored.is_issued


async def test_stored_request_that_cannot_be_read_is_tried_again(world: Beside) -> None:
    """A refusal that the queue takes up again leaves the request as it is: nobody failed it."""
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    await authorities_loaded(controller)
    made = await world.request("u", samples.request("alice"), approved=True)
    unreadable = replace(made, spec=replace(made.spec, request=b"nobody knows any more"))

    with pytest.raises(MalformedRequest, match="PEM block type must be CERTIFICATE REQUEST"):
        await controller.reconcile(unreadable)

    assert not (await world.admin.get(Request, "u")).has("Failed")


async def test_second_look_at_a_signed_request_changes_nothing(world: Beside) -> None:
    """Reconciling is idempotent: the certificate and the version stay."""
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    await authorities_loaded(controller)
    await controller.reconcile(await world.request("s", samples.request("a"), approved=True))
    issued = await world.admin.get(Request, "s")

    await controller.reconcile(issued)

    assert await world.admin.get(Request, "s") == issued


async def test_only_what_waits_for_its_certificate_is_queued(world: Beside) -> None:
    """Requests that are not approved, or are issued meanwhile, are not queued."""
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    asked = await world.request("q", samples.request("a"))
    approved = await world.approve(asked)
    lengths = []

    for type_, one in [
        ("ADDED", asked),
        ("MODIFIED", approved),
        ("MODIFIED", approved.with_certificate(b"pem")),
    ]:
        controller.take(WatchedChange(type_, msgspec.Raw(encode(one)), DECODER))
        lengths.append(len(controller.queue))

    assert lengths == [0, 1, 0]


async def test_each_signer_may_have_an_authority_that_is_followed(
    server_files: Path, tmp_path: Path
) -> None:
    """A pair of its own is used for that signer alone, and a new pair from the next look on."""
    now = datetime.datetime.now(datetime.UTC)
    certificate, key = tmp_path / "own.crt", tmp_path / "own.key"

    def write(name: str) -> None:
        made = Authority.create(name, now=now)
        key.write_bytes(made.key_pem().reveal().encode())
        key.chmod(0o600)
        certificate.write_bytes(made.certificate_pem)

    write("first")
    pair = {
        "cluster_signing_client_cert_file": str(certificate),
        "cluster_signing_client_key_file": str(key),
    }
    async with beside(server_files, **pair) as world, world.running("csrsigning"):
        issuers = []
        for name in ("first", "second"):
            write(name)
            world.clock.ahead += datetime.timedelta(seconds=CHECK_INTERVAL_SECONDS)
            await world.request(name, samples.request("alice"), approved=True)
            done = await world.until_like(Request, name, condition=lambda csr: csr.is_issued)
            leaf = x509.load_pem_x509_certificate(done.status.certificate)
            issuers.append(leaf.issuer.rfc4514_string())

    assert issuers == ["CN=first", "CN=second"]
    assert list(world.context.signers) == [ORCH.client_signer, ORCH.pod_client_signer]
