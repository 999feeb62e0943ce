"""Send notices to the receiver of `--notice-url`: for people who must decide or act.

Reads   certificatesigningrequests, credentialrevocations and signingkeys, as they change;
        issuedcertificates, certificateauthorities, signingkeys and clusters every hour, for their
        ends
Writes  its progress, in the ConfigMap `notices` of the system namespace
        (features/notices/progress.py)
Never   changes another object, or sends a secret

What is worth a notice follows from the objects (features/notices/sources.py,
features/notices/endings.py). Only the leader among the servers sends, one at a time. A failed
notice is sent again with a back-off; the others go on meanwhile. At most `MOST_PENDING` wait, and
some more of revocations and keys; for more, the objects are read again later.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Any, Final

from orchid.features.notices.delivery import (
    DELIVERED,
    FAILED,
    GIVEN_UP,
    LIMITED,
    Delivery,
)
from orchid.features.notices.endings import due_endings, ending_sources
from orchid.features.notices.notice import Notice, NoticeKey
from orchid.features.notices.progress import MOST_PENDING, NAME, Failing, NoticeProgress
from orchid.features.notices.sending import NoticeSettings
from orchid.features.notices.sources import Source, watched_sources
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, LISTED, Client, WatchedChange
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running, Start, TryAgain, Worker
from orchid.kernel.runtime.work_queue import BackOff
from orchid.kernel.wire.errors import ApiError, Expired
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.policy_rules import CORE, READ, rule
from orchid.kernel.wire.text import timestamp

log = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
LEAVE_SECONDS: Final = 1.0
SEARCH_SECONDS: Final = 3600.0
GIVE_UP_AFTER: Final = timedelta(days=2)
MOST_ANNOUNCED: Final = 10 * MOST_PENDING  # that are cached
MOST_PER_REQUESTER: Final = 20  # waiting requests, in
LIMIT_PERIOD: Final = timedelta(hours=1)


class SendNotices(Worker[NoticeKey, None]):
    name = "notice-sender"
    workers = 1
    back_off = BackOff(first=1.0, longest=300.0)

    def __init__(
        self,
        client: Client,
        delivery: Delivery,
        context: ControllerContext,
        settings: NoticeSettings,
    ) -> None:
        super().__init__()
        naming = context.naming
        self._client = client
        self._delivery = delivery
        self._clock = context.clock
        self._metrics = settings.metrics
        self._watched = watched_sources(naming)
        self._endings = ending_sources(naming, settings.before, context.signers)
        self._sources: dict[str, Source[Any]] = {
            source.event: source for source in (*self._watched, *self._endings)
        }
        self._progress = NoticeProgress(client, naming)
        self._announced: OrderedDict[NoticeKey, None] = OrderedDict()
        self._limits = RequesterLimits(context.clock)
        self._left_out: set[str] = set()  # events of which some had no room

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._metrics.pending.set(0)
            self._metrics.failing.set(0)
            # Without this, a restart would repeat the notices of the last second.
            with contextlib.suppress(ApiError, CallFailed, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._progress.save()

    def shown(self, key: NoticeKey) -> str:
        return f"{key.event.rpartition('/')[2]} {key.name}"

    async def follow(self, start: Start) -> None:
        await self._progress.load()
        self._left_out.clear()
        self._queue_pending()
        for source in self._watched:
            start(self._follow_source(source))
        start(self._search_again_and_again())
        start(self._save_again_and_again())

    # -- what has to be sent -------------------------------------------------------------------

    async def _follow_source(self, source: Source[Any]) -> None:
        revisions = self._progress.state.revisions
        handled, newest = revisions.get(source.event), 0
        async with contextlib.aclosing(self._client.follow(source.selection)) as batches:
            async for batch in batches:
                for event in batch:
                    newest = max(newest, int(event.object.metadata.resource_version))
                    if _concerns(source, event, handled):
                        self._add(source, event.object)
                    elif event.type != LISTED:
                        self._drop(source, event)
                    if event.type != LISTED:
                        self._handled(source, newest)
                if not batch:  # the list is not in the order of revisions
                    self._handled(source, max(newest, handled or 0))

    def _handled(self, source: Source[Any], revision: int) -> None:
        if source.event not in self._left_out:
            self._progress.state.revisions[source.event] = revision

    def _add(self, source: Source[Any], found: Object) -> None:
        if source.notice(found):
            self._add_key(source, source.key(found))

    def _add_key(self, source: Source[Any], key: NoticeKey) -> None:
        if key in self._announced or key in self._progress.pending:
            return
        if self._progress.is_full_for(source.is_limited):
            self._left_out.add(source.event)
            return
        self._progress.pending[key] = self._clock.now()
        self.queue.add_after(key, source.delay)

    def _drop(self, source: Source[Any], event: WatchedChange[Any]) -> None:
        """A request that was decided before its notice: most are, by policies."""
        key = source.key(event.object)
        is_over = event.type == DELETED or source.notice(event.object) is None
        if key in self._progress.pending and is_over:
            del self._progress.pending[key]
            self.queue.drop(key)

    async def _search_again_and_again(self) -> None:
        while True:
            await self._search()
            await asyncio.sleep(SEARCH_SECONDS)

    async def _search(self) -> None:
        """Queue the endings that became due since the last search."""
        now, state = self._clock.now(), self._progress.state
        for due in await due_endings(self._client, self._endings, state.searched, now):
            if self._progress.is_full_for(due.source.is_limited):
                state.searched = due.when  # the next search finds the rest
                return
            self._add_key(due.source, due.key)
        state.searched = now

    async def _save_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            self._metrics.pending.set(len(self._progress.pending))
            await self._progress.save(self._clock.monotonic())
            if self._left_out and len(self._progress.pending) < MOST_PENDING // 2:
                raise Expired("there is room for the notices that were left out")

    # -- sending -------------------------------------------------------------------------------

    async def attend(self, key: NoticeKey, value: None) -> None:
        since = self._progress.pending.get(key)
        if since is None:
            return
        source = self._sources.get(key.event)
        subject = await source.find(self._client, key.name) if source else None
        if source is None or subject is None or source.key(subject) != key:
            self._done(key)
            return
        notice = source.notice(subject)
        if notice is None:
            self._done(key)
        elif notice.limited_by and self._limits.is_reached(notice.limited_by):
            self._done(key, LIMITED)
        else:
            await self._send(key, notice, since)

    async def _send(self, key: NoticeKey, notice: Notice, since: datetime) -> None:
        now = self._clock.now()
        try:
            await self._delivery.send(key, notice)
        except (ApiError, CallFailed, Refusal) as problem:  # also if no key can sign
            self._failed(str(problem), now)
            if now - since > GIVE_UP_AFTER:
                log.error("notice.given_up", extra={"notice": self.shown(key)})
                self._done(key, GIVEN_UP)
                return
            self._count(key, FAILED)
            raise TryAgain(str(problem)) from None
        self._done(key, DELIVERED)
        self._limits.count(notice.limited_by)
        self._delivered(now)

    def _done(self, key: NoticeKey, result: str = "") -> None:
        self._progress.pending.pop(key, None)
        self._announced[key] = None
        if len(self._announced) > MOST_ANNOUNCED:
            self._announced.popitem(last=False)
        if result:
            self._count(key, result)

    def _count(self, key: NoticeKey, result: str) -> None:
        self._metrics.results.count(key.event.rpartition("/")[2], result)

    def _failed(self, why: str, now: datetime) -> None:
        state = self._progress.state
        if state.failing is None:
            log.warning("notice.not_delivered", extra={"why": why})
            state.failing = Failing(now, why)
        state.failing.why = why
        self._metrics.failing.set(1)

    def _delivered(self, now: datetime) -> None:
        state = self._progress.state
        state.delivered = now
        self._metrics.failing.set(0)
        if state.failing is not None:
            log.info("notice.delivered_again", extra={"since": timestamp(state.failing.since)})
            state.failing = None
            self._queue_pending()

    def _queue_pending(self) -> None:
        """Queue what waits, without the pauses of failed attempts."""
        now = self._clock.now()
        for key, since in self._progress.pending.items():
            source = self._sources.get(key.event)
            age = (now - since).total_seconds()
            self.queue.add_after(key, max(0.0, (source.delay if source else 0.0) - age))


class RequesterLimits:
    """Limits the notices about waiting requests of one requester, who may send thousands."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._until = clock.now()

    def is_reached(self, requester: str) -> bool:
        now = self._clock.now()
        if now >= self._until:
            self._counts, self._until = {}, now + LIMIT_PERIOD
        return self._counts.get(requester, 0) >= MOST_PER_REQUESTER

    def count(self, requester: str) -> None:
        """Count a notice that was delivered; attempts that fail do not count."""
        if requester:
            self._counts[requester] = self._counts.get(requester, 0) + 1


def _concerns(source: Source[Any], event: WatchedChange[Any], handled: int | None) -> bool:
    """Whether a change may lead to a notice; `handled` is None at the first start."""
    if event.type not in source.types:
        return False
    if event.type != LISTED:
        return True
    if handled is None:
        return source.announces_existing
    return int(event.object.metadata.resource_version) > handled


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    settings = context.part(NoticeSettings)
    if settings is None or context.token_issuer is None:
        return None
    return SendNotices(
        client,
        Delivery(settings.receiver, context.token_issuer, context.clock),
        context,
        settings,
    )


CONTROLLER = ControllerDeclaration(
    name="notice-sender",
    long_name="notice-sender-controller",
    account="notice-sender",
    rights=lambda naming: (
        rule(READ, naming.certificates, ("certificatesigningrequests",)),
        rule(READ, naming.identity, ("credentialrevocations", "signingkeys")),
        rule(
            ("get", "list"),
            naming.identity,
            ("certificateauthorities", "clusters", "issuedcertificates"),
        ),
    ),
    rights_at_home=lambda names: (
        rule(("get", "update"), CORE, ("configmaps",), NAME),
        rule(("create",), CORE, ("configmaps",)),
    ),
    build=build,
)
