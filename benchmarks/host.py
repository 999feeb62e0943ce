"""What the host of a virtual machine takes away: a figure measured meanwhile is the host's."""

import os
import time
from collections.abc import Iterable
from pathlib import Path


class Stolen:
    """The part of the time for which the host had one of some cores, from one look to the next."""

    def __init__(self, cores: Iterable[int]) -> None:
        self._cores = {f"cpu{core}" for core in cores}
        self._seconds, self._at = self._so_far(), time.monotonic()

    def part(self) -> float:
        """The part since the last look; 1 is one core all the time."""
        seconds, at = self._so_far(), time.monotonic()
        part = (seconds - self._seconds) / (at - self._at)
        self._seconds, self._at = seconds, at
        return part

    def _so_far(self) -> float:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        ticks = sum(int(line[8]) for line in lines if line[0] in self._cores)  # column "steal"
        return ticks / os.sysconf("SC_CLK_TCK")
