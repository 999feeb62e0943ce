"""CertificateIndex: searches the inventory for features/certificates/kinds/certificate_search.py.

Start with `find`. The first search makes a row of each record (certificate_rows.py); before each
later search, the rows of records that changed are replaced. A server that never gets a search has
no cost. A search visits all rows in the order of their ends, and lets other requests be served
after each `LONGEST_TURN`. Searches wait for each other, so that rows do not change under one.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from orchid.features.approval.issuing_terms import duration_of
from orchid.features.certificates.certificate_rows import (
    LARGEST_BLOCK,
    CertificateRows,
    RowBlock,
    RowMaker,
)
from orchid.features.certificates.kinds import certificate_search as search
from orchid.features.certificates.kinds.certificate_search import (
    CertificateSearchSpec,
    CertificateSearchStatus,
    FoundCertificate,
    MalformedPosition,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.access.denial import forbidden
from orchid.kernel.base.clock import Clock, Monotonic
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Authorizer, Verdict
from orchid.kernel.wire.user import UserInfo

LONGEST_TURN: Final = 0.002  # seconds, of the event loop
RECORDS: Final = 20  # decoded between two looks at the clock
DIGITS: Final = frozenset("0123456789abcdef")  # of serial numbers
Filter = Callable[[RowBlock, Sequence[int]], Sequence[int]]  # of the rows of a block
Position = tuple[float | str, str]  # value of the order, and key


class CertificateIndex:
    def __init__(self, feed: Feed, authorizer: Authorizer, clock: Clock) -> None:
        self._feed = feed
        self._cache = feed.of(IssuedCertificate)
        self._authorizer = authorizer
        self._clock = clock
        self._searching = asyncio.Lock()
        self._rows = CertificateRows()
        self._maker = RowMaker()
        self._entries: dict[str, Entry[IssuedCertificate]] | None = None  # indexed dictionary
        self._seen = 0  # every change up to this revision is indexed

    async def find(self, spec: CertificateSearchSpec, user: UserInfo) -> CertificateSearchStatus:
        await self._require_list(user)
        position = _position(spec)
        await self._feed.fresh()
        turns = TimedTurns(self._clock.monotonic)
        async with self._searching:
            await self._update(turns)
            now = self._clock.now().timestamp()
            filters = [*_filters(spec, now)]
            if spec.omit_replaced:
                filters.append(_is_unreplaced(await self._last_ends(now, turns)))
            page = PageOfRows(spec.sort, spec.limit, position)
            for block, rows in self._kept(filters):
                page.take(block, rows)
                await turns.pause()
        items = await self._items([key for _, key in page.best], turns)
        return CertificateSearchStatus(items=items, matches=page.matches, next=page.next)

    async def _require_list(self, user: UserInfo) -> None:
        target = self._cache.kind.target("list")
        decision = await self._authorizer.authorize(user, target)
        if decision.verdict is not Verdict.ALLOW:
            raise forbidden(user, target, decision.reason)

    async def _update(self, turns: "TimedTurns") -> None:
        """Index every change that has arrived."""
        cache = self._cache
        while self._entries is not cache.entries or self._seen != cache.revision:
            entries, revision = cache.entries, cache.revision
            if entries is self._entries and cache.oldest <= self._seen:
                keys = [change.key for change in cache.since(self._seen)]
            else:  # loaded again, or changes were dropped
                keys = await self._changed(entries, turns)
            for number, key in enumerate(keys, 1):
                entry = entries.get(key)
                if entry is None:
                    self._rows.remove(key)
                else:
                    self._rows.put(self._maker.row_of(entry))
                if number % RECORDS == 0:
                    await turns.pause()
            self._entries, self._seen = entries, revision

    async def _changed(
        self, entries: dict[str, Entry[IssuedCertificate]], turns: "TimedTurns"
    ) -> list[str]:
        """The keys of rows that differ from their records, and of records without a row."""
        changed: list[str] = []
        for block in self._rows.blocks:
            for key, revision in zip(block.keys, block.revisions, strict=True):
                entry = entries.get(key)
                if entry is None or entry.revision != revision:
                    changed.append(key)
            await turns.pause()
        keys = list(entries)
        for first in range(0, len(keys), LARGEST_BLOCK):
            changed += [key for key in keys[first : first + LARGEST_BLOCK] if key not in self._rows]
            await turns.pause()
        return changed

    async def _last_ends(self, now: float, turns: "TimedTurns") -> dict[int, float]:
        """The last expiry of live certificates, by likeness."""
        last: dict[int, float] = {}
        for block, rows in self._kept([_is_live(now)]):
            likenesses = map(block.likenesses.__getitem__, rows)
            last.update(
                zip(likenesses, map(block.ends.__getitem__, rows), strict=True)
            )  # ascending
            await turns.pause()
        return last

    def _kept(self, filters: list[Filter]) -> Iterator[tuple[RowBlock, Sequence[int]]]:
        """The rows that all filters keep, block by block."""
        for block in self._rows.blocks:
            rows: Sequence[int] = range(len(block))
            for keep in filters:
                rows = keep(block, rows)
            yield block, rows

    async def _items(self, keys: list[str], turns: "TimedTurns") -> tuple[FoundCertificate, ...]:
        items = []
        for number, key in enumerate(keys, 1):
            entry = self._cache.entries.get(key)
            if entry is not None:
                items.append(_item(entry.kind.decoder.stored(entry.data)))
            if number % RECORDS == 0:
                await turns.pause()
        return tuple(items)


class TimedTurns:
    """Turns of the event loop: `pause` lets other tasks run when one has lasted long enough."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + LONGEST_TURN

    async def pause(self) -> None:
        if self._monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = self._monotonic() + LONGEST_TURN


class PageOfRows:
    """The first rows after a position, in an order; and how many rows there are in all."""

    def __init__(self, sort: str, limit: int, after: Position | None) -> None:
        self.matches = 0
        self.best: list[Position] = []
        self._values = VALUES[sort]
        self._is_sorted = sort == search.END  # as the blocks are
        self._limit = limit
        self._after = after
        self._rest = 0  # rows after the position

    @property
    def next(self) -> str:
        return _encoded(self.best[-1]) if self._rest > len(self.best) else ""

    def take(self, block: RowBlock, rows: Sequence[int]) -> None:
        """Add rows of a block; blocks are taken in the order of their ends."""
        self.matches += len(rows)
        is_full = len(self.best) == self._limit
        if self._is_sorted and is_full:
            self._rest += len(rows)
            return
        keys, value = block.keys, self._values(block)
        positions = [(value(at), keys[at]) for at in rows]
        if self._after is not None:
            after = self._after
            positions = [position for position in positions if position > after]
        self._rest += len(positions)
        if is_full:
            worst = self.best[-1]
            positions = [position for position in positions if position < worst]
        if positions:
            self.best = sorted(self.best + positions)[: self._limit]


def _item(record: IssuedCertificate) -> FoundCertificate:
    spec, revoked = record.spec, record.status.revoked
    return FoundCertificate(
        name=record.metadata.name,
        serial_number=spec.serial_number,
        signer_name=spec.signer_name,
        subject=spec.subject,
        username=record.username,
        names=spec.names,
        requester=spec.requester.username,
        request=spec.request.name,
        approver=spec.approver.username,
        policy=spec.approver.policy,
        impersonator=spec.approver.impersonator,
        not_before=spec.not_before,
        not_after=spec.not_after,
        revoked=revoked.time if revoked else None,
        reason=revoked.reason if revoked else "",
        cluster=spec.cluster,
        key_algorithm=spec.key.algorithm,
        sha256=spec.sha256,
    )


# -- conditions --------------------------------------------------------------------------------


def _filters(spec: CertificateSearchSpec, now: float) -> Iterator[Filter]:
    if spec.state == search.LIVE:
        yield _is_live(now)
    elif spec.state == search.REVOKED:
        yield lambda block, rows: [at for at in rows if block.revoked[at]]
    elif spec.state == search.EXPIRED:
        yield lambda block, rows: [at for at in rows if block.ends[at] <= now]
    if within := duration_of(spec.ends_within):
        until = now + within.total_seconds()
        yield lambda block, rows: [at for at in rows if now < block.ends[at] <= until]
    yield from (_has_word(word) for word in spec.text.casefold().split())
    if requesters := frozenset(spec.requesters):
        yield lambda block, rows: [at for at in rows if block.requesters[at] in requesters]
    yield from _origin_filters(spec)


def _origin_filters(spec: CertificateSearchSpec) -> Iterator[Filter]:
    if signers := frozenset(spec.signer_names):
        yield lambda block, rows: [at for at in rows if block.origins[at].signer in signers]
    if clusters := frozenset(spec.clusters):
        yield lambda block, rows: [at for at in rows if block.origins[at].cluster in clusters]
    if keys := frozenset(spec.authority_keys):
        yield lambda block, rows: [at for at in rows if block.origins[at].authority_key in keys]
    if approvers := frozenset(spec.approvers) - {""}:
        yield lambda block, rows: [
            at
            for at in rows
            if block.origins[at].approver in approvers or block.origins[at].policy in approvers
        ]


def _is_live(now: float) -> Filter:
    def keep(block: RowBlock, rows: Sequence[int]) -> Sequence[int]:
        ends, revoked = block.ends, block.revoked
        if ends[0] > now and not any(revoked):
            return rows
        return [at for at in rows if ends[at] > now and not revoked[at]]

    return keep


def _has_word(word: str) -> Filter:
    def in_text(block: RowBlock, rows: Sequence[int]) -> Sequence[int]:
        texts = block.texts
        return [at for at in rows if word in texts[at]]

    def in_text_or_serial(block: RowBlock, rows: Sequence[int]) -> Sequence[int]:
        texts, keys, serials_at = block.texts, block.keys, block.serials_at
        return [at for at in rows if word in texts[at] or keys[at].find(word, serials_at[at]) >= 0]

    return in_text_or_serial if DIGITS.issuperset(word) else in_text


def _is_unreplaced(last_ends: dict[int, float]) -> Filter:
    def keep(block: RowBlock, rows: Sequence[int]) -> Sequence[int]:
        likenesses, ends = block.likenesses, block.ends
        return [at for at in rows if ends[at] >= last_ends.get(likenesses[at], ends[at])]

    return keep


# -- orders ------------------------------------------------------------------------------------

Value = Callable[[int], float | str]  # of a row of the block


def _subjects(block: RowBlock) -> Value:
    texts = block.texts
    return lambda at: texts[at].partition("\n")[0]


def _signers(block: RowBlock) -> Value:
    origins = block.origins
    return lambda at: origins[at].signer


VALUES: Final[dict[str, Callable[[RowBlock], Value]]] = {
    search.END: lambda block: block.ends.__getitem__,
    search.ISSUED: lambda block: block.issued.__getitem__,
    search.SIGNER: _signers,
    search.SUBJECT: _subjects,
    search.REQUESTER: lambda block: block.requesters.__getitem__,
}


# -- positions ---------------------------------------------------------------------------------


def _position(spec: CertificateSearchSpec) -> Position | None:
    if not spec.after:
        return None
    is_number = spec.sort in (search.END, search.ISSUED)
    shape: Any = tuple[float, str] if is_number else tuple[str, str]
    try:
        data = base64.b64decode(spec.after, altchars=b"-_", validate=True)
        position: Position = msgspec.json.decode(data, type=shape)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise MalformedPosition("must be `status.next` of a search with the same sort") from None
    return position


def _encoded(position: Position) -> str:
    value, name = position
    return base64.urlsafe_b64encode(msgspec.json.encode((value, name))).decode("ascii")
