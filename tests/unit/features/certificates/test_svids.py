"""X.509-SVIDs: an authority with a trust domain gives each account its own SPIFFE ID."""

import datetime
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.authorities.authority_spec import (
    AuthorityKeySpec,
    AuthorityParent,
    AuthoritySubject,
    CertificateAuthoritySpec,
)
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import samples

SIGNER = "example.com/mesh"
DOMAIN = "example.org"
ID = f"spiffe://{DOMAIN}/ns/default/sa/app"
KEY = ec.generate_private_key(ec.SECP256R1())
HOUR = datetime.timedelta(hours=1)
CONTROLLERS = (
    *("certificate-authority", "csrapproving", "csrsigning"),
    *("podcertificaterequestsigning", "bundle-publisher"),
)
# Administrators and programs of other identity providers ask, too.
ACCOUNT = UserInfo(username="system:serviceaccount:default:app", groups=(MASTERS,))
PERSON = UserInfo(username="alice", groups=(MASTERS,))


@asynccontextmanager
async def mesh(directory: Path, parent: AuthorityParent | None = None) -> AsyncIterator[Beside]:
    """A server with the authority `mesh`, and the controllers that decide and sign."""
    made = CertificateAuthority(
        metadata=ObjectMeta(name="mesh"),
        spec=CertificateAuthoritySpec(
            signer_name=SIGNER,
            key=AuthorityKeySpec(algorithm="ECDSA-P256"),
            subject=AuthoritySubject(common_name="Mesh"),
            trust_domain=DOMAIN,
            parent=parent,
        ),
    )
    async with beside(directory) as world, world.running(*CONTROLLERS):
        await world.admin.create(made)
        yield world


async def is_ready(world: Beside) -> CertificateAuthority:
    return await world.until_like(CertificateAuthority, "mesh", condition=lambda one: one.is_ready)


def request(*uris: str, subject: str = "") -> bytes:
    names = tuple(x509.UniformResourceIdentifier(uri) for uri in uris)
    return samples.request(subject, (), alternative_names=names, key=KEY)


async def outcome(
    world: Beside, asked: bytes, user: UserInfo, usages: Sequence[str] = ()
) -> Request:
    """A request that is approved by the server, or here, and then signed or failed."""
    made = await world.request("r", asked, signer=SIGNER, usages=tuple(usages), user=user)
    await world.approve(made)
    return await world.until_like(
        Request, "r", condition=lambda one: one.is_issued or one.has("Failed")
    )


def refuse_unlike_svid(leaf: x509.Certificate, spiffe_id: str) -> None:
    """The rules of X.509-SVID for a leaf (sections 2, 4.1 to 4.4, appendix A)."""
    extensions = {one.oid: one for one in leaf.extensions}
    names = extensions[x509.SubjectAlternativeName.oid]
    basic = extensions[x509.BasicConstraints.oid]
    usage = extensions[x509.KeyUsage.oid]
    purposes = extensions[x509.ExtendedKeyUsage.oid].value
    assert list(names.value) == [x509.UniformResourceIdentifier(spiffe_id)]
    assert names.critical
    assert not leaf.subject.rdns
    assert not basic.value.ca
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    assert not usage.value.crl_sign
    both = {x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH}
    assert set(purposes) == both


async def test_an_account_gets_its_own_id_without_approval(server_files: Path) -> None:
    """For an hour; the authority's certificate has the ID of the trust domain."""
    async with mesh(server_files) as world:
        authority = await is_ready(world)
        await world.request("r", request(ID), signer=SIGNER, usages=(), user=ACCOUNT)
        found = await world.until_like(Request, "r", condition=lambda one: one.is_issued)

    (leaf,) = certificates.parse_blocks(found.status.certificate)
    above = certificates.parse_blocks(authority.status.certificate)[0]
    refuse_unlike_svid(leaf, ID)
    leaf.verify_directly_issued_by(above)
    assert certificates.uris_of(above) == (f"spiffe://{DOMAIN}",)
    assert found.status.conditions[0].reason == "OwnIdentity"
    assert leaf.not_valid_after_utc - world.clock.now() <= HOUR


async def test_nobody_gets_the_id_of_another(server_files: Path) -> None:
    """Such a request stays undecided; if somebody approves it, the signer refuses."""
    other = f"spiffe://{DOMAIN}/ns/default/sa/other"
    async with mesh(server_files) as world:
        await is_ready(world)
        await world.request("left", request(other), signer=SIGNER, usages=(), user=ACCOUNT)
        await world.request("own", request(ID), signer=SIGNER, usages=(), user=ACCOUNT)
        await world.until_like(Request, "own", condition=lambda one: one.is_issued)
        left = await world.admin.get(Request, "left")
        found = await outcome(world, request(other), ACCOUNT)

    assert not left.is_decided
    assert f"the SPIFFE ID of the requester is {ID}" in str(found.status.conditions)


async def test_a_person_has_no_id(server_files: Path) -> None:
    """Not even an administrator."""
    async with mesh(server_files) as world:
        await is_ready(world)
        found = await outcome(world, request(ID), PERSON)

    assert "only service accounts have SPIFFE IDs" in str(found.status.conditions)


async def test_a_pod_gets_the_id_of_its_account(server_files: Path) -> None:
    """By a PodCertificateRequest, whose stub has nothing but the key; for an hour."""
    async with mesh(server_files) as world:
        await is_ready(world)
        account = await world.account("app")
        node = await world.admin.create(Node(metadata=ObjectMeta(name="n1")))
        meta = ObjectMeta(name="web", namespace="default")
        content = {"serviceAccountName": "app", "nodeName": "n1"}
        pod = await world.admin.create(Pod(metadata=meta, spec=content))
        spec = PodCertificateRequestSpec(
            signer_name=SIGNER,
            pod_name="web",
            pod_uid=pod.metadata.uid,
            service_account_name="app",
            service_account_uid=account.metadata.uid,
            node_name="n1",
            node_uid=node.metadata.uid,
            max_expiration_seconds=86400,
            stub_pkcs10_request=samples.stub(KEY),
        )
        asked = PodCertificateRequest(
            metadata=ObjectMeta(name="req", namespace="default"), spec=spec
        )
        await world.admin.create(asked)
        found = await world.until_like(
            PodCertificateRequest, "req", "default", condition=lambda one: one.is_settled
        )

    assert found.state == "Issued", found.status.conditions
    leaf = certificates.parse_blocks(found.status.certificate_chain)[0]
    refuse_unlike_svid(leaf, ID)
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == HOUR


async def test_its_bundle_has_the_trust_domain(server_files: Path) -> None:
    """So /trust/mesh.json exists without another command."""
    async with mesh(server_files) as world:
        found = await world.until_like(PublishedBundle, "mesh")

    assert found.spec.trust_domain == DOMAIN


async def test_an_external_root_is_asked_for_the_id(server_files: Path) -> None:
    """The request of an intermediate authority has the URI of the trust domain."""
    async with mesh(server_files, AuthorityParent(external=True)) as world:
        found = await world.until_like(
            CertificateAuthority, "mesh", condition=lambda one: bool(one.status.request)
        )

    parsed = signing_request.parse(found.status.request.encode())
    assert parsed.uris == (f"spiffe://{DOMAIN}",)
