"""Conditions of the machine and of the data directory that no request shows.

    ClockBehind            a certificate of the server is not valid yet
    DiskFull               there is no room for a file in the data directory
    DirectoryNotWritable   no file can be written there: read-only, no right, a broken disk
    FileUnreadable         a file beside the store is damaged, or was, and a copy was set aside

Start with `HostConditions.check`, which `run` repeats. A condition is 1 in the metric while it
lasts, and its beginning and end are in the log. The server stays ready: most requests are reads.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Gauge, Joining
from orchid.kernel.credentials.expiry import CertificateFile
from orchid.kernel.credentials.files import UNREADABLE
from orchid.kernel.credentials.refusals import Refusal

log = logging.getLogger(__name__)

NAME: Final = "orchid_host_condition"
CLOCK, FULL, READ_ONLY = "ClockBehind", "DiskFull", "DirectoryNotWritable"
DAMAGED: Final = "FileUnreadable"
EVENTS: Final = {
    CLOCK: "clock.behind",
    FULL: "disk.full",
    READ_ONLY: "directory.not_writable",
    DAMAGED: "file.unreadable",
}
SKEW: Final = timedelta(minutes=1)  # a key of another server may have been made a moment ago

INTERVAL_SECONDS: Final = 10.0
PROBE: Final = ".probe"
PROBE_BYTES: Final = 1 << 16
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class HostConditions:
    """The conditions of one server."""

    def __init__(
        self,
        directory: Path,
        certificates: Sequence[CertificateFile],
        clock: Clock,
        files: Sequence[str] = (),
    ) -> None:
        """`files`: those of the directory that a start reads."""
        self._files = files
        self._directory = directory
        self._certificates = certificates
        self._clock = clock
        self._last: dict[str, str] = {}
        self.gauge = Gauge(
            NAME,
            "1 while a condition of the machine or of the data directory lasts.",
            "condition",
            joins=Joining.MOST,
        )

    async def run(self) -> None:
        """Check regularly, until cancelled; of several processes one does."""
        while True:
            self.take(await asyncio.to_thread(self.check))
            await asyncio.sleep(INTERVAL_SECONDS)

    def check(self) -> dict[str, str]:
        """The problem of each condition that holds."""
        return dict((*self._clock_behind(), *self._unwritable(), *self._unreadable()))

    def take(self, problems: dict[str, str]) -> None:
        """Set the metric, and log what has begun or ended."""
        for condition in EVENTS:
            self.gauge.set(int(condition in problems), condition)
        for condition, problem in problems.items():
            if self._last.get(condition) != problem:
                log.error(EVENTS[condition], extra={"problem": problem})
        for condition in self._last.keys() - problems.keys():
            log.warning("condition.ended", extra={"condition": condition})
        self._last = problems

    def _clock_behind(self) -> Iterator[tuple[str, str]]:
        now = self._clock.now()
        for file in self._certificates:
            with contextlib.suppress(Refusal):  # reported by the metric of its expiry
                if (start := file.start()) > now + SKEW:
                    yield (
                        CLOCK,
                        f"the {file.purpose} certificate is valid from {start:%Y-%m-%dT%H:%M:%SZ}, "
                        f"and this clock says {now:%Y-%m-%dT%H:%M:%SZ}",
                    )

    def _unwritable(self) -> Iterator[tuple[str, str]]:
        probe = self._directory / PROBE
        try:
            descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(bytes(PROBE_BYTES))
            probe.unlink()
        except OSError as failure:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)
            condition = FULL if failure.errno in NO_ROOM else READ_ONLY
            yield condition, f"{self._directory}: {failure.strerror}"

    def _unreadable(self) -> Iterator[tuple[str, str]]:
        names = []
        with contextlib.suppress(OSError):  # of the directory: a condition of its own
            names += [path.name for path in self._directory.glob(f"*{UNREADABLE}*")]
        for path in (self._directory / name for name in self._files):
            try:
                path.open("rb").close()
            except FileNotFoundError:
                continue
            except OSError:
                names.append(path.name)
        if names:
            yield DAMAGED, f"{self._directory}: {', '.join(sorted(names))}"
