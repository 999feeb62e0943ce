"""Counters, gauges and histograms: families of samples, as Prometheus defines them.

`Counter`, `Gauge` and `Durations` hold one number, or one histogram, per set of label values; each
returns its `Family`. They are owned by the code that counts and passed on; there is no global
registry, and nothing is printed here (kernel/server/metrics/page.py does that).

Several processes of one server count separately; `joined` merges their families, each as declared,
and `packed` and `unpacked` serialize them.

Label values must come from a closed set; otherwise a client could create unlimited series.
"""

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

LabelPairs = tuple[tuple[str, str], ...]


class Joining(Enum):
    """The rule for merging the numbers of several processes."""

    SUM = "sum"  # each counts its own
    MOST = "most"  # all count the same, and one of them is ahead
    LEAST = "least"


class Histogram(msgspec.Struct, array_like=True):
    """Counts per bucket; the last bucket has no upper bound."""

    bounds: tuple[float, ...]
    counts: list[int] = []
    sum: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: "Histogram") -> None:
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum += other.sum


class Sample(NamedTuple):
    labels: LabelPairs
    value: float | Histogram


class Family(NamedTuple):
    """A metric: its name, type, help and samples."""

    name: str
    type: str
    help: str
    samples: list[Sample]
    joins: Joining = Joining.SUM


class Metric(Protocol):
    """A metric that can be printed, and reset."""

    def family(self) -> Family: ...

    def reset(self) -> None: ...


class Counter:
    """A counter. Without labels it exists from the start, with 0."""

    type = "counter"

    def __init__(self, name: str, help_: str, *labels: str, joins: Joining = Joining.SUM) -> None:
        self.name, self._help, self._labels, self._joins = name, help_, labels, joins
        self._values: dict[tuple[str, ...], float] = {}
        self.reset()

    def count(self, *values: str) -> None:
        self._values[values] = self._values.get(values, 0) + 1

    def value(self, *values: str) -> float:
        return self._values.get(values, 0)

    def family(self) -> Family:
        samples = [
            Sample(tuple(zip(self._labels, values, strict=True)), number)
            for values, number in self._values.items()
        ]
        return Family(self.name, self.type, self._help, samples, self._joins)

    def reset(self) -> None:
        self._values = {} if self._labels else {(): 0}


class Gauge(Counter):
    """A number that goes up and down; it is not reset."""

    type = "gauge"

    def set(self, number: float, *values: str) -> None:
        self._values[values] = number

    def clear(self) -> None:
        self._values.clear()

    def reset(self) -> None:
        return None


class Durations:
    """A histogram of durations in seconds. Without labels it exists from the start, too."""

    def __init__(self, name: str, help_: str, bounds: tuple[float, ...], *labels: str) -> None:
        self.name, self._help, self._labels, self._bounds = name, help_, labels, bounds
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self.reset()

    def observe(self, seconds: float, *values: str) -> None:
        histogram = self._histograms.get(values)
        if histogram is None:
            histogram = self._histograms[values] = Histogram(self._bounds)
        histogram.observe(seconds)

    def family(self) -> Family:
        samples = [
            Sample(tuple(zip(self._labels, values, strict=True)), histogram)
            for values, histogram in self._histograms.items()
        ]
        return Family(self.name, "histogram", self._help, samples)

    def reset(self) -> None:
        self._histograms = {} if self._labels else {(): Histogram(self._bounds)}


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, each twice the one before."""
    return tuple(round(first * 2**step, 6) for step in range(count))


# --- of several processes -------------------------------------------------------------------------

_families = msgspec.msgpack.Decoder(list[Family])


def packed(families: Iterable[Family]) -> bytes:
    """Families, serialized for another process."""
    return msgspec.msgpack.encode(list(families))


def unpacked(data: bytes) -> list[Family]:
    return _families.decode(data)


def joined(reports: Iterable[Iterable[Family]]) -> list[Family]:
    """One family of each name, from the reports of several processes."""
    by_name: dict[str, Family] = {}
    values: dict[str, dict[LabelPairs, float | Histogram]] = {}
    for families in reports:
        for family in families:
            by_name.setdefault(family.name, family)
            totals = values.setdefault(family.name, {})
            for labels, value in family.samples:
                before = totals.get(labels)
                totals[labels] = value if before is None else _join(family.joins, before, value)
    return [
        family._replace(samples=[Sample(*pair) for pair in values[name].items()])
        for name, family in by_name.items()
    ]


def lasting(families: Iterable[Family]) -> list[Family]:
    """The families that remain valid after a process has ended: counts, not current values."""
    return [each for each in families if each.type != "gauge" and each.joins is Joining.SUM]


def _join(joins: Joining, left: float | Histogram, right: float | Histogram) -> float | Histogram:
    if isinstance(left, Histogram) and isinstance(right, Histogram):
        total = Histogram(left.bounds, list(left.counts), left.sum)
        total.add(right)
        return total
    assert not isinstance(left, Histogram)
    assert not isinstance(right, Histogram)
    if joins is Joining.SUM:
        return left + right
    return max(left, right) if joins is Joining.MOST else min(left, right)
