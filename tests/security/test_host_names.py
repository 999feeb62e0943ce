"""The attack: a subject whose text reads like the name of another host.

The inventory read the user of a certificate from the text of its subject, split at commas. A
serial number `1,CN=system:node:app-4` in the request of app-3 made its certificate one of app-4:
app-4 could not join, and the copied token of app-3 got further certificates.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleRef, Subject
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import AUTHENTICATED, HOSTS, UserInfo
from tests.unit.features.beside import Beside, beside
from tests.unit.kernel.credentials import samples

OTHER_HOST = "system:node:app-4"
HIDDEN = f"1,CN={OTHER_HOST}"
SIGNING = ("csrapproving", "csrsigning", "revocation-marker")
ROLE = f"system:{ORCH.certificates}:certificatesigningrequests:nodeclient"


def token_of(host: str) -> UserInfo:
    return UserInfo(
        username="system:bootstrap:abcdef",
        groups=("system:bootstrappers", HOSTS, AUTHENTICATED),
        extra={ORCH.bound_node_name: (host,)},
    )


def request(user: str, organization: str, serial_number: str = HIDDEN) -> bytes:
    """A request whose subject has a serial number."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, serial_number),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    """Join tokens may create requests, and get them approved."""
    async with beside(server_files) as made:
        for role in ("system:node-bootstrapper", ROLE):
            binding = ClusterRoleBinding(
                metadata=ObjectMeta(name=f"hosts-{role}"),
                subjects=(Subject(kind="Group", api_group=ORCH.rbac, name=HOSTS),),
                role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=role),
            )
            await made.admin.create(binding)
        await made.server.feed.fresh()
        yield made


async def join(world: Beside, name: str, host: str, sent: bytes) -> None:
    signer = ORCH.node_client_signer
    await world.request(name, sent, signer=signer, user=token_of(host))


async def record_of_jane(world: Beside) -> IssuedCertificate:
    """The record of a client certificate with the hidden name."""
    await world.request("jane", request("jane", "dev"), approved=True)
    async with world.running(*SIGNING):
        await world.until_like(Request, "jane", condition=lambda csr: csr.is_issued)
    (record,) = (await world.admin.page(ListSelection(IssuedCertificate))).items
    return record


async def test_a_host_joins_whatever_others_hide_in_their_subjects(world: Beside) -> None:
    """The request with the hidden name gets no certificate, and app-4 gets its own."""
    async with world.running(*SIGNING):
        await join(world, "thief", "app-3", request("system:node:app-3", "system:nodes"))
        await join(world, "app-4", "app-4", samples.request(OTHER_HOST, ("system:nodes",)))

        await world.until_like(Request, "app-4", condition=lambda csr: csr.is_issued)

    assert not (await world.admin.get(Request, "thief")).is_decided


async def test_the_inventory_names_the_user_that_a_certificate_authenticates(
    world: Beside,
) -> None:
    """From the certificate, when it is recorded; and for a record of an earlier version."""
    record = await record_of_jane(world)
    earlier = replace(record, spec=replace(record.spec, username=""))

    assert (record.spec.username, record.username, earlier.username) == ("jane",) * 3


@pytest.mark.parametrize(("user", "is_revoked"), [("jane", True), (OTHER_HOST, False)])
async def test_a_revocation_reaches_the_user_that_a_certificate_authenticates(
    world: Beside, user: str, is_revoked: bool
) -> None:
    """The renewal information says so, and it says nothing about another user's certificate."""
    record = await record_of_jane(world)
    spec = CredentialRevocationSpec(user=RevokedUser(username=user))
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="r"), spec=spec))
    await world.server.feed.fresh()

    assert world.server.context.port(Revocations).is_final(record) is is_revoked
