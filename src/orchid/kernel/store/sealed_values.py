"""SealedValues: an index of the current values of a store by the key that sealed each.

The encrypted store updates it with every value that it reads or watches, so the counts follow from
the stored values alone: after a restart, and whichever server wrote them.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple


class Locked(NamedTuple):
    """A value that no key of this server can open."""

    prefix: str
    mark: bytes  # of the key that was tried; empty: no key has its mark
    key: str  # the name of its key


class SealedValues:
    """The store keys of all current values, by prefix and by the id of the sealing key."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, set[str]]] = {}
        self.locked: dict[str, Locked] = {}

    def put(self, prefix: str, sealed_by: str, key: str) -> None:
        """Record the sealing key of a value."""
        by_id = self._values.setdefault(prefix, {})
        for other, keys in by_id.items():
            if other != sealed_by:
                keys.discard(key)
        by_id.setdefault(sealed_by, set()).add(key)
        self.locked.pop(key, None)

    def remove(self, prefix: str, key: str) -> None:
        for keys in self._values.get(prefix, {}).values():
            keys.discard(key)
        self.locked.pop(key, None)

    def count(self, prefix: str, sealed_by: str) -> int:
        return len(self._values.get(prefix, {}).get(sealed_by, ()))

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """Prefix, id of the sealing key, and number of values; also zeros of earlier keys."""
        for prefix, by_id in self._values.items():
            for sealed_by, keys in by_id.items():
                yield prefix, sealed_by, len(keys)

    def not_by(self, prefix: str, sealed_by: str, limit: int) -> list[str]:
        """Some values that another key sealed."""
        by_id = self._values.get(prefix, {})
        others = (keys for other, keys in by_id.items() if other != sealed_by)
        return list(islice(chain.from_iterable(others), limit))

    def is_by_another(self, prefix: str, sealed_by: str, key: str) -> bool:
        """Whether the value is known, and was sealed by another key."""
        by_id = self._values.get(prefix, {})
        return any(key in keys for other, keys in by_id.items() if other != sealed_by)
