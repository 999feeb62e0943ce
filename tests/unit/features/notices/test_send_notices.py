"""Notices that wait: which changes count, what is dropped, sent again, limited and given up."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.notices.controllers import send_notices
from orchid.features.notices.controllers.send_notices import (
    GIVE_UP_AFTER,
    LIMIT_PERIOD,
    MOST_PER_REQUESTER,
    RequesterLimits,
    SendNotices,
    _concerns,
)
from orchid.features.notices.notice import Notice, NoticeKey
from orchid.features.notices.progress import MOST_PENDING, RESERVED
from orchid.features.notices.sending import NoticeMetrics
from orchid.features.notices.sources import EffectiveRevocation, WaitingRequest
from orchid.kernel.client.client import LISTED
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import Expired
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

SOURCE = WaitingRequest(ORCH)
SECOND = timedelta(seconds=1)


class Delivery:
    """Takes notices, or fails."""

    def __init__(self) -> None:
        self.sent: list[NoticeKey] = []
        self.problem: Exception | None = None

    async def send(self, key: NoticeKey, _notice: Notice) -> None:
        if self.problem:
            raise self.problem
        self.sent.append(key)


class Sending(SendNotices):
    """The sender over a small client."""

    def __init__(self, *stored: Request) -> None:
        self.client: Any = SmallClient(*stored)
        self.clock, self.delivery, self.metrics = FakeClock(NOW), Delivery(), NoticeMetrics()
        context: Any = SimpleNamespace(naming=ORCH, clock=self.clock, signers={})
        settings: Any = SimpleNamespace(metrics=self.metrics, before=timedelta(days=30))
        parts: Any = self.client, self.delivery, context, settings
        super().__init__(*parts)

    @property
    def pending(self) -> list[str]:
        return [key.name for key in self._progress.pending]

    @property
    def revision(self) -> int | None:
        return self._progress.state.revisions.get(SOURCE.event)

    async def followed(self, *batches: Any) -> None:
        self.client.batches = list(batches)
        await self._follow_source(SOURCE)

    def result(self, name: str) -> int:
        return int(self.metrics.results.value(SOURCE.word, name))


def request(
    name: str = "one", version: int = 5, *conditions: str, uid: str = "u1", user: str = "alice"
) -> Request:
    said = [{"type": one, "status": "True"} for one in conditions]
    meta = {"name": name, "uid": uid, "resourceVersion": str(version)}
    found = {"metadata": meta, "spec": {"username": user}, "status": {"conditions": said}}
    return convert(found, Request).with_meta(creation_timestamp=NOW)


# -- which changes count --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "type_", "handled", "counts"),
    [
        (SOURCE, LISTED, None, True),
        (EffectiveRevocation(ORCH), LISTED, None, False),
        (SOURCE, LISTED, 4, True),
        (SOURCE, LISTED, 5, False),
        (SOURCE, LISTED, 6, False),
        (SOURCE, "ADDED", 6, True),
        (SOURCE, "MODIFIED", 4, False),
        (EffectiveRevocation(ORCH), "MODIFIED", 4, True),
        (SOURCE, "DELETED", 4, False),
    ],
)
def test_a_change_counts_once(source: Any, type_: str, handled: Any, counts: bool) -> None:
    """Listed objects only above the revision up to which changes are handled."""
    assert _concerns(source, change(request(version=5), type_), handled) is counts


async def test_what_was_handled_by_an_earlier_leader_is_not_announced_again() -> None:
    made = Sending()
    made._progress.state.revisions[SOURCE.event] = 5

    await made.followed([change(request("old", 5), LISTED), change(request("new", 6), LISTED)], [])

    assert made.pending == ["new"]
    assert made.revision == 6


async def test_an_unfinished_list_has_handled_nothing() -> None:
    """It is not in the order of revisions."""
    made = Sending()

    await made.followed([change(request("one", 9), LISTED)])
    assert made.revision is None
    await made.followed(
        [change(request("one", 9), LISTED)], [], [change(request("two", 12), "ADDED")]
    )
    assert made.revision == 12


async def test_an_empty_list_keeps_the_revision() -> None:
    made = Sending()
    made._progress.state.revisions[SOURCE.event] = 5

    await made.followed([])

    assert made.revision == 5


@pytest.mark.parametrize(
    ("event", "stays"),
    [
        (change(request("one", 6, "Approved")), False),
        (change(request("one", 6, "Denied")), False),
        (change(request("one", 6), "DELETED"), False),
        (change(request("one", 6)), True),
        (change(request("one", 6, "Approved", uid="u2")), True),
        (change(request("two", 6, "Approved")), True),
    ],
)
async def test_a_request_that_is_decided_needs_no_notice(event: Any, stays: bool) -> None:
    """Most are, by policies. One that was created again is another one."""
    made = Sending()

    await made.followed([], [change(request(), "ADDED")], [event])

    assert made.pending == (["one"] if stays else [])
    assert [key.name for key in made.queue._later] == made.pending


async def test_a_notice_is_queued_once() -> None:
    made = Sending()
    made._add(SOURCE, request())
    made._progress.pending.clear()
    made._announced[SOURCE.key(request())] = None

    made._add(SOURCE, request())
    assert made.pending == []
    made._add(SOURCE, request(uid="u2"))
    assert made.pending == ["one"]


async def test_what_has_no_room_is_read_again_later() -> None:
    """Its revision is not handled, so that the next list has it."""
    made = Sending()
    fill = {NoticeKey("e", str(number), "u"): NOW for number in range(MOST_PENDING)}
    made._progress.pending = dict(fill)

    await made.followed([], [change(request("one", 6), "ADDED")])

    assert "one" not in made.pending
    assert made.revision == 0
    assert made._left_out == {SOURCE.event}


async def test_a_revocation_has_room_where_requests_have_none() -> None:
    made = Sending()
    made._progress.pending = {NoticeKey("e", str(n), "u"): NOW for n in range(MOST_PENDING)}
    key = NoticeKey("revocation", "r", "u")

    made._add_key(EffectiveRevocation(ORCH), key)
    assert key in made._progress.pending
    for number in range(RESERVED):
        made._add_key(EffectiveRevocation(ORCH), NoticeKey("revocation", str(number), "u"))

    assert len(made._progress.pending) == MOST_PENDING + RESERVED


# -- sending --------------------------------------------------------------------------------------


async def attended(made: Sending, found: Request, since: Any = NOW) -> None:
    key = SOURCE.key(found)
    made._progress.pending[key] = since
    await made.attend(key, None)


async def test_a_notice_is_sent_and_forgotten() -> None:
    made = Sending(request())

    await attended(made, request())
    await made.attend(SOURCE.key(request()), None)

    assert made.delivery.sent == [SOURCE.key(request())]
    assert (made.pending, made.result("delivered")) == ([], 1)
    assert made._progress.state.delivered == NOW


@pytest.mark.parametrize(
    "now", [(), (request(uid="u2"),), (request("one", 6, "Approved"),), (request("two"),)]
)
async def test_what_has_changed_is_not_sent(now: tuple[Request, ...]) -> None:
    """A request that is gone, that was created again, or that is decided."""
    made = Sending(*now)

    await attended(made, request())

    assert (made.delivery.sent, made.pending, made.result("delivered")) == ([], [], 0)


async def test_an_event_that_this_version_does_not_know_is_dropped() -> None:
    made = Sending()
    key = NoticeKey("https://example/of-a-later-version", "one", "u1")
    made._progress.pending[key] = NOW

    await made.attend(key, None)

    assert made.pending == []


async def test_one_requester_has_a_limit_and_the_others_are_not_affected() -> None:
    made = Sending(
        *(request(str(number), uid=str(number)) for number in range(MOST_PER_REQUESTER + 1))
    )
    for number in range(MOST_PER_REQUESTER + 1):
        await attended(made, request(str(number), uid=str(number)))
    bob = request("bob", user="bob")
    made.client.stored[Request, "", "bob"] = bob
    await attended(made, bob)

    assert len(made.delivery.sent) == MOST_PER_REQUESTER + 1
    assert made.delivery.sent[-1].name == "bob"
    assert (made.result("limited"), made.pending) == (1, [])


def test_the_limit_of_a_requester_begins_again_after_its_period() -> None:
    clock = FakeClock(NOW)
    limits = RequesterLimits(clock)
    assert not limits.is_reached("alice")
    for _ in range(MOST_PER_REQUESTER - 1):
        limits.count("alice")
    assert not limits.is_reached("alice")
    limits.count("alice")
    assert limits.is_reached("alice")

    clock.advance(LIMIT_PERIOD.total_seconds() - 1)
    assert limits.is_reached("alice")
    clock.advance(1)
    assert not limits.is_reached("alice")


def test_notices_without_a_requester_are_not_counted() -> None:
    limits = RequesterLimits(FakeClock(NOW))
    for _ in range(MOST_PER_REQUESTER + 1):
        limits.count("")

    assert not limits.is_reached("")


# -- a receiver that fails ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "given_up"), [(GIVE_UP_AFTER, False), (GIVE_UP_AFTER + SECOND, True)]
)
async def test_a_notice_is_given_up_after_two_days(age: timedelta, given_up: bool) -> None:
    """Until then it waits, and is tried again."""
    made = Sending(request())
    made.delivery.problem = CallFailed("no answer")

    if given_up:
        await attended(made, request(), NOW - age)
    else:
        with pytest.raises(TryAgain, match="no answer"):
            await attended(made, request(), NOW - age)

    assert made.pending == ([] if given_up else ["one"])
    assert (made.result("given-up"), made.result("failed")) == (int(given_up), int(not given_up))


async def test_a_failure_says_since_when_and_why() -> None:
    """Since the first one, and why the last one."""
    made = Sending(request())
    for why in ("first", "second"):
        made.delivery.problem = CallFailed(why)
        with pytest.raises(TryAgain):
            await attended(made, request())
        made.clock.advance(60)

    failing = made._progress.state.failing

    assert failing is not None
    assert (failing.since, failing.why) == (NOW, "second")
    assert not made._limits._counts


async def test_the_others_are_sent_when_the_receiver_answers_again() -> None:
    """Without the pauses of their failed attempts."""
    made = Sending(request(), request("two", uid="u2"))
    made.delivery.problem = CallFailed("no answer")
    for one in (request(), request("two", uid="u2")):
        with pytest.raises(TryAgain):
            await attended(made, one)
    made.delivery.problem = None
    made.clock.advance(60)

    await made.attend(SOURCE.key(request()), None)

    assert made._progress.state.failing is None
    assert [key.name for key in made.queue._later] == ["two"]


@pytest.mark.parametrize(("age", "pause"), [(0, 10.0), (4, 6.0), (10, 0.0), (99, 0.0)])
async def test_a_new_leader_sends_each_notice_when_it_was_due(
    age: int, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may still be decided by a policy until then."""
    made = Sending()
    paused: list[float] = []
    monkeypatch.setattr(made.queue, "add_after", lambda _key, seconds: paused.append(seconds))
    unknown = NoticeKey("https://example/of-a-later-version", "one", "u1")
    made._progress.pending = {SOURCE.key(request()): NOW - age * SECOND, unknown: NOW}

    made._queue_pending()

    assert paused == [pause, 0.0]


class SavedTwice(Exception):
    """The loop went on."""


@pytest.mark.parametrize(
    ("left_out", "pending", "again"),
    [
        ({SOURCE.event}, MOST_PENDING // 2 - 1, True),
        ({SOURCE.event}, MOST_PENDING // 2, False),
        (set(), 0, False),
    ],
)
async def test_what_had_no_room_is_read_again_when_half_is_free(
    left_out: set[str], pending: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Sending()
    made._left_out = left_out
    made._progress.pending = {NoticeKey("e", str(n), "u"): NOW for n in range(pending)}
    saved: list[float] = []

    async def save(now: float) -> None:
        saved.append(now)
        if len(saved) > 1:
            raise SavedTwice

    monkeypatch.setattr(send_notices, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(made._progress, "save", save)

    with pytest.raises(Expired if again else SavedTwice):
        await made._save_again_and_again()


@pytest.mark.parametrize(
    ("settings", "issuer", "built"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_notices_need_a_receiver_and_a_key(settings: bool, issuer: bool, built: bool) -> None:
    receiver = SimpleNamespace(receiver=None, metrics=NoticeMetrics(), before=timedelta(days=30))
    context: Any = SimpleNamespace(
        naming=ORCH,
        clock=FakeClock(NOW),
        signers={},
        part=lambda type_: receiver if settings else None,
        token_issuer=(lambda: None) if issuer else None,
    )
    parts: Any = SmallClient(), context, None

    assert (send_notices.build(*parts) is not None) is built


async def test_few_announced_notices_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr(send_notices, "MOST_ANNOUNCED", 2)
    made = Sending()

    for name in ("a", "b", "c"):
        made._done(NoticeKey("e", name, "u"))

    assert [key.name for key in made._announced] == ["b", "c"]
