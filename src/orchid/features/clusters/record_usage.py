"""ClusterRecordUsage: how many records of certificates each cluster has, and their bytes.

It follows the cache of IssuedCertificate (kernel/access/cache_index.py), as new as the feed, and
decodes
nothing: the name of a record says its cluster.
"""

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed


class ClusterRecordUsage:
    def __init__(self, feed: Feed) -> None:
        records = feed.of(IssuedCertificate)
        self._prefix = records.kind.key_prefix
        self._cleared()
        self._index = CacheIndex(records, self._changed, self._cleared)

    def __call__(self, cluster: str) -> tuple[int, int]:
        """The number of records of a cluster, and their bytes as stored."""
        self._index.catch_up()
        return len(self._sizes.get(cluster, ())), self._bytes.get(cluster, 0)

    def _cleared(self) -> None:
        self._sizes: dict[str, dict[str, int]] = {}  # by cluster and key
        self._bytes: dict[str, int] = {}

    def _changed(self, key: str, entry: Entry[IssuedCertificate] | None) -> None:
        cluster, dot, _ = key.removeprefix(self._prefix).rpartition(".")
        if not dot:
            return  # of our own signers: its name is a number
        sizes = self._sizes.setdefault(cluster, {})
        before = sizes.pop(key, 0)
        if entry is not None:
            sizes[key] = len(entry.tail)
        self._bytes[cluster] = self._bytes.get(cluster, 0) + sizes.get(key, 0) - before
        if not sizes:
            del self._sizes[cluster], self._bytes[cluster]
