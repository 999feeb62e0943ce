"""What the API servers of two clusters answer."""

from tests.adversary.clusters import FRIEND, HOSTILE, STRANGER, WATCHED
from tests.adversary.drawing.base import Drawing
from tests.adversary.operations import Operation
from tests.adversary.rights import USERS


class ClusterServers(Drawing):
    """The stranger answers anything; both issue certificates."""

    def _cluster_says(self) -> Operation | None:
        return self._operation(
            STRANGER,
            "cluster-says",
            listed=self._chance.choice(list(HOSTILE)),
            watched=self._chance.choice(list(WATCHED)),
            times=self._chance.randint(0, 9),
        )

    def _cluster_issues(self) -> Operation | None:
        """For a request of any name, also for one that an ACME order needs."""
        orders = list(self._attack.orders)
        called = f"laptop-{self._number}"
        if orders and self._chance.random() < 0.5:
            called = f"@request-of-order:{self._chance.choice(orders[-4:])}"
        cluster, user = self._chance.choice((STRANGER, FRIEND)), self._chance.choice(USERS)
        return self._operation(cluster, "cluster-issues", user=user, called=called)
