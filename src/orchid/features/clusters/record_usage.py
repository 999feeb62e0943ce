"""ClusterRecordUsage: how many records of certificates each cluster has, and their bytes.

It follows the cache of IssuedCertificate (kernel/access/cache_index.py), as new as the feed. The
name of a record says its cluster; of the records of clusters, only the uid of the cluster is
decoded. Records of an earlier cluster of a name do not count. Those without a uid, which an earlier
version stored, count for the cluster of that name.
"""

import msgspec

from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.meta import ObjectMeta


class _Spec(msgspec.Struct):
    cluster_uid: str = msgspec.field(default="", name="clusterUID")


class _Record(msgspec.Struct):
    spec: _Spec


_read = msgspec.json.Decoder(_Record).decode


class _Usage(msgspec.Struct):
    sizes: dict[str, int] = {}  # by key
    total: int = 0


class ClusterRecordUsage:
    def __init__(self, feed: Feed) -> None:
        records = feed.of(IssuedCertificate)
        self._prefix = records.kind.key_prefix
        self._cleared()
        self._index = CacheIndex(records, self._changed, self._cleared)

    def __call__(self, cluster: ObjectMeta) -> tuple[int, int]:
        """The number of records of a cluster, and their bytes as stored."""
        self._index.catch_up()
        named = (cluster.name, cluster.uid), (cluster.name, "")
        usages = [self._usages.get(usage, _Usage()) for usage in named]
        return sum(len(usage.sizes) for usage in usages), sum(usage.total for usage in usages)

    def _cleared(self) -> None:
        self._usages: dict[tuple[str, str], _Usage] = {}  # by name and uid of the cluster
        self._clusters: dict[str, tuple[str, str]] = {}  # by key

    def _changed(self, key: str, entry: Entry[IssuedCertificate] | None) -> None:
        cluster, dot, _ = key.removeprefix(self._prefix).rpartition(".")
        if not dot:
            return  # of our own signers: its name is a number
        before = self._clusters.pop(key, None)
        if before is not None:
            self._remove(key, before)
        if entry is None:
            return
        named = self._clusters[key] = cluster, _read(entry.data).spec.cluster_uid
        usage = self._usages.setdefault(named, _Usage())
        usage.sizes[key] = len(entry.tail)
        usage.total += len(entry.tail)

    def _remove(self, key: str, named: tuple[str, str]) -> None:
        usage = self._usages[named]
        usage.total -= usage.sizes.pop(key)
        if not usage.sizes:
            del self._usages[named]
