"""The checks behind /livez and /readyz: the store is followed, all objects are loaded, readable."""

from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.server.pages.health import Check, Health
from orchid.kernel.store.encryption import EncryptedStore
from orchid.kernel.store.probing import StoreProbe


class Readiness:
    """The state of one server, as its health checks report it."""

    def __init__(
        self,
        feed: Feed,
        encryption: EncryptedStore,
        probe: StoreProbe | None,
        store_problem: Check,
    ) -> None:
        """`probe`: for a store that another program serves. `store_problem`: one more check."""
        self._feed = feed
        self._encryption = encryption
        self._probe = probe
        self._store_problem = store_problem
        self.stopping = False

    def health(self) -> Health:
        """The health endpoints with their checks."""
        ready = {
            "ping": None,
            "log": None,
            "etcd": self._store_check,
            "etcd-readiness": self._store_check,
            "informer-sync": self._feed_check,
        }
        # A restart does not help against an etcd that is out of reach.
        live_store = self._store_check if self._probe is None else self._restart_check
        live: dict[str, Check] = {"ping": None, "log": None, "etcd": live_store}
        return Health(
            {"healthz": live, "livez": live, "readyz": {**ready, "shutdown": self._stop_check}}
        )

    def _store_check(self) -> str | None:
        if not self._feed.following:
            return "the store is not followed"
        if self._probe is not None and self._probe.problem is not None:
            return self._probe.problem
        return None if self._store_problem is None else self._store_problem()

    def _restart_check(self) -> str | None:
        if self._probe is not None and self._probe.closed:
            return self._probe.problem
        return None if self._store_problem is None else self._store_problem()

    def _feed_check(self) -> str | None:
        if not self._feed.loaded:
            return "objects are still being loaded"
        if self._encryption.lacks_key(self._feed.is_unreadable):
            return (
                "objects are encrypted with a key that this server does not have: "
                "see --encryption-provider-config"
            )
        return None

    def _stop_check(self) -> str | None:
        return "process is shutting down" if self.stopping else None
