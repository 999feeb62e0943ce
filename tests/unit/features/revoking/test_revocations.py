"""Controllers of revocations: confirm them, update the inventory, remove expired ones."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest
from cryptography import x509

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.token_lifetimes import TokenLifetimes
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.lease import Lease, LeaseSpec, server_label
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.applied_revision import (
    LASTS,
    AppliedRevision,
    applied_annotation,
)
from orchid.features.revoking.controllers.confirm_revocations import ConfirmRevocations
from orchid.features.revoking.controllers.mark_revoked import MarkRevoked
from orchid.features.revoking.policies.repeated_revocations import RepeatedRevocations
from orchid.kernel.client.client import ListSelection, WatchedChange
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import (
    RevokedAccount,
    RevokedAuthority,
    RevokedCertificate,
    RevokedToken,
)
from orchid.kernel.wire.struct import replace
from tests.unit.features.authorities.test_keep_authorities import SIGNER, until_ready
from tests.unit.features.authorities.test_keep_authorities import create as create_authority
from tests.unit.features.beside import Beside, MovingClock
from tests.unit.features.certificates.test_issued_certificates import issued

HOME = ORCH.system_namespace


async def revoke(world: Beside, name: str, **spec: Any) -> CredentialRevocation:
    made = CredentialRevocation(
        metadata=ObjectMeta(name=name), spec=CredentialRevocationSpec(**spec)
    )
    return await world.admin.create(made)


def confirmer(world: Beside) -> ConfirmRevocations:
    client = world.server.clients("revocation-confirmer")
    return ConfirmRevocations(client, ORCH, world.clock, world.events)


async def events_of(world: Beside, reason: str, count: int) -> dict[str, Event]:
    """The Events with a reason, by the kind of what they are about, once there are so many."""

    async def look() -> list[Event] | None:
        page = await world.admin.page(ListSelection(Event))
        found = [one for one in page.items if one.reason == reason]
        return found if len(found) == count else None

    return {one.involved_object.kind: one for one in await world.until(look)}


async def marked(world: Beside, leaf: x509.Certificate, reason: str | None) -> None:
    """Wait until the inventory says of a certificate that it is revoked for a reason, or not."""
    await world.until_like(
        IssuedCertificate,
        f"{leaf.serial_number:x}",
        condition=lambda one: (one.status.revoked and one.status.revoked.reason) == reason,
    )


async def write_mark(world: Beside, leaf: x509.Certificate, mark: Revoked | None) -> None:
    """A write by a user with the right to update `issuedcertificates/status`."""
    record = await world.admin.get(IssuedCertificate, f"{leaf.serial_number:x}")
    status = IssuedCertificateStatus(revoked=mark)
    await world.admin.update_status(replace(record, status=status))


def unseen() -> RevokedCertificate:
    return RevokedCertificate(sha256="0" * 64)


@asynccontextmanager
async def reporting(world: Beside) -> AsyncIterator[AppliedRevision]:
    """The server says how far it is, as it does while it runs."""
    task = asyncio.create_task(world.server.context.port(AppliedRevision).run())
    try:
        yield world.server.context.port(AppliedRevision)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def lease(name: str, applied: int) -> Lease:
    meta = ObjectMeta(
        name=name,
        namespace=HOME,
        labels={server_label(ORCH): "true"},
        annotations={applied_annotation(ORCH): str(applied)},
    )
    return Lease(metadata=meta, spec=LeaseSpec(lease_duration_seconds=LASTS))


async def test_a_revocation_is_effective_when_every_server_has_applied_it(world: Beside) -> None:
    """Not while one that lives is behind; a server that leaves is not waited for."""
    await world.admin.create(lease("slow", 1))
    async with reporting(world), world.running("revocation-confirmer"):
        made = await revoke(world, "a", certificate=unseen())
        here = int(made.metadata.resource_version)
        await world.until_like(
            Lease,
            world.server.context.port(AppliedRevision).name,
            HOME,
            lambda found: int(found.metadata.annotations[applied_annotation(ORCH)]) >= here,
        )
        before = await world.admin.get(CredentialRevocation, "a")
        await world.admin.delete(Lease, "slow", HOME)

        after = await world.until_like(
            CredentialRevocation, "a", condition=lambda one: one.is_effective
        )

    assert not before.is_effective
    assert after.status.conditions[0].message == "Refused by every server (1)."


async def test_what_a_revocation_concerns_gets_an_event(world: Beside) -> None:
    """The request, the account, the signer's authority, or the revocation if none is there."""
    await world.account("robot")
    robot = {"namespace": "default", "name": "robot"}
    async with (
        reporting(world),
        world.running("csrsigning", "certificate-authority", "revocation-confirmer"),
    ):
        await issued(world, "alice")
        await create_authority(world)
        await until_ready(world)
        named = RevokedCertificate(request_name="alice")
        await revoke(world, "a", certificate=named, reason="certificateHold")
        await revoke(world, "b", account=RevokedAccount(**robot))
        await revoke(world, "c", authority=RevokedAuthority(signer_name=SIGNER))
        await revoke(world, "d", certificate=unseen())

        found = await events_of(world, "Revoked", 4)
        await world.admin.delete(CredentialRevocation, "a")
        lifted = await events_of(world, "Released", 1)

    names = {kind: event.involved_object.name for kind, event in found.items()}
    assert names == {
        "CertificateSigningRequest": "alice",
        "ServiceAccount": "robot",
        "CertificateAuthority": "web",
        "CredentialRevocation": "d",
    }
    assert found["ServiceAccount"].message == ("Revoked account/default/robot (unspecified), by b.")
    assert lifted["CertificateSigningRequest"].involved_object.name == "alice"


async def test_a_server_that_is_silent_for_long_is_not_waited_for(world: Beside) -> None:
    """It crashed; by its Lease alone it would hold up every revocation for ever."""
    now = world.clock.monotonic()
    controller = confirmer(world)
    controller._servers = {"crashed": (1, now - LASTS - 1), "live": (2**60, now)}
    made = await revoke(world, "a", certificate=unseen())

    again = await controller.reconcile(made)

    found = await world.admin.get(CredentialRevocation, "a")
    assert again is None
    assert found.is_effective


async def test_without_any_server_nothing_is_confirmed(world: Beside) -> None:
    """Silence is no proof."""
    controller = confirmer(world)
    made = await revoke(world, "a", certificate=unseen())

    again = await controller.reconcile(made)

    assert again is not None
    assert not (await world.admin.get(CredentialRevocation, "a")).is_effective


async def test_a_server_that_ends_takes_its_lease_away(world: Beside) -> None:
    """So that nobody waits for it."""
    async with reporting(world) as report:
        await world.until_like(Lease, report.name, HOME)

    await report.leave()

    assert await world.admin.find(Lease, report.name, HOME) is None


async def test_the_inventory_shows_revoked_and_released_certificates(world: Beside) -> None:
    """With time and reason, and no longer when a hold is lifted."""
    async with world.running("csrsigning", "revocation-marker"):
        leaf = await issued(world, "alice")
        serial = f"{leaf.serial_number:x}"
        named = RevokedCertificate(request_name="alice")
        made = await revoke(world, "hold", certificate=named, reason="certificateHold")
        held = await world.until_like(
            IssuedCertificate, serial, condition=lambda one: one.status.revoked is not None
        )

        await world.admin.delete(CredentialRevocation, "hold")

        await world.until_like(
            IssuedCertificate, serial, condition=lambda one: one.status.revoked is None
        )
    assert held.status.revoked is not None
    assert held.status.revoked.reason == "certificateHold"
    assert held.status.revoked.time == made.metadata.creation_timestamp


async def test_the_inventory_shows_the_revocation_of_a_signer(world: Beside) -> None:
    """Every certificate until then, and none after."""
    async with world.running("csrsigning", "revocation-marker"):
        old = await issued(world, "old")
        authority = RevokedAuthority(signer_name=ORCH.client_signer)
        await revoke(world, "all", authority=authority, reason="cACompromise")
        await world.until_like(
            IssuedCertificate,
            f"{old.serial_number:x}",
            condition=lambda one: one.status.revoked is not None,
        )

        new = await issued(world, "new")
        await revoke(world, "other", certificate=RevokedCertificate(request_name="old"))

    found = await world.admin.get(IssuedCertificate, f"{new.serial_number:x}")
    assert found.status.revoked is None


async def test_a_hold_that_was_lifted_while_no_controller_ran_is_not_marked(world: Beside) -> None:
    """The mark follows from the existing revocations; nobody has to see the deletion."""
    async with world.running("csrsigning", "revocation-marker"):
        held, kept = await issued(world, "held"), await issued(world, "kept")
        for name in ("held", "kept"):
            named = RevokedCertificate(request_name=name)
            await revoke(world, name, certificate=named, reason="certificateHold")
        await marked(world, held, "certificateHold")
        await marked(world, kept, "certificateHold")

    await world.admin.delete(CredentialRevocation, "held")
    named = RevokedCertificate(request_name="kept")
    await revoke(world, "final", certificate=named, reason="keyCompromise")

    async with world.running("revocation-marker"):
        await marked(world, held, None)
        await marked(world, kept, "keyCompromise")


async def test_a_mark_that_somebody_wrote_is_corrected(world: Beside) -> None:
    """Neither adding a mark nor removing one changes what is revoked."""
    async with world.running("csrsigning", "revocation-marker"):
        good, bad = await issued(world, "good"), await issued(world, "bad")
        await revoke(world, "bad", certificate=RevokedCertificate(request_name="bad"))
        await marked(world, bad, "unspecified")

        forged = Revoked(time=world.clock.now().replace(microsecond=0), reason="keyCompromise")
        await write_mark(world, good, forged)
        await write_mark(world, bad, None)

        await marked(world, good, None)
        await marked(world, bad, "unspecified")


async def test_all_marks_are_compared_with_the_revocations_from_time_to_time(
    world: Beside,
) -> None:
    """Also after an event that never came: here, of a record made late."""
    async with world.running("csrsigning"):
        leaf = await issued(world, "alice")
    marker = MarkRevoked(
        world.server.clients("revocation-marker"), world.clock, timedelta(milliseconds=1)
    )
    marker._take = lambda event, index: index.put(event.object)  # type: ignore[method-assign]  # deaf
    await write_mark(world, leaf, Revoked(time=world.clock.now().replace(microsecond=0)))
    running = asyncio.create_task(marker.run())
    try:
        await marked(world, leaf, None)
        await revoke(world, "late", certificate=RevokedCertificate(request_name="alice"))
        await marked(world, leaf, "unspecified")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_the_mark_of_a_certificate_that_has_ended_stays(world: Beside) -> None:
    """Its revocation is removed then, and what the inventory says remains true."""
    async with world.running("csrsigning", "revocation-marker"):
        leaf = await issued(world, "alice")
        await revoke(world, "a", certificate=RevokedCertificate(request_name="alice"))
        await marked(world, leaf, "unspecified")
    world.clock.ahead = timedelta(days=366)
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time too
    await world.admin.delete(CredentialRevocation, "a")
    marker = MarkRevoked(world.server.clients("revocation-marker"), world.clock)

    await marker.attend(("certificate", f"{leaf.serial_number:x}"), None)

    await marked(world, leaf, "unspecified")


async def test_a_revocation_is_removed_when_its_work_is_done(world: Beside) -> None:
    """And not before; one of a certificate that nobody has seen when its authority has ended."""
    async with world.running("csrsigning"):
        await issued(world, "alice")
    await revoke(world, "known", certificate=RevokedCertificate(request_name="alice"))
    await revoke(world, "unseen", certificate=unseen())
    (cleaner,) = world.made("revocation-cleaner")
    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper
    before = await world.admin.find(CredentialRevocation, "known")

    world.clock.ahead = timedelta(days=366)
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time too
    await cleaner.sweep()  # type: ignore[attr-defined]  # as above
    listed = await world.admin.find(CredentialRevocation, "known")
    world.clock.ahead = timedelta(days=373)
    await cleaner.sweep()  # type: ignore[attr-defined]  # as above

    assert before is not None
    assert listed is not None  # revocation lists name it for a week after its end
    assert await world.admin.find(CredentialRevocation, "known") is None
    left = await world.admin.find(CredentialRevocation, "unseen")
    assert left is not None
    assert left.status.expires == ClientVerifier.load(world.server.files.ca_certificate).end
    world.clock.ahead = timedelta(days=20 * 366)
    await cleaner.sweep()  # type: ignore[attr-defined]  # as above
    assert await world.admin.find(CredentialRevocation, "unseen") is None


async def test_what_another_revocation_repeats_is_removed(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of equal ones stays; so do a hold and a lesser reason, whose date lists have."""
    await world.account("robot")
    robot = {"namespace": "default", "name": "robot"}
    monkeypatch.setattr(RepeatedRevocations, "refuse_repeated", lambda *_: None)  # as before
    for number, reason in enumerate(("certificateHold", "", "", "keyCompromise", "keyCompromise")):
        await revoke(world, f"r{number}", certificate=unseen(), reason=reason)
    made = (await world.admin.get(ServiceAccount, "robot", "default")).metadata.creation_timestamp
    assert made is not None
    for name, moment in (("earlier", made), ("later", made + timedelta(seconds=1))):
        world.clock.ahead = timedelta(seconds=2)
        world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's too
        await revoke(world, name, account=RevokedAccount(**robot, issued_before=moment))
    (cleaner,) = world.made("revocation-cleaner")

    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper

    left = await world.admin.page(ListSelection(CredentialRevocation))
    assert sorted(one.name for one in left.items) == ["later", "r0", "r1", "r3"]


async def test_one_that_may_not_be_removed_yet_does_not_keep_the_others(world: Beside) -> None:
    """A signer has issued another certificate since its revocation noted the last end."""
    signer = RevokedAuthority(signer_name=ORCH.client_signer)
    async with world.running("csrsigning"):
        await issued(world, "alice")
        await revoke(world, "a-signer", authority=signer)
        await revoke(world, "b", certificate=RevokedCertificate(request_name="alice"))
        world.clock.ahead = timedelta(days=400)
        world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's too
        await issued(world, "bob")
    (cleaner,) = world.made("revocation-cleaner")

    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper

    left = await world.admin.page(ListSelection(CredentialRevocation))
    assert sorted(one.name for one in left.items) == ["a-signer"]


async def test_revocations_of_an_account_stay_until_its_tokens_have_expired(world: Beside) -> None:
    """And a week longer; also if it was deleted, or created again: a restore brings it back."""
    await world.server.context.port(TokenLifetimes).note(86_400)
    for name in ("stays", "gone", "recreated"):
        await world.account(name)
        named = {"namespace": "default", "name": name}
        await revoke(world, f"account-{name}", account=RevokedAccount(**named))
        await revoke(world, f"token-{name}", token=RevokedToken(jti="x", **named))
    await world.admin.delete(ServiceAccount, "gone", "default")
    await world.admin.delete(ServiceAccount, "recreated", "default")
    world.clock.ahead = timedelta(hours=2)
    world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's time too
    await world.account("recreated")
    (cleaner,) = world.made("revocation-cleaner")

    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper

    early = await world.admin.page(ListSelection(CredentialRevocation))
    world.clock.ahead = timedelta(days=8, hours=2)
    await cleaner.sweep()  # type: ignore[attr-defined]  # a Sweeper
    late = await world.admin.page(ListSelection(CredentialRevocation))
    assert len(early.items) == 6
    assert list(late.items) == []


class Paged:
    """A client that gives revocations in two pages."""

    def __init__(self) -> None:
        self.listed = asyncio.Event()
        self.listed_early = False

    async def follow(
        self, _wanted: object
    ) -> AsyncGenerator[list[WatchedChange[CredentialRevocation]], None]:
        for name in ("a", "b"):
            spec = CredentialRevocationSpec(certificate=unseen())
            found = CredentialRevocation(metadata=ObjectMeta(name=name), spec=spec)
            yield [WatchedChange("ADDED", b"", None, None, found)]
            self.listed_early |= self.listed.is_set()
        yield []


async def test_marks_are_compared_when_all_revocations_are_read() -> None:
    """Half of them would remove the marks of the other half."""
    client = Paged()
    marker = MarkRevoked(cast(Any, client), MovingClock())

    await marker._follow_revocations(client.listed)

    assert not client.listed_early
    assert client.listed.is_set()
