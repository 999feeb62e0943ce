"""When the machine was in the way: moments at which no server on it could have been quick.

Start with `watched`, which has a process of its own on the server's core look every two
milliseconds, and with `backlogs`: the spans of time that say nothing about the server. Four things
are seen:

- clock: a loop that does nothing took longer than usual. Processors that get too hot or take too
  much power run at a fraction of their speed for tens of milliseconds, and a virtual machine is not
  told.
- waited: server or generator could run, and another process had the core.
- stolen: the host had a core, because it says so or because a timer was late.
- disk: the disk was busy with writing its cache to the medium all the time.

Nothing here knows what the server answered, so nothing that it does wrong is excused. To watch
takes one percent of the core.
"""

import json
import os
import select
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

# Half of the rate takes two thirds of the core: fewer requests share a turn of the event loop.
NEEDED = 2 / 3
_EVERY = 0.002  # seconds from one look to the next
_COUNTED_EVERY = 5  # looks; the kernel counts what is stolen in units of 10 ms
_FLUSHING = 0.008  # seconds of it that end within one such unit: the disk did nothing else
_NOTHING = range(100)
_TRIES = 3  # an interrupt hits one of them, and the first has to warm up
_WHOLE = 1 << 14  # bytes; more than such a file has
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_FIRST = 10  # a real-time priority above that of a server which has one


class Look(NamedTuple):
    at: float
    took: float  # to do nothing a hundred times
    late: float  # after it was due


class Counts(NamedTuple):
    """What the kernel has counted so far, in seconds."""

    at: float
    busy: float = 0.0  # the server's main thread ran
    beside: float = 0.0  # its other threads ran
    waited: float = 0.0  # its main thread waited
    delayed: float = 0.0  # the generator waited
    stolen: float = 0.0
    flushed: float = 0.0


class Moment(NamedTuple):
    """Parts of the time up to a moment that were lost, since the moment before.

    A clock that is faster than usual makes up for others: less than nothing is lost.
    """

    at: float
    clock: float = 0.0
    waited: float = 0.0
    stolen: float = 0.0
    disk: float = 0.0

    @property
    def speed(self) -> float:
        """What was left, as a part of the usual speed."""
        return max(0.0, 1 - self.waited - self.stolen - self.disk) * (1 - self.clock)


Span = tuple[float, float]


class Watch:
    """What was seen of the machine while a server was loaded."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.counts: list[Counts] = []

    @property
    def busy(self) -> float:
        """The part of the time for which the server's main thread ran."""
        first, last = self.counts[0], self.counts[-1]
        return (last.busy - first.busy) / (last.at - first.at)

    @property
    def stood_still(self) -> float:
        """The longest time, in seconds, without the server's core, or for one flush of the disk."""
        flushes = (after.flushed - before.flushed for before, after in pairwise(self.counts))
        return max(*(each.late for each in self.looks), *flushes)

    def moments(self) -> list[Moment]:
        return moments_of(self.looks, self.counts)


@contextmanager
def watched(pid: int, core: int, written: Path | None = None) -> Iterator[Watch]:
    """Watch a server's process, its core, and the disk if it is `written` to.

    What was seen is there when the block is left.
    """
    command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.disturbances"]
    command += [str(pid), str(os.getpid()), str(written or "")]
    watch = Watch()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it looks now
            yield watch
            looks, counts = json.loads(process.communicate()[0])
        finally:
            process.kill()
    watch.looks = [Look(*each) for each in looks]
    watch.counts = [Counts(*each) for each in counts]


def main() -> None:
    """Look until our input ends, then print all that was seen."""
    server, generator, written = sys.argv[1:]
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_FIRST))
    kernel = Kernel(server, generator, Path(written).stat().st_dev if written else None)
    print(flush=True)
    looks, due = [look(monotonic())], monotonic()
    while not select.select([sys.stdin], (), (), max(0.0, due - monotonic()))[0]:
        looks.append(look(due))
        if len(looks) % _COUNTED_EVERY == 0:
            kernel.read(looks[-1].at)
        due = max(due + _EVERY, monotonic())
    print(json.dumps([looks, kernel.counts()]))


def look(due: float) -> Look:
    took, woken = inf, monotonic()
    end = woken
    for _ in range(_TRIES):
        begin = end
        for _ in _NOTHING:
            pass
        end = monotonic()
        took = min(took, end - begin)
    return Look(end, took, woken - due)


class Kernel:
    """Files in which the kernel counts; what was read is understood afterwards."""

    def __init__(self, server: str, generator: str, device: int | None) -> None:
        self._device = device
        tasks = sorted(Path(f"/proc/{server}/task").iterdir(), key=lambda task: task.name != server)
        paths = ["/proc/stat", "/proc/diskstats", f"/proc/{generator}/schedstat"]
        paths += [f"{task}/schedstat" for task in tasks]  # its main thread first
        self._files = [os.open(path, os.O_RDONLY) for path in paths]
        self._texts: list[tuple[float, list[bytes]]] = []

    def read(self, at: float) -> None:
        self._texts.append((at, [os.pread(file, _WHOLE, 0) for file in self._files]))

    def counts(self) -> list[Counts]:
        return [self._parsed(at, texts) for at, texts in self._texts]

    def _parsed(self, at: float, texts: list[bytes]) -> Counts:
        stat, disks, generator, *threads = texts
        ran, waited = zip(*(map(int, text.split()[:2]) for text in threads), strict=True)
        return Counts(
            at,
            busy=ran[0] / 1e9,
            beside=sum(ran[1:]) / 1e9,
            waited=waited[0] / 1e9,
            delayed=int(generator.split()[1]) / 1e9,
            stolen=int(stat.split(maxsplit=9)[8]) * _TICK,  # of all cores together
            flushed=self._flushed(disks),
        )

    def _flushed(self, disks: bytes) -> float:
        for line in disks.splitlines():
            fields = line.split()
            device = os.makedev(int(fields[0]), int(fields[1]))
            if device == self._device and len(fields) > 19:
                return int(fields[19]) / 1000
        return 0.0


def moments_of(looks: Sequence[Look], counts: Sequence[Counts]) -> list[Moment]:
    """Put both together: a moment for each look."""
    usual = median(each.took for each in looks)
    lost = _lost(counts)
    ends = [each.at for each in lost]
    moments = []
    for before, now in pairwise(looks):
        between = lost[min(bisect_right(ends, now.at), len(lost) - 1)]
        gone = max(between.stolen, min(1.0, now.late / (now.at - before.at)))
        moments.append(between._replace(at=now.at, clock=1 - usual / now.took, stolen=gone))
    return moments


def _lost(counts: Sequence[Counts]) -> list[Moment]:
    """The parts that were lost between two counts."""
    lost = [Moment(counts[0].at)]
    for before, after in pairwise(counts):
        spent = Counts(*(late - early for early, late in zip(before, after, strict=True)))
        # While its other threads ran its main thread may have waited for them: its own doing.
        waited = max(0.0, spent.waited - spent.beside) + spent.delayed
        parts = (min(1.0, each / spent.at) for each in (waited, spent.stolen))
        lost.append(Moment(after.at, 0.0, *parts))
        _note_flushing(lost, spent.flushed)
    return lost


def _note_flushing(lost: list[Moment], seconds: float) -> None:
    """A long flush is counted at its end: the disk was busy since its beginning."""
    if seconds < _FLUSHING:
        return
    begun, at = lost[-1].at - seconds, len(lost) - 1
    while at >= 0 and lost[at].at > begun:
        lost[at] = lost[at]._replace(disk=1.0)
        at -= 1


def backlogs(moments: Iterable[Moment], needed: float = NEEDED) -> list[Span]:
    """Spans in which less was left than needed, or what had piled up was not made up for."""
    spans: list[Span] = []
    behind = 0.0
    for before, now in pairwise(moments):
        was, behind = behind, max(0.0, behind + (now.at - before.at) * (needed - now.speed))
        if was:
            spans[-1] = (spans[-1][0], now.at)
        elif behind:
            spans.append((before.at, now.at))
    return spans


def overlaps(span: Span, spans: Sequence[Span]) -> bool:
    """Tell whether a span has a moment in common with one of others, which are in order."""
    begun_by_then = bisect_right(spans, span[1], key=lambda each: each[0])
    return begun_by_then > 0 and spans[begun_by_then - 1][1] >= span[0]


if __name__ == "__main__":
    main()
