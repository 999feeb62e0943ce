"""When a revocation is effective: each live server counts; and the object of its Event."""

from datetime import timedelta
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
)
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.objects.kinds.lease import Lease
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.applied_revision import LASTS, applied_annotation
from orchid.features.revoking.controllers.confirm_revocations import (
    LOOK_AGAIN,
    REMOVED_AFTER,
    ConfirmRevocations,
    concerned,
)
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

HOME = ORCH.system_namespace
USER = {"user": {"username": "alice"}}


class Recorder:
    """Notes the Events: about what, and why."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, _component: str, about: Object, reason: str, message: str) -> None:
        self.events.append((type(about).__name__, about.name, reason))


class Confirming:
    """The controller, its client, its clock and its Events."""

    def __init__(self, *stored: Object) -> None:
        self.client: Any = SmallClient(*stored)
        self.clock, self.events = FakeClock(NOW), Recorder()
        parts: Any = self.client, ORCH, self.clock, self.events
        self.controller = ConfirmRevocations(*parts)

    async def heard(self, name: str, applied: Any = "10", type_: str = "MODIFIED") -> list[Any]:
        """A Lease of a server; returns the keys that are looked at again."""
        event = change(lease(name, applied), type_)
        return [key async for key in self.controller._heard(event)]


def lease(name: str, applied: Any) -> Lease:
    marks = {applied_annotation(ORCH): applied} if applied is not None else {}
    return Lease(metadata=ObjectMeta(name=name, namespace=HOME, annotations=marks))


def revocation(version: int = 10, spec: Any = USER, **status: Any) -> CredentialRevocation:
    meta = {"name": "r", "resourceVersion": str(version)}
    return convert({"metadata": meta, "spec": spec, "status": status}, CredentialRevocation)


@pytest.mark.parametrize(
    ("servers", "effective"),
    [
        ({"a": "10"}, True),
        ({"a": "11"}, True),
        ({"a": "9"}, False),
        ({"a": "10", "b": "10"}, True),
        ({"a": "10", "b": "9"}, False),
        ({"a": "9", "b": "10"}, False),
        ({"a": "10", "b": None}, False),
        ({"a": "10", "b": "eleven"}, False),
        ({"a": "10", "b": "٣٣"}, False),
        ({}, False),
    ],
)
async def test_a_revocation_is_effective_when_each_server_applies_it(
    servers: dict[str, Any], effective: bool
) -> None:
    """One that reports nothing, or no number, applies none; without a server none is effective."""
    made = Confirming()
    for name, applied in servers.items():
        await made.heard(name, applied)

    again = await made.controller.reconcile(revocation())

    written = made.client.written("status")
    assert bool(written) is effective
    assert again == (None if effective else LOOK_AGAIN)
    assert bool(made.events.events) is effective
    if effective:
        (said,) = written[0].status.conditions
        assert (said.type, said.status, said.reason) == ("Effective", "True", "Applied")
        assert said.message == f"Refused by every server ({len(servers)})."
        assert said.last_transition_time == NOW


@pytest.mark.parametrize(("seconds", "effective"), [(LASTS, False), (LASTS + 1, True)])
async def test_a_server_that_is_silent_is_not_waited_for(seconds: float, effective: bool) -> None:
    """The age of a renewal counts by the clock of this server."""
    made = Confirming()
    await made.heard("old", "9")
    made.clock.advance(seconds)
    await made.heard("new", "10")

    await made.controller.reconcile(revocation())

    assert bool(made.client.written("status")) is effective


async def test_a_server_that_ended_is_not_waited_for() -> None:
    made = Confirming()
    await made.heard("old", "9")
    await made.heard("new", "10")
    await made.heard("old", "9", "DELETED")
    await made.heard("never", "9", "DELETED")

    await made.controller.reconcile(revocation())

    assert made.client.written("status")


async def test_an_effective_revocation_is_not_written_again() -> None:
    made = Confirming()
    await made.heard("a", "10")
    effective = revocation(conditions=[{"type": "Effective", "status": "True"}])

    assert await made.controller.reconcile(effective) is None

    assert (made.client.writes, made.events.events) == ([], [])


async def test_what_waits_is_looked_at_again_with_each_report() -> None:
    """Until it is effective, or gone."""
    made = Confirming()
    await made.controller.reconcile(revocation())
    assert await made.heard("a", "9") == [("", "r")]

    await made.heard("a", "10")
    await made.controller.reconcile(revocation())
    assert await made.heard("a", "11") == []


async def test_a_revocation_that_is_gone_does_not_wait() -> None:
    made = Confirming()
    await made.controller.reconcile(revocation())

    await made.controller.gone(revocation())

    assert await made.heard("a", "9") == []


HOLD = {**USER, "reason": "certificateHold"}


@pytest.mark.parametrize(
    ("spec", "expires", "released"),
    [
        (HOLD, None, True),
        (HOLD, NOW + timedelta(seconds=1), True),
        (HOLD, NOW, False),
        (USER, None, False),
    ],
)
async def test_only_a_hold_that_still_counted_is_released(
    spec: Any, expires: Any, released: bool
) -> None:
    """One that had ended released nothing when it was removed."""
    made = Confirming()
    last = revocation(spec=spec)

    await made.controller.gone(replace(last, status=replace(last.status, expires=expires)))

    expected = [("CredentialRevocation", "r", "Released")] if released else []
    assert made.events.events == expected


@pytest.mark.parametrize(("seconds", "stays"), [(REMOVED_AFTER, True), (REMOVED_AFTER + 1, False)])
async def test_the_lease_of_a_server_that_is_long_gone_is_deleted(
    seconds: float, stays: bool
) -> None:
    """Each that is silent, and no other."""
    made = Confirming(lease("old", "1"), lease("older", "1"), lease("new", "1"))
    await made.heard("old")
    await made.heard("older")
    made.clock.advance(seconds)

    await made.heard("new")
    await made.heard("new")

    assert [one.name for one in made.client.written("delete")] == (
        [] if stays else ["old", "older"]
    )


async def test_a_lease_that_is_gone_already_is_no_failure() -> None:
    made = Confirming()
    await made.heard("old")
    made.clock.advance(REMOVED_AFTER + 1)

    await made.heard("new")

    assert made.client.writes == []


# -- the object of the Event ----------------------------------------------------------------------


def csr(uid: str = "u1") -> CertificateSigningRequest:
    return CertificateSigningRequest(metadata=ObjectMeta(name="web-1", uid=uid))


def record(uid: str = "u1") -> IssuedCertificate:
    spec = IssuedCertificateSpec(request=IssuedFor(name="web-1", uid=uid))
    return IssuedCertificate(metadata=ObjectMeta(name="0a"), spec=spec)


def account(namespace: str) -> ServiceAccount:
    return ServiceAccount(metadata=ObjectMeta(name="app", namespace=namespace))


def signer(name: str) -> CertificateAuthority:
    return convert({"metadata": {"name": name}}, CertificateAuthority)


CERTIFICATE = {"certificate": {"serialNumber": "0a", "requestName": "web-1"}}
ACCOUNT = {"namespace": "team", "name": "app"}


@pytest.mark.parametrize(
    ("spec", "stored", "expected"),
    [
        (CERTIFICATE, (record(), csr()), csr()),
        (CERTIFICATE, (record(), csr("u2")), record()),
        (CERTIFICATE, (record(),), record()),
        (CERTIFICATE, (csr(),), None),
        ({"certificate": {"requestName": "web-1"}}, (record(), csr()), None),
        ({"account": ACCOUNT}, (account("team"), account("other")), account("team")),
        ({"account": ACCOUNT}, (account("other"),), None),
        ({"token": {"jti": "x", **ACCOUNT}}, (account("team"),), account("team")),
        ({"token": {"jti": "x"}}, (account("team"),), None),
        ({"authority": {"signerName": "example.com/web"}}, (signer("web"),), signer("web")),
        ({"authority": {"signerName": "example.com/web"}}, (), None),
        (USER, (account("team"),), None),
        (
            {**CERTIFICATE, "cluster": "prod"},
            (record(), csr(), Cluster(metadata=ObjectMeta(name="prod"))),
            Cluster(metadata=ObjectMeta(name="prod")),
        ),
        ({**CERTIFICATE, "cluster": "prod"}, (record(), csr()), None),
        (
            {**CERTIFICATE, "cluster": "prod", "clusterUID": "earlier"},
            (Cluster(metadata=ObjectMeta(name="prod", uid="now")),),
            None,
        ),
    ],
)
async def test_an_event_is_about_the_object_that_is_revoked(
    spec: Any, stored: tuple[Object, ...], expected: Object | None
) -> None:
    """A request that was created again under the name is another one: then it is the record."""
    client: Any = SmallClient(*stored)

    found = await concerned(client, convert(spec, CredentialRevocationSpec))

    assert found == expected


async def test_the_authority_of_an_event_is_that_of_the_signer() -> None:
    client: Any = SmallClient(signer("web"))

    await concerned(
        client, convert({"authority": {"signerName": "example.com/web"}}, CredentialRevocationSpec)
    )

    assert [one.fields for one in client.selections] == ["spec.signerName=example.com/web"]


async def test_the_event_of_an_account_is_at_the_account() -> None:
    made = Confirming(account("team"))
    await made.heard("a", "10")

    await made.controller.reconcile(revocation(spec={"account": ACCOUNT}))

    assert made.events.events == [("ServiceAccount", "app", "Revoked")]
