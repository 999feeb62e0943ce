"""ReplacedKeys: keys of authorities that no longer sign, and until when certificates need them.

The index follows the cache of SigningKeys. Clients renew the certificates of such a key before it
can retire: see features/certificates/renewal_information.py.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from orchid.features.token_keys.kinds.signing_key import VERIFYING, SigningKey
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed

HURRY: Final = timedelta(hours=1)


class Replacement(NamedTuple):
    """When clients begin to renew certificates of a key, and when the last should have done so.

    From the time when another key began to sign, to the earliest at which this one can retire; or
    in the hour that an operator has chosen.
    """

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
        signing_key = self._decode(entry.data)
        since, dependents = signing_key.status.times.verifying, signing_key.status.dependents
        if not signing_key.spec.authority or signing_key.state != VERIFYING or since is None:
            return
        if (end := signing_key.spec.renew_by) is not None:  # in a hurry: all within an hour
            self._ids[key] = signing_key.key_id
            self._replaced[signing_key.key_id] = Replacement(max(since, end - HURRY), end)
        elif dependents is not None and dependents.end is not None and dependents.end > since:
            self._ids[key] = signing_key.key_id
            self._replaced[signing_key.key_id] = Replacement(since, dependents.end)
