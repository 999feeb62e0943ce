"""Notices about ends when there is no room: the next search goes on where this one stopped."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.notices.controllers import send_notices
from orchid.features.notices.controllers.send_notices import SendNotices
from orchid.features.notices.endings import DueEnding
from orchid.features.notices.notice import NoticeKey
from orchid.features.notices.progress import MOST_PENDING, RESERVED
from orchid.kernel.wire.naming import ORCH

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def key(number: int) -> NoticeKey:
    return NoticeKey("example/certificate-ending", f"c{number}", str(number))


def due(number: int, *, limited: bool = False) -> DueEnding:
    source: Any = SimpleNamespace(event="ending", delay=0.0, is_limited=limited)
    return DueEnding(NOW + number * MINUTE, source, key(number), b"", NOW)


class Sender(SendNotices):
    """Its progress and its searches alone."""

    def __init__(self) -> None:
        clock = SimpleNamespace(now=lambda: NOW + timedelta(hours=1))
        context = SimpleNamespace(naming=ORCH, clock=clock, signers={})
        settings = SimpleNamespace(metrics=None, before=timedelta(days=30))
        parts: Any = None, None, context, settings
        super().__init__(*parts)

    def fill(self, count: int) -> None:
        self._progress.pending = {key(-number - 1): NOW for number in range(count)}

    @property
    def searched(self) -> datetime | None:
        return self._progress.state.searched


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    made = Sender()

    async def found(_client: Any, _endings: Any, since: Any, _now: Any) -> list[DueEnding]:
        return [one for one in (due(1), due(2), due(3)) if since is None or one.when >= since]

    monkeypatch.setattr(send_notices, "due_endings", found)
    return made


async def test_endings_without_room_are_announced_later(sender: Sender) -> None:
    """None is lost, and none is announced before there is room for it."""
    most = MOST_PENDING + RESERVED
    sender.fill(most - 1)

    await sender._search()
    assert key(1) in sender._progress.pending
    assert key(2) not in sender._progress.pending
    assert sender.searched == due(2).when

    sender.fill(0)
    await sender._search()
    assert set(sender._progress.pending) == {key(2), key(3)}
    assert sender.searched == NOW + timedelta(hours=1)


async def test_endings_that_requesters_cause_leave_room(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those that nobody can cause."""

    async def found(*_: Any) -> list[DueEnding]:
        return [due(1), due(2, limited=True), due(3)]

    monkeypatch.setattr(send_notices, "due_endings", found)
    sender.fill(MOST_PENDING - 1)

    await sender._search()

    assert key(1) in sender._progress.pending
    assert key(3) not in sender._progress.pending
    assert sender.searched == due(2).when
