"""ReplacedKeys: keys of authorities that no longer sign, and until when certificates need them.

The index follows the cache of SigningKeys. Clients renew the certificates of such a key before it
can retire: see renewal_information.py.
"""

from datetime import datetime
from typing import NamedTuple

from orchid.access.cache_index import CacheIndex
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.kinds.signing_key import VERIFYING, SigningKey


class Replacement(NamedTuple):
    """When another key began to sign, and the earliest time at which this one can retire."""

    since: datetime
    until: datetime


class ReplacedKeys:
    """Replaced keys by their identifier, in hex."""

    def __init__(self, feed: Feed) -> None:
        cache = feed.of(SigningKey)
        self._decode = cache.kind.decoder.stored
        self._cleared()
        self._index = CacheIndex(cache, self._changed, self._cleared)

    def get(self, key_id: str) -> Replacement | None:
        self._index.catch_up()
        return self._replaced.get(key_id)

    def _cleared(self) -> None:
        self._replaced: dict[str, Replacement] = {}
        self._ids: dict[str, str] = {}  # by the key of the object in the cache

    def _changed(self, key: str, entry: Entry[SigningKey] | None) -> None:
        self._replaced.pop(self._ids.pop(key, ""), None)
        if entry is None:
            return
        found = self._decode(entry.data)
        since, dependents = found.status.times.verifying, found.status.dependents
        if not found.spec.authority or found.state != VERIFYING or since is None:
            return
        if dependents is not None and dependents.end is not None and dependents.end > since:
            self._ids[key] = found.key_id
            self._replaced[found.key_id] = Replacement(since, dependents.end)
