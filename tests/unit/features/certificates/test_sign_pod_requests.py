"""The signer of PodCertificateRequests: the subject is the account, and everything is checked."""

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.approval.issuing_terms import IssuingTerms
from orchid.features.authorities.authority_spec import (
    AuthorityKeySpec,
    AuthoritySubject,
    CertificateAuthoritySpec,
)
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.controllers.sign_pod_requests import SignPodRequests
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from tests.unit.features.beside import Beside, authorities_loaded, beside
from tests.unit.kernel.credentials import samples

SIGNER = ORCH.pod_client_signer
OWN = "example.com/pods"
HOUR = datetime.timedelta(hours=1)
KEY = ec.generate_private_key(ec.SECP256R1())


async def placed(world: Beside) -> PodCertificateRequestSpec:
    """An account, a Node and a Pod, and a request for it."""
    account = await world.account("app")
    node = await world.admin.create(Node(metadata=ObjectMeta(name="n1")))
    made = Pod(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec={"serviceAccountName": "app", "nodeName": "n1"},
    )
    pod = await world.admin.create(made)
    return PodCertificateRequestSpec(
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


async def outcome(
    world: Beside, spec: PodCertificateRequestSpec, **other: Any
) -> PodCertificateRequest:
    """Create a request and have the signer look at it once."""
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__} | other
    made = PodCertificateRequest(
        metadata=ObjectMeta(generate_name="req-", namespace="default"),
        spec=PodCertificateRequestSpec(**fields),
    )
    created = await world.admin.create(made)
    (controller,) = world.made("podcertificaterequestsigning")
    assert isinstance(controller, SignPodRequests)
    await authorities_loaded(controller)
    await controller.reconcile(created)
    return await world.admin.get(PodCertificateRequest, created.name, "default")


def leaf_of(found: PodCertificateRequest) -> x509.Certificate:
    return certificates.parse_blocks(found.status.certificate_chain)[0]


def lifetime(leaf: x509.Certificate) -> datetime.timedelta:
    return leaf.not_valid_after_utc - leaf.not_valid_before_utc


async def test_a_pod_gets_a_certificate_of_its_account(world: Beside) -> None:
    """For a day, backdated by two minutes, to be renewed after 60 to 70 % of its life."""
    spec = await placed(world)

    found = await outcome(world, spec)

    status, leaf = found.status, leaf_of(found)
    identity = certificates.identify(certificates.encode(leaf))
    assert found.state == "Issued"
    assert identity.user == "system:serviceaccount:default:app"
    assert set(identity.groups) == {"system:serviceaccounts", "system:serviceaccounts:default"}
    assert identity.uid == spec.service_account_uid
    assert leaf.public_key() == KEY.public_key()
    assert lifetime(leaf) == 24 * HOUR
    assert (status.not_before, status.not_after) == (
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )
    assert status.not_before is not None
    assert status.begin_refresh_at is not None
    share = (status.begin_refresh_at - status.not_before) / (24 * HOUR)
    assert 0.599 < share < 0.701
    backdated = world.clock.now() - status.not_before
    assert datetime.timedelta(minutes=2) <= backdated < datetime.timedelta(minutes=4)
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]


async def test_a_request_of_a_revoked_node_fails(world: Beside) -> None:
    """It was created before the end of the revocation, with a credential that is revoked now."""
    spec = await placed(world)
    until = world.clock.now() + HOUR
    user = RevokedUser(username="admin", issued_before=until)
    revocation = CredentialRevocationSpec(user=user)
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="r"), spec=revocation))

    found = await outcome(world, spec)

    assert (found.state, found.status.certificate_chain) == ("Failed", "")
    assert found.status.conditions[-1].reason == "RequesterRevoked"


async def test_the_inventory_names_pod_and_requester(world: Beside) -> None:
    """Record and outcome are one commit."""
    spec = await placed(world)

    found = await outcome(world, spec)

    serial = f"{leaf_of(found).serial_number:x}"
    record = (await world.admin.get(IssuedCertificate, serial)).spec
    assert record.pod is not None
    assert (record.pod.namespace, record.pod.name, record.pod.uid, record.pod.node_name) == (
        "default",
        "web",
        spec.pod_uid,
        "n1",
    )
    assert record.requester.username == "admin"
    assert record.request.name == f"default/{found.name}"


async def test_a_shorter_life_is_granted(world: Beside) -> None:
    """maxExpirationSeconds is a limit."""
    spec = await placed(world)

    assert lifetime(leaf_of(await outcome(world, spec, max_expiration_seconds=3600))) == HOUR


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"pod_name": "gone"}, "PodNotFound"),
        ({"pod_uid": "x"}, "PodReplaced"),
        ({"service_account_name": "other"}, "ServiceAccountNotFound"),
        ({"service_account_uid": "x"}, "ServiceAccountReplaced"),
        ({"node_name": "n2"}, "NodeNotFound"),
        ({"node_uid": "x"}, "NodeReplaced"),
        (
            {"unverified_user_annotations": {"example.com/a": "b"}},
            "InvalidUnverifiedUserAnnotations",
        ),
        (
            {"stub_pkcs10_request": pem.split(samples.request("system:masters"))[0].data},
            "StubNotEmpty",
        ),
    ],
)
async def test_everything_in_a_request_is_checked(
    world: Beside, other: dict[str, Any], reason: str
) -> None:
    """An administrator may create any request; the signer denies what does not hold."""
    found = await outcome(world, await placed(world), **other)

    (condition,) = found.status.conditions
    assert (condition.type, condition.reason) == ("Denied", reason)
    assert not found.status.certificate_chain


async def test_pod_account_and_node_belong_together(world: Beside) -> None:
    """Each exists, but the Pod runs as another account and on another Node."""
    spec = await placed(world)
    account = await world.account("powerful")
    node = await world.admin.create(Node(metadata=ObjectMeta(name="n2")))
    found = [
        await outcome(
            world,
            spec,
            service_account_name="powerful",
            service_account_uid=account.metadata.uid,
        ),
        await outcome(world, spec, node_name="n2", node_uid=node.metadata.uid),
    ]

    reasons = [one.status.conditions[0].reason for one in found]
    assert reasons == ["OtherServiceAccount", "OtherNode"]


async def test_a_mirror_pod_gets_none(world: Beside) -> None:
    """Its node wrote it."""
    spec = await placed(world)
    change = {"metadata": {"annotations": {ORCH.mirror_annotation: "x"}}}
    await world.admin.patch(Pod, "web", "default", change)

    found = await outcome(world, spec)

    assert found.status.conditions[0].reason == "MirrorPod"


async def test_signers_of_others_are_left_alone(world: Beside) -> None:
    """The request stays pending for its external signer."""
    spec = await placed(world)

    assert (await outcome(world, spec, signer_name="example.com/elsewhere")).state == "Pending"


@asynccontextmanager
async def with_authority(directory: Path, **terms: Any) -> AsyncIterator[Beside]:
    """A server with an authority that is Ready, and the controllers that sign."""
    made = CertificateAuthority(
        metadata=ObjectMeta(name="pods"),
        spec=CertificateAuthoritySpec(
            signer_name=OWN,
            key=AuthorityKeySpec(algorithm="ECDSA-P256"),
            subject=AuthoritySubject(common_name="Pods"),
            issues=IssuingTerms(**terms),
        ),
    )
    async with (
        beside(directory) as world,
        world.running("certificate-authority", "podcertificaterequestsigning"),
    ):
        await world.admin.create(made)
        await world.until_like(CertificateAuthority, "pods", condition=lambda one: one.is_ready)
        yield world


async def settled(world: Beside, spec: PodCertificateRequestSpec) -> PodCertificateRequest:
    meta = ObjectMeta(name="req-1", namespace="default")
    await world.admin.create(PodCertificateRequest(metadata=meta, spec=spec))
    return await world.until_like(
        PodCertificateRequest, "req-1", "default", condition=lambda one: one.is_settled
    )


async def test_an_authority_issues_to_pods_if_its_terms_say_so(server_files: Path) -> None:
    """With its own usages and its longest life, signed by its own key."""
    terms = {"pods": True, "max_duration": "2h", "default_duration": "1h"}
    async with with_authority(server_files, **terms) as world:
        spec = await placed(world)
        found = await settled(world, _with(spec, signer_name=OWN))
        authority = await world.admin.get(CertificateAuthority, "pods")

    leaf = leaf_of(found)
    leaf.verify_directly_issued_by(certificates.parse_blocks(authority.status.certificate)[0])
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert lifetime(leaf) == 2 * HOUR
    assert list(usages) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]


async def test_an_authority_denies_keys_that_it_does_not_certify(server_files: Path) -> None:
    """The reason is the one that Kubernetes documents."""
    async with with_authority(server_files, pods=True, keys=("Ed25519",)) as world:
        found = await settled(world, _with(await placed(world), signer_name=OWN))

    (condition,) = found.status.conditions
    assert (condition.type, condition.reason) == ("Denied", "UnsupportedKeyType")
    assert "ECDSA-P256 keys are not allowed" in condition.message


async def test_without_the_word_an_authority_issues_nothing_to_pods(server_files: Path) -> None:
    """The request waits; it is signed when the terms change."""
    async with with_authority(server_files) as world:
        spec = _with(await placed(world), signer_name=OWN)
        meta = ObjectMeta(name="req-1", namespace="default")
        await world.admin.create(PodCertificateRequest(metadata=meta, spec=spec))
        change = {"spec": {"issues": {"pods": True}}}
        before = await world.admin.get(PodCertificateRequest, "req-1", "default")
        await world.admin.patch(CertificateAuthority, "pods", "", change)
        found = await world.until_like(
            PodCertificateRequest, "req-1", "default", condition=lambda one: one.is_settled
        )

    assert (before.state, found.state) == ("Pending", "Issued")


def _with(spec: PodCertificateRequestSpec, **other: Any) -> PodCertificateRequestSpec:
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return PodCertificateRequestSpec(**(fields | other))


async def test_a_certificate_request_cannot_ask_that_signer(world: Beside) -> None:
    """An approved CertificateSigningRequest for the signer of Pods is not signed."""
    await world.request("csr", samples.request("alice"), signer=SIGNER, approved=True)
    async with world.running("csrsigning"):
        asked = await world.request("ours", samples.request("alice"), approved=True)
        await world.until_like(type(asked), "ours", condition=lambda csr: csr.is_issued)
        left = await world.admin.get(type(asked), "csr")

    assert not left.is_issued


async def test_an_account_that_is_being_deleted_gets_none(world: Beside) -> None:
    """A finalizer keeps the object, but not its right to credentials."""
    spec = await placed(world)
    change = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.admin.patch(ServiceAccount, "app", "default", change)
    await world.admin.delete(ServiceAccount, "app", "default")

    found = await outcome(world, spec)

    assert found.status.conditions[0].reason == "ServiceAccountBeingDeleted"
