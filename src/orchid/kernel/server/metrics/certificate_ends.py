"""Expiry of the server's own certificates: as a metric, and as warnings.

`CertificateEnds.run` checks the files every minute, since they may be replaced. It logs a warning
30 days, 7 days and 1 day before the expiry, once each, and once after it.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Gauge, Joining
from orchid.kernel.credentials.expiry import CertificateFile
from orchid.kernel.credentials.refusals import Refusal

log = logging.getLogger(__name__)

NAME: Final = "orchid_certificate_end_seconds"
CHECK_INTERVAL_SECONDS: Final = 60.0
WARN_BEFORE: Final = tuple(timedelta(days=days) for days in (0, 1, 7, 30))


class CertificateEnds:
    """The server's own certificates, and their expiry."""

    def __init__(self, files: Sequence[CertificateFile], clock: Clock) -> None:
        self.gauge = Gauge(
            NAME,
            "Expiry of a certificate of the server, in seconds since the epoch.",
            "certificate",
            joins=Joining.MOST,
        )
        self._files = files
        self._clock = clock
        self._warned: dict[str, tuple[datetime, timedelta]] = {}
        self.take(self.read(), warns=False)

    async def run(self, *, warns: bool) -> None:
        while True:
            ends = await asyncio.to_thread(self.read)
            self.take(ends, warns=warns)
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def read(self) -> dict[str, datetime]:
        """The expiry of each; unreadable files are omitted."""
        ends = {}
        for file in self._files:
            try:
                ends[file.purpose] = file.end()
            except Refusal as refusal:
                problem = {"certificate": file.purpose, "problem": str(refusal)}
                log.warning("certificate.unreadable", extra=problem)
        return ends

    def take(self, ends: dict[str, datetime], *, warns: bool) -> None:
        for purpose, end in ends.items():
            self.gauge.set(end.timestamp(), purpose)
            if warns:
                self._warn(purpose, end)

    def _warn(self, purpose: str, end: datetime) -> None:
        left = end - self._clock.now()
        reached = next((limit for limit in WARN_BEFORE if left <= limit), None)
        if reached is None or self._warned.get(purpose) == (end, reached):
            return
        self._warned[purpose] = end, reached
        event = "certificate.ends" if reached else "certificate.ended"
        about = {"certificate": purpose, "end": end.isoformat(), "days": left.days}
        log.log(logging.WARNING if reached else logging.ERROR, event, extra=about)
