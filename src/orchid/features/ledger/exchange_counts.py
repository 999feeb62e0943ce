"""Counts of exchanged tokens: per policy and hour, as entries of type exchanges.counted.

An exchange increments a number in memory; `run` writes the numbers every few seconds, and `write`
once more at the end. Each process writes its own counts, and readers add them up.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from orchid.features.ledger.count_writer import CountWriter
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.store.interface import Store
from orchid.kernel.wire.text import timestamp

INTERVAL_SECONDS: Final = 10.0
ROWS_PER_ENTRY: Final = 32

HOUR: Final = 3600  # seconds

Counted = Counter[tuple[str, int]]  # uid of the policy, and hours since 1970


class ExchangeCounts:
    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._now = now
        self._counts: Counted = Counter()
        self._writer = CountWriter(store, _facts)

    def exchanged(self, policy: str, now: datetime) -> None:
        """Count an exchange by the policy with this uid."""
        self._counts[policy, int(now.timestamp()) // HOUR] += 1

    async def run(self) -> None:
        """Write regularly, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.write()

    async def write(self) -> None:
        counts, self._counts = self._counts, Counter()
        await self._writer.write(counts, self._now())


def _facts(counts: Counted) -> Iterator[Fact]:
    rows = [
        [policy, timestamp(datetime.fromtimestamp(hour * HOUR, UTC)), count]
        for (policy, hour), count in sorted(counts.items())
    ]
    for first in range(0, len(rows), ROWS_PER_ENTRY):
        some = rows[first : first + ROWS_PER_ENTRY]
        yield Fact("exchanges.counted", {"exchanges": some})
