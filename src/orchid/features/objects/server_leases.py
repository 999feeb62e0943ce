"""ServerLeases: the live servers and their token keys, from the Leases in the cache."""

from collections.abc import Callable

from orchid.features.objects.kinds.lease import Lease, LiveServers, ServerKeys, server_prefix
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.naming import Naming


class ServerLeases:
    """Follows the Leases of all servers. After a start, each counts as live for its duration."""

    def __init__(self, feed: Feed, naming: Naming, monotonic: Callable[[], float]) -> None:
        cache = feed.of(Lease)
        self._servers = LiveServers(naming, monotonic)
        self._prefix = cache.kind.key(naming.system_namespace, server_prefix(naming))
        self._index = CacheIndex(cache, self._changed, self._servers.clear)

    def live(self) -> dict[str, ServerKeys]:
        self._index.catch_up()
        return self._servers.live()

    def _changed(self, key: str, entry: Entry[Lease] | None) -> None:
        if not key.startswith(self._prefix):
            return
        name = key.rpartition("/")[2]
        if entry is None:
            self._servers.ended(name)
        else:
            self._servers.renewed(name, str(entry.revision), entry.meta.annotations)
