"""What is counted, wherever it is counted: families of samples, as Prometheus knows them.

`Counter`, `Gauge` and `Durations` hold one number, or one histogram, per set of label values; each
gives its `Family`. Whoever counts owns them and hands them on; there is no global registry, and
nothing is printed here (server/metrics/page.py does that).

Label values must come from a closed set, or a client could make series without end.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, Protocol

LabelPairs = tuple[tuple[str, str], ...]


class Histogram:
    """How often a value fell into which bucket; the last bucket has no upper end."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

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
    """One metric: its name, what it is, and its samples."""

    name: str
    type: str
    help: str
    samples: Iterable[Sample]


class Metric(Protocol):
    """Something counted that can be printed, and begun again."""

    def family(self) -> Family: ...

    def reset(self) -> None: ...


class Counter:
    """How often something happened."""

    type = "counter"

    def __init__(self, name: str, help_: str, *labels: str) -> None:
        self.name, self._help, self._labels = name, help_, labels
        self._values: dict[tuple[str, ...], float] = {}

    def count(self, *values: str) -> None:
        self._values[values] = self._values.get(values, 0) + 1

    def value(self, *values: str) -> float:
        return self._values.get(values, 0)

    def family(self) -> Family:
        samples = [
            Sample(tuple(zip(self._labels, values, strict=True)), number)
            for values, number in self._values.items()
        ]
        return Family(self.name, self.type, self._help, samples)

    def reset(self) -> None:
        self._values.clear()


class Gauge(Counter):
    """A number that goes up and down; it is not begun again, for it tells what is so now."""

    type = "gauge"

    def set(self, number: float, *values: str) -> None:
        self._values[values] = number

    def clear(self) -> None:
        self._values.clear()

    def reset(self) -> None:
        return None


class Durations:
    """How long something took, in seconds."""

    def __init__(self, name: str, help_: str, bounds: tuple[float, ...], *labels: str) -> None:
        self.name, self._help, self._labels, self._bounds = name, help_, labels, bounds
        self._histograms: dict[tuple[str, ...], Histogram] = {}

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
        self._histograms.clear()


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Bounds of which each is twice the one before."""
    return tuple(round(first * 2**step, 6) for step in range(count))
