"""Join tokens: approved for their own host, and only while it has no other certificate."""

import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequestSpec as RequestSpec,
)
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.hosts.controllers import host_certificates
from orchid.features.hosts.controllers.host_certificates import Claim, HostCertificates
from orchid.features.objects.kinds.event import Event
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleRef, Subject
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.user import AUTHENTICATED, HOSTS, NODES, UserInfo
from tests.unit.features.beside import Beside
from tests.unit.kernel.credentials import samples

FIRST, SECOND = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
ROLE = f"system:{ORCH.certificates}:certificatesigningrequests:nodeclient"
RENEWALS = f"system:{ORCH.certificates}:certificatesigningrequests:selfnodeclient"
SIGNING = ("csrapproving", "csrsigning", "revocation-marker")


def token(*bound: str) -> UserInfo:
    """The user of a join token."""
    extra = {ORCH.bound_node_name: bound} if bound else {}
    groups = ("system:bootstrappers", HOSTS, AUTHENTICATED)
    return UserInfo(username="system:bootstrap:abcdef", groups=groups, extra=extra)


@pytest.fixture
async def joining(world: Beside) -> Beside:
    """Join tokens may create requests, and get them approved."""
    for role in ("system:node-bootstrapper", ROLE):
        binding = ClusterRoleBinding(
            metadata=ObjectMeta(name=f"hosts-{role}"),
            subjects=(Subject(kind="Group", api_group=ORCH.rbac, name=HOSTS),),
            role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=role),
        )
        await world.admin.create(binding)
    await world.server.feed.fresh()
    return world


async def join(
    world: Beside,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    user: UserInfo,
    host: str = "web-1",
) -> Request:
    request = samples.request(f"system:node:{host}", ("system:nodes",), key=key)
    return await world.request(name, request, signer=ORCH.node_client_signer, user=user)


async def issued(world: Beside, name: str) -> Request:
    return await world.until_like(Request, name, condition=lambda csr: csr.is_issued)


async def record_of(world: Beside, csr: Request) -> IssuedCertificate:
    records = (await world.admin.page(ListSelection(IssuedCertificate))).items
    return next(record for record in records if record.spec.request.uid == csr.metadata.uid)


async def revoke(world: Beside, record: IssuedCertificate) -> None:
    """Revoke a certificate, and wait until the inventory says so."""
    target = RevokedCertificate(
        signer_name=record.spec.signer_name, serial_number=record.spec.serial_number
    )
    spec = CredentialRevocationSpec(certificate=target, reason="keyCompromise")
    meta = ObjectMeta(name=f"lost-{record.name}")
    await world.admin.create(CredentialRevocation(metadata=meta, spec=spec))
    await world.until_like(
        IssuedCertificate, record.name, condition=lambda one: one.status.revoked is not None
    )


async def event_about(world: Beside, name: str, reason: str) -> str:
    """The message of an event about a request, once it is there."""

    async def look() -> Event | None:
        page = await world.admin.page(ListSelection(Event))
        return next(
            (
                one
                for one in page.items
                if one.involved_object.name == name and one.reason == reason
            ),
            None,
        )

    return (await world.until(look)).message


async def test_a_host_joins_with_its_token(joining: Beside) -> None:
    """And may send the same key again: a lost answer must not strand it."""
    async with joining.running(*SIGNING):
        await join(joining, "first", FIRST, token("web-1"))
        await issued(joining, "first")
        await join(joining, "again", FIRST, token("web-1"))

        assert (await issued(joining, "again")).is_approved


async def test_a_copied_token_is_worthless_after_the_join(joining: Beside) -> None:
    """The request stays undecided, and an event names the certificate."""
    async with joining.running(*SIGNING):
        await join(joining, "first", FIRST, token("web-1"))
        await issued(joining, "first")
        await join(joining, "thief", SECOND, token("web-1"))
        message = await event_about(joining, "thief", "HostHasCertificate")
        left = await joining.admin.get(Request, "thief")
        (record,) = (await joining.admin.page(ListSelection(IssuedCertificate))).items

    assert not left.is_decided
    assert record.name in message


async def test_two_keys_at_the_same_time_lead_to_one_certificate(joining: Beside) -> None:
    """The approved request counts before its certificate is on record."""
    await join(joining, "a", FIRST, token("web-1"))
    await join(joining, "b", SECOND, token("web-1"))
    async with joining.running("csrapproving"):

        async def left() -> Request | None:
            found = [await joining.admin.get(Request, name) for name in ("a", "b")]
            undecided = [one for one in found if not one.is_decided]
            return undecided[0] if len(undecided) == 1 else None

        loser = await joining.until(left)
        message = await event_about(joining, loser.name, "HostHasCertificate")

    assert "the request " in message


async def test_another_controller_counts_an_approved_request(joining: Beside) -> None:
    """Nothing is lost when the leader changes between approval and certificate."""
    await join(joining, "a", FIRST, token("web-1"))
    async with joining.running("csrapproving"):
        await joining.until_like(Request, "a", condition=lambda csr: csr.is_approved)
    await join(joining, "b", SECOND, token("web-1"))
    async with joining.running("csrapproving"):
        await event_about(joining, "b", "HostHasCertificate")

    assert not (await joining.admin.get(Request, "b")).is_decided


async def test_after_a_revocation_a_new_key_joins(joining: Beside) -> None:
    """The request that waited is approved without another attempt."""
    async with joining.running(*SIGNING):
        await join(joining, "first", FIRST, token("web-1"))
        await issued(joining, "first")
        await join(joining, "second", SECOND, token("web-1"))
        await event_about(joining, "second", "HostHasCertificate")
        (record,) = (await joining.admin.page(ListSelection(IssuedCertificate))).items
        await revoke(joining, record)

        assert (await issued(joining, "second")).is_approved


@pytest.mark.parametrize("bound", [(), ("web-2",)])
async def test_a_token_joins_no_other_host(joining: Beside, bound: tuple[str, ...]) -> None:
    """A token of the group without a name joins none at all."""
    async with joining.running("csrapproving"):
        await join(joining, "r", FIRST, token(*bound))
        await event_about(joining, "r", "OtherHost")

    assert not (await joining.admin.get(Request, "r")).is_decided


async def test_tokens_of_other_groups_work_as_before(joining: Beside) -> None:
    """A second key of the same name is approved, as in Kubernetes."""
    user = UserInfo(username="system:bootstrap:other", groups=("nodes", AUTHENTICATED))
    for role in ("system:node-bootstrapper", ROLE):
        binding = ClusterRoleBinding(
            metadata=ObjectMeta(name=f"nodes-{role}"),
            subjects=(Subject(kind="Group", api_group=ORCH.rbac, name="nodes"),),
            role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=role),
        )
        await joining.admin.create(binding)
    await joining.server.feed.fresh()
    async with joining.running(*SIGNING):
        for name, key in (("a", FIRST), ("b", SECOND)):
            await join(joining, name, key, user)
            await issued(joining, name)


async def test_a_host_cannot_collect_certificates(
    joining: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its renewals wait after as many as it never needs in an hour, revoked ones included."""
    monkeypatch.setattr(host_certificates, "MOST_RENEWALS", 2)
    binding = ClusterRoleBinding(
        metadata=ObjectMeta(name="renewals"),
        subjects=(Subject(kind="Group", api_group=ORCH.rbac, name=NODES),),
        role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=RENEWALS),
    )
    await joining.admin.create(binding)
    await joining.server.feed.fresh()
    host = UserInfo(username="system:node:web-1", groups=(NODES, AUTHENTICATED))
    async with joining.running(*SIGNING):
        for name in ("a", "b", "c"):
            await join(joining, name, ec.generate_private_key(ec.SECP256R1()), host)
            if name != "c":
                await revoke(joining, await record_of(joining, await issued(joining, name)))
        message = await event_about(joining, "c", "TooManyRenewals")
        others = UserInfo(username="system:node:web-2", groups=(NODES, AUTHENTICATED))
        await join(joining, "other", FIRST, others, "web-2")

        assert (await issued(joining, "other")).is_approved

    assert "system:node:web-1" in message
    assert not (await joining.admin.get(Request, "c")).is_decided


@pytest.mark.parametrize(
    ("issued", "is_recent"),
    [
        (None, True),  # approved, and not on record yet
        (samples.NOW, True),
        (samples.NOW - host_certificates.PERIOD + datetime.timedelta(seconds=1), True),
        (samples.NOW - host_certificates.PERIOD, False),
    ],
)
def test_renewals_count_for_an_hour(issued: datetime.datetime | None, is_recent: bool) -> None:
    """A host that renews as usual never waits."""
    assert Claim("key", "a certificate", issued=issued).is_recent(samples.NOW) is is_recent


@pytest.mark.parametrize(("cluster", "is_free"), [("", False), ("prod", True)])
def test_a_certificate_of_a_cluster_keeps_no_host_out(cluster: str, is_free: bool) -> None:
    """Its API server reports whatever signer and user it wants."""
    hosts, client = "system:node:web-1", cast("Any", None)
    certificates = HostCertificates(client, ORCH.node_client_signer)
    spec = IssuedCertificateSpec(
        signer_name=ORCH.node_client_signer, username=hosts, cluster=cluster
    )
    record = IssuedCertificate(metadata=ObjectMeta(name="0a"), spec=spec)
    event: Any = SimpleNamespace(type="ADDED", object=record)
    certificates._take_record(event)
    certificates.all_loaded.set()
    request = samples.request(hosts, ("system:nodes",))
    csr = Request(metadata=ObjectMeta(name="a", uid="1"), spec=RequestSpec(request=request))

    assert (certificates.claim(hosts, csr, samples.NOW) == "") is is_free


def test_a_claim_is_released_if_the_request_is_not_approved() -> None:
    """Then another key may join; before, it waits for the first."""
    host = "system:node:web-1"
    certificates = HostCertificates(cast("Any", None), ORCH.node_client_signer)
    certificates.all_loaded.set()
    first, second = (
        Request(
            metadata=ObjectMeta(name=name, uid=name),
            spec=RequestSpec(request=samples.request(host, ("system:nodes",), key=key)),
        )
        for name, key in (("a", samples.P256), ("b", samples.OTHER_P256))
    )

    assert certificates.claim(host, first, samples.NOW) == ""
    assert certificates.claim(host, second, samples.NOW) == "the request a"
    assert certificates.waiting(host) == ["b"]
    certificates.release(host, first)
    assert certificates.claim(host, second, samples.NOW) == ""
