"""Counts of issued tokens: per signing key, account and expiry, never one by one.

With `--ledger-tokens totals` the account is left out (empty): the ledger then does not grow with
the number of accounts.

Issuing a token increments a number in memory. `run` writes the numbers into the ledger every few
seconds, as entries of type tokens.counted, and `write` once more at the end: no token costs a
commit. Each process writes its own counts, and readers add them up. A process that is killed loses
the counts since the last write.

Expiry times are rounded up: to the hour, the day, the month or the year, the later the coarser. An
account has at most `MOST_ROWS` rows per key and interval; further tokens are counted in the row
with the latest expiry. So the number of rows does not depend on the lifetimes that clients choose.
Entries are formatted in a thread.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from orchid.features.ledger.count_writer import CountWriter
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import Store

INTERVAL_SECONDS: Final = 10.0
HOUR: Final = 3600
DAY: Final = 24 * HOUR
MONTH: Final = 30 * DAY
YEAR: Final = 365 * DAY
BY_THE_HOUR: Final = 2 * DAY  # tokens that expire within this time are counted by hour
BY_THE_DAY: Final = 60 * DAY
BY_THE_MONTH: Final = 2 * YEAR
LAST: Final = 253_402_214_400  # 9999-12-31T00:00:00Z, the last day that can be formatted
MOST_ROWS: Final = 8
MOST_TOTALS: Final = 64  # the same without accounts: every hour of two days, and some more
ROWS_PER_ENTRY: Final = 32

Counted = dict[tuple[str, str], dict[int, int]]  # key and account; number of tokens by expiry


class TokenCounts:
    """Counts tokens, and writes the counts into a store."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._now = now
        self._seconds = int(now().timestamp())  # of the last write
        self._counts: Counted = {}
        self._writer = CountWriter(store, _facts)

    def counter(self, mode: str) -> Callable[[str, str, int], None] | None:
        """What counts tokens, as --ledger-tokens says: counted, totals or off."""
        return {"counted": self.issued, "totals": self._issued_of_any}.get(mode)

    def _issued_of_any(self, key: str, account: str, expires: int) -> None:
        self.issued(key, "", expires)

    def issued(self, key: str, account: str, expires: int) -> None:
        """Count a token of the account with this uid and expiry (Unix time)."""
        left = expires - self._seconds
        if left <= BY_THE_HOUR:
            unit = HOUR
        elif left <= BY_THE_DAY:
            unit = DAY
        else:
            unit = MONTH if left <= BY_THE_MONTH else YEAR
        end = -(-expires // unit) * unit
        rows = self._counts.get((key, account))
        if rows is None:
            self._counts[key, account] = {end: 1}
        elif end in rows:
            rows[end] += 1
        elif len(rows) < (MOST_ROWS if account else MOST_TOTALS):
            rows[end] = 1
        else:
            _count_in_last(rows, end)

    async def run(
        self,
        *,
        interval: float = INTERVAL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Write regularly, until cancelled; failed writes are retried later."""
        while True:
            await sleep(interval)
            await self.write()

    async def write(self) -> None:
        """Add the counts since the last write to the pending entries."""
        now = self._now()
        self._seconds = int(now.timestamp())
        counts, self._counts = self._counts, {}
        await self._writer.write(counts, now)


def _count_in_last(rows: dict[int, int], end: int) -> None:
    """Count a token in the row with the latest expiry, which is moved if the token's is later."""
    last = max(rows)
    rows[max(last, end)] = rows.pop(last) + 1


def _facts(counts: Counted) -> Iterator[Fact]:
    by_key = itertools.groupby(sorted(counts.items()), key=lambda item: item[0][0])
    for key, items in by_key:
        rows = [
            [account, _time(end), count]
            for (_, account), ends in items
            for end, count in sorted(ends.items())
        ]
        for first in range(0, len(rows), ROWS_PER_ENTRY):
            some = rows[first : first + ROWS_PER_ENTRY]
            yield Fact("tokens.counted", {"key": key, "tokens": some})


def _time(end: int) -> str:
    return datetime.fromtimestamp(min(end, LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
