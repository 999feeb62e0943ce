"""Open watches: what triggers a new check of them, and which continue."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.objects.kinds import config_map
from orchid.kernel.engine.cache.kind_cache import KindCache, ObjectChange
from orchid.kernel.engine.interfaces import Authenticated, Decision, Rejected, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.server import open_watches
from orchid.kernel.server.open_watches import OpenWatches
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

TARGET = Target("watch", is_resource=True, version="v1", resource="configmaps")
HTTP: Any = SimpleNamespace(headers={})
NO_IMPERSONATION: Any = None


class Answers:
    """Authenticates and authorizes as a test says."""

    def __init__(self) -> None:
        self.user: str | None = "jane"
        self.decision = Decision(Verdict.ALLOW)
        self.problem: Exception | None = None

    async def authenticate(self, presented: object) -> Authenticated | None:
        if self.problem is not None:
            raise self.problem
        return None if self.user is None else Authenticated(UserInfo(username=self.user))

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        assert (user.username, target) == (self.user, TARGET)
        return self.decision


class Stream:
    """A stream that notes its end."""

    def __init__(self) -> None:
        self.finished = False

    def on_close(self, closed: object) -> None:
        pass

    def finish(self) -> None:
        self.finished = True


def opened(answers: Answers, *caches: KindCache[Any]) -> tuple[OpenWatches, Stream]:
    """One watch of jane's."""
    watches = OpenWatches(answers, NO_IMPERSONATION, answers, caches)
    stream: Any = Stream()
    watches.follow(stream, HTTP, TARGET, UserInfo(username="jane"))
    return watches, stream


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({}, False),
        ({"user": "john"}, True),
        ({"user": None}, True),
        ({"problem": Rejected("no")}, True),
        ({"problem": OSError()}, False),
        ({"decision": Decision(Verdict.NO_OPINION)}, True),
        ({"decision": Decision(Verdict.DENY)}, True),
        ({"decision": Decision(Verdict.NO_OPINION, error="the webhook is down")}, False),
    ],
    ids=["same", "another user", "nobody", "revoked", "store", "no right", "denied", "webhook"],
)
async def test_a_watch_ends_only_by_a_clear_no(change: dict[str, Any], ends: bool) -> None:
    """Another user's credential is one; a store or a webhook that cannot be asked is none."""
    answers = Answers()
    watches, stream = opened(answers)
    for name, value in change.items():
        setattr(answers, name, value)

    await watches.check_all()

    assert stream.finished is ends


@pytest.mark.parametrize(
    ("old", "new", "is_reason"),
    [(True, False, True), (True, True, True), (False, True, False)],
    ids=["deleted", "changed", "created"],
)
async def test_what_was_there_before_and_changed_has_watches_judged(
    old: bool, new: bool, is_reason: bool
) -> None:
    """A role that lost a rule takes a right as much as one that is gone; a new one gives some."""
    cache = KindCache(config_map.declare(ORCH))
    watches, _ = opened(Answers(), cache)
    entry: Any = object()

    (listener,) = cache.listeners.values()
    listener.notify([ObjectChange("k", entry if new else None, entry if old else None, 1)])

    assert watches._changed.is_set() is is_reason


async def test_changes_that_were_missed_have_watches_judged() -> None:
    """Any right may have ended in between."""
    cache = KindCache(config_map.declare(ORCH))
    watches, _ = opened(Answers(), cache)

    (listener,) = cache.listeners.values()
    assert listener.lost is not None
    listener.lost()

    assert watches._changed.is_set()


class Together(Answers):
    """Answers nobody before a number of callers wait for the answer."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._missing = number
        self._complete = asyncio.Event()

    async def authenticate(self, presented: object) -> Authenticated | None:
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()
        await self._complete.wait()
        return await super().authenticate(presented)


async def test_watches_are_judged_together() -> None:
    """One answer of the store serves them all: one after the other, each would wait for its own."""
    answers = Together(3)
    watches = OpenWatches(answers, NO_IMPERSONATION, answers)
    for _ in range(3):
        stream: Any = Stream()
        watches.follow(stream, HTTP, TARGET, UserInfo(username="jane"))

    async with asyncio.timeout(30):
        await watches.check_all()


async def test_a_revocation_shortens_the_pause_between_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several in a row each ends its watches soon; other changes may wait for longer."""
    monkeypatch.setattr(open_watches, "pause_after", lambda took: 1000.0)
    rights, revocations = (KindCache(config_map.declare(ORCH)) for _ in range(2))
    answers = Answers()
    watches = OpenWatches(answers, NO_IMPERSONATION, answers, [rights], ends_with=[revocations])
    stream: Any = Stream()
    watches.follow(stream, HTTP, TARGET, UserInfo(username="jane"))
    entry: Any = object()
    pausing = asyncio.create_task(watches._pause(0.0))
    for listener in rights.listeners.values():
        listener.notify([ObjectChange("k", None, entry, 1)])
    for _ in range(100):  # turns of the event loop; a revocation needs a few
        await asyncio.sleep(0)
    still = pausing.done()

    for listener in revocations.listeners.values():
        listener.notify([ObjectChange("k", entry, None, 1)])
    async with asyncio.timeout(30):
        await pausing

    assert not still
