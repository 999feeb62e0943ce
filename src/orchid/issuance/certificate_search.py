"""CertificateIndex: searches the inventory for kinds/certificate_search.py.

Start with `find`. The first search builds a row for each record; before each later search, the
rows of records that changed are replaced. A server that never gets a search has no cost. A search
visits all rows, in portions between which other requests are served; 100,000 rows take some tens of
milliseconds.
"""

import asyncio
import base64
import binascii
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from orchid.access.denial import forbidden
from orchid.approval.issuing_terms import duration_of
from orchid.clock import Clock
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.interfaces import Authorizer, Verdict
from orchid.engine.request import Target
from orchid.kinds import certificate_search as search
from orchid.kinds.certificate_search import (
    CertificateSearchSpec,
    CertificateSearchStatus,
    FoundCertificate,
    MalformedPosition,
)
from orchid.kinds.issued_certificate import IssuedCertificate
from orchid.wire.user import UserInfo

ROWS: Final = 2_000  # in a portion of a search
RECORDS: Final = 100  # in a portion that decodes
FOREVER: Final = sys.float_info.max  # JSON has no infinity
Filter = Callable[[list["Row"]], list["Row"]]
Position = tuple[float | str, str]  # value of the order, and key


class Row(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The searched properties of one record."""

    key: str
    revision: int
    text: str  # subject, names, requester, request and serial number, in lower case, by line
    signer: str
    requester: str
    approver: str
    policy: str
    cluster: str
    authority_key: str
    issued: float
    end: float
    is_revoked: bool
    likeness: int  # equal for certificates of the same signer, subject and names


VALUES: Final[dict[str, Callable[[Row], float | str]]] = {
    search.END: lambda row: row.end,
    search.ISSUED: lambda row: row.issued,
    search.SIGNER: lambda row: row.signer,
    search.SUBJECT: lambda row: row.text.partition("\n")[0],
    search.REQUESTER: lambda row: row.requester,
}


class CertificateIndex:
    def __init__(self, feed: Feed, authorizer: Authorizer, clock: Clock) -> None:
        self._feed = feed
        self._cache = feed.of(IssuedCertificate)
        self._authorizer = authorizer
        self._clock = clock
        self._updating = asyncio.Lock()
        self._rows: dict[str, Row] = {}  # by key
        self._entries: dict[str, Entry[IssuedCertificate]] | None = None  # indexed dictionary
        self._seen = 0  # every change up to this revision is indexed

    async def find(self, spec: CertificateSearchSpec, user: UserInfo) -> CertificateSearchStatus:
        await self._require_list(user)
        position = _position(spec)
        await self._feed.fresh()
        await self._update()
        value = VALUES[spec.sort]
        now = self._clock.now()
        rows = list(self._rows.values())
        filters = [*_filters(spec, now.timestamp())]
        if spec.omit_replaced:
            filters.append(_unreplaced(await _last_ends(rows, now.timestamp())))
        matches, rest, best = 0, 0, list[Row]()
        for portion in _portions(rows, ROWS):
            found = portion
            for keep in filters:
                found = keep(found)
            matches += len(found)
            if position is not None:
                found = [row for row in found if (value(row), row.key) > position]
            rest += len(found)
            best = heapq.nsmallest(spec.limit, best + found, lambda row: (value(row), row.key))
            await asyncio.sleep(0)
        items = await self._items(best)
        more = _encoded((value(best[-1]), best[-1].key)) if rest > len(best) else ""
        return CertificateSearchStatus(items=items, matches=matches, next=more)

    async def _require_list(self, user: UserInfo) -> None:
        kind = self._cache.kind
        target = Target(
            verb="list",
            is_resource=True,
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
        )
        decision = await self._authorizer.authorize(user, target)
        if decision.verdict is not Verdict.ALLOW:
            raise forbidden(user, target, decision.reason)

    async def _update(self) -> None:
        """Index every change that has arrived; concurrent searches share the work."""
        async with self._updating:
            cache = self._cache
            while self._entries is not cache.entries or self._seen != cache.revision:
                entries, revision = cache.entries, cache.revision
                if entries is self._entries and cache.oldest <= self._seen:
                    keys = [change.key for change in cache.since(self._seen)]
                else:  # loaded again, or changes were dropped: compare all revisions
                    keys = [*(self._rows.keys() - entries.keys()), *entries]
                for portion in _portions(keys, RECORDS):
                    for key in portion:
                        self._index(key, entries.get(key))
                    await asyncio.sleep(0)
                self._entries, self._seen = entries, revision

    def _index(self, key: str, entry: Entry[IssuedCertificate] | None) -> None:
        if entry is None:
            self._rows.pop(key, None)
            return
        row = self._rows.get(key)
        if row is None or row.revision != entry.revision:
            self._rows[key] = _row(entry)

    async def _items(self, rows: list[Row]) -> tuple[FoundCertificate, ...]:
        items = []
        for portion in _portions(rows, RECORDS):
            entries = (self._cache.entries.get(row.key) for row in portion)
            items += [_item(entry.object) for entry in entries if entry is not None]
            await asyncio.sleep(0)
        return tuple(items)


def _row(entry: Entry[IssuedCertificate]) -> Row:
    record = entry.kind.decoder.stored(entry.data)  # not cached: most are not in the result
    spec = record.spec
    pieces = (
        spec.subject,
        *spec.names,
        spec.requester.username,
        spec.request.name,
        spec.serial_number,
    )
    text = pieces[0].casefold()
    for piece in pieces[1:]:
        if (folded := piece.casefold()) not in text:
            text = f"{text}\n{folded}"
    created = record.metadata.creation_timestamp
    return Row(
        key=entry.key,
        revision=entry.revision,
        text=text,
        signer=sys.intern(spec.signer_name),
        requester=sys.intern(spec.requester.username),
        approver=sys.intern(spec.approver.username),
        policy=sys.intern(spec.approver.policy),
        cluster=sys.intern(spec.cluster),
        authority_key=sys.intern(spec.authority_key),
        issued=created.timestamp() if created else 0.0,
        end=spec.not_after.timestamp() if spec.not_after else FOREVER,
        is_revoked=record.status.revoked is not None,
        likeness=hash((spec.signer_name, spec.subject, tuple(sorted(spec.names)))),
    )


def _item(record: IssuedCertificate) -> FoundCertificate:
    spec, revoked = record.spec, record.status.revoked
    return FoundCertificate(
        name=record.metadata.name,
        serial_number=spec.serial_number,
        signer_name=spec.signer_name,
        subject=spec.subject,
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
        yield lambda rows: [row for row in rows if row.end > now and not row.is_revoked]
    elif spec.state == search.REVOKED:
        yield lambda rows: [row for row in rows if row.is_revoked]
    elif spec.state == search.EXPIRED:
        yield lambda rows: [row for row in rows if row.end <= now]
    if within := duration_of(spec.ends_within):
        until = now + within.total_seconds()
        yield lambda rows: [row for row in rows if now < row.end <= until]
    yield from (_has_word(word) for word in spec.text.casefold().split())
    if signers := frozenset(spec.signer_names):
        yield lambda rows: [row for row in rows if row.signer in signers]
    if requesters := frozenset(spec.requesters):
        yield lambda rows: [row for row in rows if row.requester in requesters]
    if clusters := frozenset(spec.clusters):
        yield lambda rows: [row for row in rows if row.cluster in clusters]
    if keys := frozenset(spec.authority_keys):
        yield lambda rows: [row for row in rows if row.authority_key in keys]
    if approvers := frozenset(spec.approvers) - {""}:
        yield lambda rows: [
            row for row in rows if row.approver in approvers or row.policy in approvers
        ]


def _has_word(word: str) -> Filter:
    return lambda rows: [row for row in rows if word in row.text]


async def _last_ends(rows: list[Row], now: float) -> dict[int, float]:
    """The last expiry of live certificates, by likeness."""
    last: dict[int, float] = {}
    for portion in _portions(rows, ROWS):
        for row in portion:
            if not row.is_revoked and row.end > max(now, last.get(row.likeness, now)):
                last[row.likeness] = row.end
        await asyncio.sleep(0)
    return last


def _unreplaced(last_ends: dict[int, float]) -> Filter:
    return lambda rows: [row for row in rows if row.end >= last_ends.get(row.likeness, row.end)]


def _portions(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while portion := list(islice(rest, size)):
        yield portion


# -- positions ---------------------------------------------------------------------------------


def _position(spec: CertificateSearchSpec) -> Position | None:
    if not spec.after:
        return None
    is_number = spec.sort in (search.END, search.ISSUED)
    shape: Any = tuple[float, str] if is_number else tuple[str, str]
    try:
        data = base64.b64decode(spec.after, altchars=b"-_", validate=True)
        found: Position = msgspec.json.decode(data, type=shape)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise MalformedPosition("must be `status.next` of a search with the same sort") from None
    return found


def _encoded(position: Position) -> str:
    value, name = position
    return base64.urlsafe_b64encode(msgspec.json.encode((value, name))).decode("ascii")
