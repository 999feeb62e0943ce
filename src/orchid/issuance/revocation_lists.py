"""Revocation lists from the store, for the server to publish.

A list is assembled from its ConfigMaps on first use, and cached until a newer one is stored.
Nothing is signed here (controllers/publish_revocation_lists.py does).
"""

from collections.abc import Callable

from orchid.credentials.x509 import stored_list
from orchid.engine.cache.feed import Feed
from orchid.kinds.config_map import ConfigMap
from orchid.wire.naming import Naming


class RevocationLists:
    """The newest list of each key of an authority."""

    def __init__(
        self, feed: Feed, names: Naming, lists_of: Callable[[str], list[str]] = lambda name: []
    ) -> None:
        """`lists_of`: the names of all lists of a CertificateAuthority."""
        self._maps = feed.of(ConfigMap)
        self._lists_of = lists_of
        self._home = names.system_namespace
        self._cache: dict[str, tuple[int, bytes]] = {}

    def all_of(self, name: str) -> tuple[bytes, ...]:
        """The list of this name, in DER; for an authority, the lists of all its keys."""
        names = dict.fromkeys((name, *self._lists_of(name)))
        return tuple(found for one in names if (found := self.find(one)) is not None)

    def find(self, authority: str) -> bytes | None:
        """The list of this name, in DER; None if there is none."""
        head = self._maps.get(self._home, stored_list.head_name(authority))
        if head is None:
            self._cache.pop(authority, None)
            return None
        cached = self._cache.get(authority)
        if cached is None or cached[0] != head.revision:
            whole = self._joined(authority, head.object)
            if whole is None:
                return cached[1] if cached else None  # its parts have not arrived yet
            cached = self._cache[authority] = (head.revision, whole)
        return cached[1]

    def _joined(self, authority: str, head: ConfigMap) -> bytes | None:
        try:
            number = int(head.data.get(stored_list.NUMBER, ""))
            count = int(head.data.get(stored_list.PARTS, ""))
        except ValueError:
            return None
        parts = [head]
        for index in range(1, count):
            found = self._maps.get(self._home, stored_list.part_name(authority, number, index))
            if found is None:
                return None
            parts.append(found.object)
        return b"".join(part.binary_data.get(stored_list.DATA, b"") for part in parts)
