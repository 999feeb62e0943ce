"""Rows of long tokens: how many live longer than the publish time, per key, holder and day.

    ~tokens/<key id>/<kind>/<namespace>/<name>/<uid>    {"20410": 3}    day of expiry: tokens

A *long* token outlives the publish time of its key, so that the wait before a key is Retired does
not cover it. The *holder* is the object whose deletion ends the token: a Pod, Secret or Node,
otherwise the account. The row for the first token of a holder and day is stored before the token is
returned (`record`); later ones are counted in memory and added every ten seconds (`run`). A crash
can lose counts but never a row. The rows sort behind all objects, so the feed does not load them.
`dependents` adds them up; holders that are gone and days that are over do not count.
"""

import asyncio
import hashlib
import heapq
import logging
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.kinds.signing_key import RETIRED, SigningKey
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.token_claims import AccountClaims, Reference
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.store.interface import (
    ABSENT,
    MAX_CHANGES,
    Change,
    Record,
    RevisionConflict,
    Span,
    Store,
    StoreError,
)
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.signing_key_status import MOST_HOLDERS, KeyDependents, TokenHolder

log = logging.getLogger(__name__)

PREFIX: Final = "~tokens/"
DAY: Final = 86_400
LAST_DAY: Final = 2_932_896  # 9999-12-31, the last day that can be written
INTERVAL_SECONDS: Final = 10.0
SWEEP_SECONDS: Final = 3600.0
# Rows and days that are known to be stored, as digests in two generations: 3 MB at most.
GENERATION: Final = 19_000
DIGEST_BYTES: Final = 16
PAGE: Final = 1000
ATTEMPTS: Final = 16

Days = dict[int, int]  # number of tokens by the day of their expiry, since the epoch
_decode = msgspec.json.Decoder(Days).decode


class Holder(NamedTuple):
    """An object whose deletion ends a token."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        full_name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {full_name}"


def holder_of(account: AccountClaims) -> Holder:
    """The holder of a token with these claims."""
    bound: tuple[tuple[str, Reference | None], ...] = (
        ("Pod", account.pod),
        ("Secret", account.secret),
        ("Node", None if account.pod else account.node),
    )
    for kind, reference in bound:
        if reference is not None:
            return Holder(
                kind, "" if kind == "Node" else account.namespace, reference.name, reference.uid
            )
    named = account.serviceaccount
    return Holder("ServiceAccount", account.namespace, named.name, named.uid)


class LongTokens:
    """Counts the long tokens of all keys in a store."""

    def __init__(self, store: Store, feed: Feed, revocations: Revocations | None = None) -> None:
        self._store = store
        self._feed = feed
        self._revocations = revocations
        self._keys = feed.of(SigningKey)
        self._caches: dict[str, Any] = {
            "Pod": feed.of(Pod),
            "Secret": feed.of(Secret),
            "Node": feed.of(Node),
            "ServiceAccount": feed.of(ServiceAccount),
        }
        self._stored: set[bytes] = set()  # digests of row and day
        self._stored_before: set[bytes] = set()  # the generation before
        self._counts: dict[str, Days] = {}  # not yet stored, by row

    # -- issuing -----------------------------------------------------------------------------

    async def record(self, kid: str, account: AccountClaims, expires: int) -> None:
        """Count a token; return once its row is stored. Raises Unavailable if it cannot be."""
        row = f"{PREFIX}{kid}/{'/'.join(holder_of(account))}"
        day = min(expires // DAY, LAST_DAY)
        digest = _digest(row, day)
        if digest in self._stored or digest in self._stored_before:
            days = self._counts.setdefault(row, {})
            days[day] = days.get(day, 0) + 1
            return
        try:
            await self._add(row, {day: 1})
        except StoreError as failure:
            raise Unavailable(f"the token cannot be recorded: {failure}") from None

    async def _add(self, row: str, days: Days) -> None:
        for _ in range(ATTEMPTS):
            records = (await self._store.read(Span.key(row), limit=1)).records
            counts = _days(records[0]) if records else {}
            for day, count in days.items():
                counts[day] = counts.get(day, 0) + count
            revision = records[0].revision if records else ABSENT
            try:
                await self._store.commit([Change(row, msgspec.json.encode(counts), revision)])
            except RevisionConflict:
                continue  # another server or request was faster
            self._cache(row, days)
            return
        raise Unavailable("the tokens of this holder are requested too often; try again")

    def _cache(self, row: str, days: Iterable[int]) -> None:
        self._stored.update(_digest(row, day) for day in days)
        if len(self._stored) >= GENERATION:
            self._stored_before, self._stored = self._stored, set()

    async def run(self, clock: Clock, *, sweeps: bool) -> None:
        """Store counts until cancelled; one process of all `sweeps` rows that are of no use."""
        swept = clock.monotonic()
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.write()
            if sweeps and clock.monotonic() - swept > SWEEP_SECONDS:
                swept = clock.monotonic()
                await self.sweep(int(clock.now().timestamp()) // DAY)

    async def write(self) -> None:
        """Add to the rows what was counted since the last time."""
        for row in list(self._counts):
            days = self._counts.pop(row)
            try:
                await self._add(row, days)
            except (StoreError, Unavailable) as failure:
                log.warning("tokens.not_counted: %s", failure)
                since = self._counts.get(row, {})
                self._counts[row] = {
                    day: days.get(day, 0) + since.get(day, 0) for day in {*days, *since}
                }
                return

    # -- counting ----------------------------------------------------------------------------

    async def dependents(self, key: SigningKey, now: datetime) -> KeyDependents:
        """The live long tokens of a key."""
        today = int(now.timestamp()) // DAY
        live = holders = last = 0
        longest: list[tuple[int, int, str]] = []
        async for record in self._rows(key.key_id):
            holder = _holder(record.key)
            days = {day: count for day, count in _days(record).items() if day >= today}
            if not days or not self._counts_for(holder, key):
                continue
            end, count = max(days), sum(days.values())
            live, holders, last = live + count, holders + 1, max(last, end)
            heapq.heappush(longest, (end, count, str(holder)))
            if len(longest) > MOST_HOLDERS:
                heapq.heappop(longest)
        return KeyDependents(
            live=live,
            holders=holders,
            end=_end(last) if live else None,
            longest=tuple(
                TokenHolder(holder=name, count=count, end=_end(end))
                for end, count, name in sorted(longest, reverse=True)
            ),
        )

    def _counts_for(self, holder: Holder, key: SigningKey) -> bool:
        """Whether tokens of a holder can still be used."""
        cache = self._caches.get(holder.kind)
        entry = cache.get(holder.namespace, holder.name) if cache is not None else None
        if entry is None or entry.identity.uid != holder.uid:
            return False
        stopped = key.status.times.verifying
        if holder.kind != "ServiceAccount" or self._revocations is None or stopped is None:
            return True
        until = self._revocations.account_until((holder.namespace, holder.name))
        return until < stopped.timestamp()

    async def _rows(self, kid: str = "") -> AsyncIterator[Record]:
        """The rows of a key, or of all, page by page; other tasks run in between."""
        rest = Span.prefix(f"{PREFIX}{kid}/" if kid else PREFIX)
        while True:
            page = await self._store.read(rest, limit=PAGE)
            for record in page.records:
                yield record
            if not page.more:
                return
            rest = rest.after(page.records[-1].key)
            await asyncio.sleep(0)

    async def sweep(self, today: int) -> None:
        """Delete the rows of keys that are Retired or gone, and rows whose days are all over."""
        useless: list[Change] = []
        try:
            await self._feed.fresh()  # so that no new key is taken for one that is gone
            objects = [entry.object for entry in self._keys.entries.values()]
            kids = {key.key_id for key in objects if key.state != RETIRED}
            async for record in self._rows():
                days = _days(record)
                is_over = bool(days) and max(days) < today
                if is_over or record.key.split("/")[1] not in kids:
                    useless.append(Change(record.key, None, record.revision))
            for first in range(0, len(useless), MAX_CHANGES):
                await self._store.commit(useless[first : first + MAX_CHANGES])
        except (StoreError, Unavailable) as failure:  # next time
            log.info("tokens.rows_not_removed: %s", failure)
        self._stored, self._stored_before = set(), set()


def _digest(row: str, day: int) -> bytes:
    """Names a row and a day; no two have the same."""
    return hashlib.blake2b(f"{row} {day}".encode(), digest_size=DIGEST_BYTES).digest()


def _days(record: Record) -> Days:
    """The counts of a row; none, and an error in the log, if it cannot be read."""
    try:
        return _decode(record.value)
    except msgspec.MsgspecError:
        log.error("tokens.unreadable_row", extra={"key": record.key})
        return {}


def _holder(row: str) -> Holder:
    kind, namespace, name, uid = row.split("/")[2:6]
    return Holder(kind, namespace, name, uid)


def _end(day: int) -> datetime:
    """The last second of a day."""
    return datetime.fromtimestamp(min(day, LAST_DAY) * DAY + DAY - 1, UTC)
