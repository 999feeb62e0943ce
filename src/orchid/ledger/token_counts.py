"""How many tokens were issued: per signing key, account and hour of expiry, never one by one.

Issuing a token adds one to a number in memory. `run` writes the numbers into the ledger now and
then, as entries of type tokens.counted, and `write` once more at the end: so no token costs a
commit. Each process writes what it has counted itself, and whoever reads adds up. A process that is
killed loses what it counted since the last time.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from orchid.ledger import places
from orchid.ledger.entries import Fact
from orchid.store.interface import Change, RevisionConflict, Store, StoreError

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 10.0
HOUR: Final = 3600
ROWS_PER_ENTRY: Final = 32
ENTRIES_PER_COMMIT: Final = 64


class TokenCounts:
    """Counts tokens, and writes the counts into a store."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._unwritten: list[list[Change]] = []  # commits; tried again as they are, or not at all

    def issued(self, key: str, account: str, expires: int) -> None:
        """Count a token of the account with this uid, which ends at this Unix time."""
        self._counts[key, account, -(-expires // HOUR)] += 1

    async def run(
        self,
        *,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Write again and again, until cancelled; what cannot be written is kept for later."""
        while True:
            await sleep(interval)
            await self.write()

    async def write(self) -> None:
        """Put what was counted since the last time among the pending entries."""
        counts, self._counts = self._counts, Counter()
        changes = places.pending(_facts(counts), "", self._now())
        size = ENTRIES_PER_COMMIT
        self._unwritten += [changes[at : at + size] for at in range(0, len(changes), size)]
        try:
            while self._unwritten:
                await self._commit(self._unwritten[0])
                del self._unwritten[0]
        except StoreError as failure:
            log.warning("ledger.tokens_not_counted: %s", failure)

    async def _commit(self, changes: list[Change]) -> None:
        try:
            await self._store.commit(changes)
        except RevisionConflict:
            log.debug("ledger.already_pending")  # an earlier try succeeded after all


def _facts(counts: Counter[tuple[str, str, int]]) -> Iterator[Fact]:
    by_key = itertools.groupby(sorted(counts.items()), key=lambda item: item[0][0])
    for key, items in by_key:
        rows = [[account, _hour(hour), count] for (_, account, hour), count in items]
        for first in range(0, len(rows), ROWS_PER_ENTRY):
            some = rows[first : first + ROWS_PER_ENTRY]
            yield Fact("tokens.counted", {"key": key, "tokens": some})


def _hour(hour: int) -> str:
    """The end of the hour in which the tokens expire."""
    return datetime.fromtimestamp(hour * HOUR, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
