"""Notices: who learns of what, once, and what a failing receiver does."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    Revoked,
)
from orchid.features.clusters.kinds.cluster import Cluster, ClusterCredential, ClusterSpec
from orchid.features.notices import sources
from orchid.features.notices.controllers import send_notices
from orchid.features.notices.controllers.send_notices import SendNotices
from orchid.features.notices.delivery import Delivery
from orchid.features.notices.endings import (
    EndingCertificate,
    due_endings,
    due_of,
    ending_sources,
)
from orchid.features.notices.notice import Notice, NoticeKey, plain
from orchid.features.notices.progress import NAME, NoticeProgress
from orchid.features.notices.sending import NoticeMetrics, NoticeReceiver, NoticeSettings
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp
from orchid.kernel.wire.user import MASTERS, UserInfo
from tests.unit.features.beside import Beside
from tests.unit.features.certificates.test_issued_certificates import issued
from tests.unit.kernel.credentials import samples

HOME = ORCH.system_namespace
WAITING = "request-waiting"
LATER = timedelta(hours=1)
ALICE = UserInfo(username="alice", groups=(MASTERS,))  # may create requests


class Receiver:
    """Takes what is sent, or refuses it."""

    def __init__(self) -> None:
        self.status = 202
        self.body = b""
        self.tokens: list[str] = []

    async def post(self, body: bytes, media: str) -> Answer:
        assert media == "application/secevent+jwt"
        if self.status == 202:
            self.tokens.append(body.decode())
        return Answer(self.status, self.body)

    @property
    def claims(self) -> list[Any]:
        return [json.loads(b64url_decode(one.split(".")[1].encode())) for one in self.tokens]

    def events(self, word: str = "") -> list[Any]:
        """The events of this sort, in the order of their arrival."""
        found = [(uri, event) for one in self.claims for uri, event in one["events"].items()]
        return [event for uri, event in found if uri.endswith(word)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be waited for."""
    monkeypatch.setattr(sources.WaitingRequest, "delay", 0.0)
    monkeypatch.setattr(send_notices, "SAVE_SECONDS", 0.01)


def sender(world: Beside, receiver: Receiver, **settings: Any) -> SendNotices:
    made = NoticeSettings(
        NoticeReceiver(receiver.post, "https://orchid.example", "https://chat.example"),
        timedelta(days=30),
        NoticeMetrics(),
    )
    assert world.context.token_issuer is not None
    delivery = Delivery(made.receiver, world.context.token_issuer, world.clock)
    client = world.server.clients("notice-sender")
    return SendNotices(client, delivery, world.context, made)


@asynccontextmanager
async def sending(world: Beside, receiver: Receiver) -> AsyncIterator[SendNotices]:
    """A leader, with its own identity, until it loses the lease."""
    controller = sender(world, receiver)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(look: Any) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110 -- asked as a person would
            await asyncio.sleep(0.002)


async def saved(world: Beside, condition: Any) -> Any:
    """The stored progress, once it is so."""
    stored: Any = None

    async def look() -> ConfigMap | None:
        nonlocal stored
        found = await world.admin.find(ConfigMap, NAME, HOME)
        stored = json.loads(found.data.get("progress.json", "{}")) if found else {}
        return found if condition(stored) else None

    await world.until(look)
    return stored


async def revoke(world: Beside, name: str, *, effective: bool = True) -> None:
    spec = CredentialRevocationSpec(user=RevokedUser(username=name), reason="keyCompromise")
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name=name), spec=spec))
    if effective:
        found = await world.admin.get(CredentialRevocation, name)
        now = world.clock.now()
        done = Condition(
            type="Effective", status="True", reason="Applied", last_transition_time=now
        )
        status = replace(found.status, conditions=(done,))
        await world.admin.update_status(replace(found, status=status))


async def test_a_request_that_nobody_decides_is_announced_once(world: Beside) -> None:
    """With requester and signer, signed by the token key, and neither `sub` nor `exp`."""
    receiver = Receiver()
    async with sending(world, receiver):
        made = await world.request("laptop", samples.request("alice"), user=ALICE)
        await until(lambda: receiver.tokens)
        await world.admin.update(made.with_meta(labels={"a": "b"}))
        await world.request("other", samples.request("alice"), user=ALICE)
        await until(lambda: len(receiver.tokens) == 2)

    first = receiver.claims[0]
    assert set(first) == {"iss", "aud", "iat", "jti", "toe", "events"}
    assert (first["iss"], first["aud"]) == ("https://orchid.example", "https://chat.example")
    ((uri, event),) = first["events"].items()
    assert uri == "https://identity.orch.io/events/request-waiting"
    assert event == {
        "text": f"The certificate request laptop of alice for {ORCH.client_signer} waits for a "
        "decision.",
        "request": "laptop",
        "requester": "alice",
        "signerName": ORCH.client_signer,
    }
    head = json.loads(b64url_decode(receiver.tokens[0].split(".")[0].encode()))
    assert head["typ"] == "secevent+jwt"
    assert head["kid"] in [
        key.kid for key in world.server.context.port(FollowedKeys).keys.verifying.keys
    ]


async def test_a_decided_request_is_not_announced(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was decided while its notice waited."""
    receiver = Receiver()
    await world.request("early", samples.request("alice"), approved=True)
    monkeypatch.setattr(sources.WaitingRequest, "delay", 3600.0)
    async with sending(world, receiver) as controller:
        late = await world.request("late", samples.request("alice"))
        gone = await world.request("gone", samples.request("alice"))
        await until(lambda: len(controller._progress.pending) == 2)
        await world.approve(late)
        await world.admin.delete(CertificateSigningRequest, gone.name)
        await until(lambda: not controller._progress.pending)

    assert receiver.tokens == []


async def test_a_revocation_is_announced_when_it_is_effective(world: Beside) -> None:
    """Not before; those before the first start are not news."""
    receiver = Receiver()
    await revoke(world, "before")
    async with sending(world, receiver):
        await saved(world, lambda one: len(one.get("revisions", {})) == 3)
        await revoke(world, "mallory", effective=False)
        await revoke(world, "eve")
        await until(lambda: receiver.tokens)

    (event,) = receiver.events("revocation-effective")
    assert event["target"] == "user/eve"
    assert event["reason"] == "keyCompromise"


async def test_a_key_that_replaces_another_needs_a_notice(world: Beside) -> None:
    """When it becomes the signer, and again if it comes back; the first key replaces none."""
    source, now = sources.RotatedKey(ORCH), world.clock.now()
    spec = replace(SigningKey().spec, algorithm="ES256")
    published = await world.admin.create(
        SigningKey(metadata=ObjectMeta(name="tokens-2"), spec=spec)
    )

    def active(name: str, since: timedelta = timedelta()) -> SigningKey:
        times = replace(published.status.times, active=now - since)
        return replace(
            published.with_meta(name=name),
            spec=replace(published.spec, state="Active"),
            status=replace(published.status, times=times),
        )

    notice = source.notice(active("tokens-2"))

    assert notice is not None
    assert notice.text == "The key tokens-2 signs tokens now."
    assert source.notice(published) is None
    assert source.notice(active("tokens-1")) is None
    assert source.key(active("tokens-2")).jti != source.key(active("tokens-2", LATER)).jti


async def test_neither_a_restart_nor_another_leader_forgets_or_repeats(world: Beside) -> None:
    """What was delivered stays delivered; what came meanwhile, and what failed, is sent."""
    receiver = Receiver()
    async with sending(world, receiver):
        await world.request("first", samples.request("alice"))
        await until(lambda: receiver.tokens)
        receiver.status = 503
        await world.request("failed", samples.request("alice"))
        await saved(world, lambda one: one.get("failing") and len(one["pending"]) == 1)
    await world.request("meanwhile", samples.request("alice"))
    await revoke(world, "eve")
    receiver.status = 202

    async with sending(world, receiver):
        await until(lambda: len(receiver.tokens) == 4)
        await saved(world, lambda one: not one.get("failing") and not one.get("pending"))
    async with sending(world, receiver):
        await world.request("last", samples.request("alice"))
        await until(lambda: len(receiver.tokens) == 5)

    names = [event.get("request") or event["revocation"] for event in receiver.events()]
    assert sorted(names) == ["eve", "failed", "first", "last", "meanwhile"]


async def test_a_receiver_that_fails_is_reported_and_tried_again(world: Beside) -> None:
    """With its error code; the notice that comes later has the same id as the first attempt."""
    receiver = Receiver()
    receiver.status, receiver.body = 400, b'{"err":"invalid_key","description":"<script>"}'
    async with sending(world, receiver) as controller:
        made = await world.request("laptop", samples.request("alice"))
        stored = await saved(world, lambda one: one.get("failing"))
        metrics = controller._metrics
        assert metrics.failing.value() == 1
        receiver.status = 202
        await until(lambda: receiver.tokens)
        await saved(world, lambda one: not one.get("failing"))

    assert stored["failing"]["why"] == "answered with status 400, invalid_key"
    assert metrics.failing.value() == 0
    assert metrics.results.value("request-waiting", "delivered") == 1
    assert metrics.results.value("request-waiting", "failed") >= 1
    key = NoticeKey("https://identity.orch.io/events/request-waiting", "laptop", made.metadata.uid)
    assert receiver.claims[0]["jti"] == key.jti


async def test_a_notice_that_is_refused_for_days_is_given_up(world: Beside) -> None:
    receiver = Receiver()
    receiver.status = 500
    async with sending(world, receiver) as controller:
        await world.request("laptop", samples.request("alice"))
        await saved(world, lambda one: one.get("failing"))
        world.clock.ahead = timedelta(days=3)
        await until(lambda: not controller._progress.pending)

    assert controller._metrics.results.value("request-waiting", "given-up") == 1


async def test_more_than_have_room_are_sent_when_there_is_room(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded, and nothing is lost."""
    monkeypatch.setattr("orchid.features.notices.progress.MOST_PENDING", 3)
    monkeypatch.setattr(send_notices, "MOST_PENDING", 3)
    receiver = Receiver()
    receiver.status = 503
    async with sending(world, receiver) as controller:
        for number in range(8):
            await world.request(f"r{number}", samples.request("alice"))
        await until(lambda: controller._left_out)
        assert len(controller._progress.pending) == 3
        receiver.status = 202
        await until(lambda: len(receiver.tokens) == 8)

    assert sorted(one["request"] for one in receiver.events()) == [f"r{n}" for n in range(8)]


async def test_requests_leave_room_for_a_revocation(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requester who fills the queue delays no notice about something else."""
    monkeypatch.setattr("orchid.features.notices.progress.MOST_PENDING", 2)
    monkeypatch.setattr(send_notices, "MOST_PENDING", 0)  # what is left out stays so
    receiver = Receiver()
    receiver.status = 503
    async with sending(world, receiver) as controller:
        for number in range(5):
            await world.request(f"r{number}", samples.request("alice"))
        await until(lambda: controller._left_out)
        await revoke(world, "eve")
        receiver.status = 202
        await until(lambda: receiver.events("revocation-effective"))


async def test_one_requester_cannot_flood_the_receiver(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notices of others are sent."""
    monkeypatch.setattr(send_notices, "MOST_PER_REQUESTER", 2)
    receiver = Receiver()
    async with sending(world, receiver) as controller:
        for number in range(5):
            await world.request(f"r{number}", samples.request("alice"), user=ALICE)
        await world.request("mine", samples.request("bob"))
        await until(lambda: any(one["request"] == "mine" for one in receiver.events()))

    assert [one["requester"] for one in receiver.events()].count("alice") == 2
    assert controller._metrics.results.value("request-waiting", "limited") == 3


async def test_failed_attempts_are_not_limited(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice that was tried more often than a requester has notices is sent in the end."""
    monkeypatch.setattr(send_notices, "MOST_PER_REQUESTER", 2)
    receiver = Receiver()
    receiver.status = 503
    async with sending(world, receiver) as controller:
        await world.request("laptop", samples.request("alice"), user=ALICE)
        for attempt in range(1, 5):
            await until(lambda: controller._metrics.results.value(WAITING, "failed") >= attempt)  # noqa: B023 -- called in the same turn
            for key in controller._progress.pending:
                controller.queue.add(key)
        receiver.status = 202
        await until(lambda: receiver.tokens)

    assert controller._metrics.results.value(WAITING, "limited") == 0


async def test_ends_are_announced_once(world: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of certificates and of a cluster's credential; another leader does not repeat them."""
    monkeypatch.setattr(send_notices, "SEARCH_SECONDS", 0.02)
    receiver = Receiver()
    async with world.running("csrsigning"):
        leaves = [await issued(world, "first")]
        request = samples.request("bob")
        await world.request("second", request, approved=True)
        second = await world.until_like(
            CertificateSigningRequest, "second", condition=lambda one: one.is_issued
        )
        leaves.append(certificates.parse_blocks(second.status.certificate)[0])
        credential = ClusterCredential(
            namespace="a", name="b", expires=world.clock.now() + timedelta(days=365)
        )
        spec = ClusterSpec(issuer="https://prod.example", credential=credential)
        await world.admin.create(Cluster(metadata=ObjectMeta(name="prod"), spec=spec))
        async with sending(world, receiver):
            await saved(world, lambda one: one.get("searched"))
            world.clock.ahead = timedelta(days=340)
            world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's
            await until(lambda: len(receiver.tokens) == 3)
    async with sending(world, receiver):
        before = timestamp(world.clock.now())
        await saved(world, lambda one: one["searched"] > before)

    serials = {one["serialNumber"] for one in receiver.events("certificate-ending")}
    assert serials == {f"{one.serial_number:x}" for one in leaves}
    (event,) = receiver.events("cluster-credential-ending")
    assert event["cluster"] == "prod"
    assert len(receiver.tokens) == 3


async def test_the_end_of_the_platform_authority_is_announced(world: Beside) -> None:
    """Once, though it is a file and an object."""
    receiver = Receiver()
    world.clock.ahead = timedelta(days=3630)
    async with sending(world, receiver):
        await until(lambda: receiver.events("authority-ending"))

    (event,) = receiver.events("authority-ending")
    assert event["authority"] == "cluster"


async def test_a_renewed_certificate_needs_no_notice(world: Beside) -> None:
    """A later one with the same signer, requester, subject and names replaces it."""
    async with world.running("csrsigning"):
        first = await issued(world, "first")
        begin = world.clock.now()
        world.clock.ahead = timedelta(days=300)
        world.server.clock.now = world.clock.now  # type: ignore[method-assign]  # the server's
        second = await issued(world, "second")
    sources_ = ending_sources(ORCH, timedelta(days=30), {})
    client = world.server.clients("notice-sender")

    async def serials(days: int) -> list[str]:
        due = await due_endings(client, sources_, None, begin + timedelta(days=days))
        return [one.key.name for one in due]

    assert await serials(340) == []
    assert await serials(640) == [f"{second.serial_number:x}"]
    assert first.subject == second.subject


async def test_a_revoked_certificate_replaces_none() -> None:
    """The earlier one is then the only one that is in use."""
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def certificate(name: str, begin: datetime) -> IssuedCertificate:
        spec = IssuedCertificateSpec(
            subject="CN=web", not_before=begin, not_after=now + timedelta(days=9)
        )
        return IssuedCertificate(metadata=ObjectMeta(name=name, uid=name), spec=spec)

    first = certificate("first", now - timedelta(days=90))
    second = certificate("second", now - timedelta(days=60))
    status = IssuedCertificateStatus(revoked=Revoked(time=now))
    sources_ = [EndingCertificate(ORCH, timedelta(days=30))]

    async def due(*records: IssuedCertificate) -> list[str]:
        client = cast(Client, Records(records))
        found = await due_endings(client, sources_, None, now)
        return [one.key.name for one in found]

    assert await due(first, second) == ["second"]
    assert await due(first, replace(second, status=status)) == ["first"]


class Records:
    """A client that knows some certificates."""

    def __init__(self, records: tuple[IssuedCertificate, ...]) -> None:
        self._records = records

    async def scan(self, _: object) -> AsyncIterator[IssuedCertificate]:
        for one in self._records:
            yield one


def test_an_end_is_due_in_the_set_time_and_in_the_last_third(world: Beside) -> None:
    """Thirty days before the end of a year, eight hours before that of a day."""
    now = world.clock.now()
    year, day = now + timedelta(days=365), now + timedelta(days=1)
    assert due_of((now, year), timedelta(days=30)) == year - timedelta(days=30)
    assert due_of((now, day), timedelta(days=30)) == day - timedelta(hours=8)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("alice", "alice"),
        ("a\nb\u202e\x00", "a\ufffdb\ufffd\ufffd"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_values_of_requesters_are_printable_and_short(value: str, expected: str) -> None:
    """They end in chat messages and mails."""
    assert plain(value) == expected


async def test_a_broken_progress_is_replaced(world: Beside) -> None:
    """Somebody edited the ConfigMap."""
    meta = ObjectMeta(name=NAME, namespace=HOME)
    await world.admin.create(ConfigMap(metadata=meta, data={"progress.json": "[1"}))
    progress = NoticeProgress(world.server.clients("notice-sender"), ORCH)

    await progress.load()
    progress.state.revisions["a"] = 7
    await progress.save()

    assert (await saved(world, lambda one: one))["revisions"] == {"a": 7}


def test_a_notice_leaves_out_what_is_empty(world: Beside) -> None:
    now = world.clock.now()
    notice = Notice(now, "It ends.", {"cluster": "", "names": [], "key": "a"})
    claims = notice.claims(NoticeKey("u", "n", "i"), issuer="i", audience="a", now=now)
    assert claims["events"] == {"u": {"text": "It ends.", "key": "a"}}
