"""ClusterCalls: number of calls of the API server of each cluster, by result.

Counted in memory, for metrics and for the status of the Clusters
(features/clusters/cluster_status.py).
"""

import asyncio
from typing import Final

import msgspec

from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Counter
from orchid.kernel.wire.meta import ObjectMeta

NO_OPINION, DENIED, MALFORMED, UNKNOWN = "no-opinion", "denied", "malformed", "unknown-cluster"
REVIEWS: Final = "orchid_cluster_reviews_total"

Named = tuple[str, str]  # the name and the uid of a cluster


class Calls(msgspec.Struct):
    """Calls of one cluster that are not in its status yet."""

    last: float = 0.0  # when the last one came, on the monotonic clock
    answered: int = 0
    denied: int = 0
    malformed: int = 0


class ClusterCalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unwritten: dict[Named, Calls] = {}
        self.called = asyncio.Event()  # since `take`
        text = "Calls of the webhook of clusters, by cluster and result."
        self.results = Counter(REVIEWS, text, "cluster", "result")

    def answered(self, cluster: ObjectMeta, arrived: float, *, denied: bool) -> None:
        """Count a review that came at a time of the monotonic clock."""
        calls = self._calls_of(cluster)
        calls.answered += 1
        calls.denied += denied
        calls.last = arrived
        self.results.count(cluster.name, DENIED if denied else NO_OPINION)

    def malformed(self, cluster: ObjectMeta) -> None:
        calls = self._calls_of(cluster)
        calls.malformed += 1
        calls.last = self._clock.monotonic()
        self.results.count(cluster.name, MALFORMED)

    def unknown(self) -> None:
        """A call for a cluster that does not exist; callers choose its name, so it is no label."""
        self.results.count("", UNKNOWN)

    def take(self) -> dict[Named, Calls]:
        """The calls of each cluster since the last time."""
        taken, self._unwritten = self._unwritten, {}
        self.called.clear()
        return taken

    def _calls_of(self, cluster: ObjectMeta) -> Calls:
        named = cluster.name, cluster.uid
        calls = self._unwritten.get(named)
        if calls is None:
            self.called.set()
            calls = self._unwritten[named] = Calls()
        return calls
