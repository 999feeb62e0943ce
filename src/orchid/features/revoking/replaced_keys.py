"""ReplacedKeys: keys of authorities that no longer sign, and until when certificates need them.

The index follows the cache of SigningKeys. Clients renew the certificates of such a key before it
can retire: see features/certificates/renewal_information.py.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from orchid.features.token_keys.kinds.signing_key import VERIFYING, SigningKey
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
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
        self._replaced: Table[str, Replacement] = {}
        self._index = KeyedIndex(cache, self._rows)

    def get(self, key_id: str) -> Replacement | None:
        self._index.catch_up()
        return next(iter(self._replaced.get(key_id, {}).values()), None)

    def _rows(self, _: str, entry: Entry[SigningKey]) -> Iterator[Row]:
        key = self._decode(entry.data)
        since, dependents = key.status.times.verifying, key.status.dependents
        if not key.spec.authority or key.state != VERIFYING or since is None:
            return
        if (end := key.spec.renew_by) is not None:  # in a hurry: all within an hour
            yield self._replaced, key.key_id, Replacement(max(since, end - HURRY), end)
        elif dependents is not None and dependents.end is not None and dependents.end > since:
            yield self._replaced, key.key_id, Replacement(since, dependents.end)
