"""Where notices are sent, when, and how many were."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from orchid.kernel.base.metrics import Counter, Gauge, Joining
from orchid.kernel.outbound.answer import Answer


class NoticeMetrics:
    """Counts of the notices of this process; only the leader sends any."""

    def __init__(self) -> None:
        text = "Notices by event and result: delivered, failed (an attempt), limited, given-up."
        self.results = Counter("orchid_notices_total", text, "event", "result")
        text = "Notices that wait for the receiver."
        self.pending = Gauge("orchid_notices_pending", text, joins=Joining.MOST)
        text = "1 while the last attempt to send a notice has failed."
        self.failing = Gauge("orchid_notices_failing", text, joins=Joining.MOST)

    @property
    def all(self) -> tuple[Counter, ...]:
        return self.results, self.pending, self.failing


class NoticeReceiver(msgspec.Struct, frozen=True):
    """The server that notices are sent to."""

    post: Callable[[bytes, str], Awaitable[Answer]]  # body and media type
    issuer: str  # of the signed notices
    audience: str


class NoticeSettings(msgspec.Struct, frozen=True):
    """Where notices are sent, and when ends are announced."""

    receiver: NoticeReceiver
    before: timedelta  # how long before its end something is announced
    metrics: NoticeMetrics
