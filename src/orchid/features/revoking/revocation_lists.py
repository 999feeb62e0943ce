"""Revocation lists from the store, for the server to publish.

A list is assembled from its ConfigMaps when they change. Users may write ConfigMaps, so the list
counts only if its key has signed it, and if its number is neither below the one in the SigningKey
nor below that of the list served before: an earlier edition that is put back is not served.
Nothing is signed here (features/revoking/controllers/publish_revocation_lists.py does).
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.credentials.authorities.signed_list import signed_number
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.naming import Naming

log = logging.getLogger(__name__)


class SignedEdition(NamedTuple):
    """A list in DER, its number, and the uid of the key that signed it."""

    data: bytes
    number: int = 0
    key: str = ""  # empty: no key has a list of this name


class _Read(NamedTuple):
    """What was read from the ConfigMaps at a revision, with the keys of then."""

    revision: int
    keys: frozenset[str]
    edition: SignedEdition | None  # None: no key has signed it


class RevocationLists:
    """The newest list of each key of an authority."""

    def __init__(
        self,
        feed: Feed,
        naming: Naming,
        lists_of: Callable[[str], list[str]] = lambda name: [],
        keys_of: Callable[[str], list[SigningKey]] = lambda name: [],
    ) -> None:
        """`lists_of`: the names of all lists of a CertificateAuthority. `keys_of`: the keys whose
        list has a name; servers with different files may have several.
        """
        self._maps = feed.of(ConfigMap)
        self._lists_of = lists_of
        self._keys_of = keys_of
        self._home = naming.system_namespace
        self._read: dict[str, _Read] = {}
        self._newest: dict[str, SignedEdition] = {}

    def all_of(self, name: str) -> tuple[bytes, ...]:
        """The list of this name, in DER; for an authority, the lists of all its keys."""
        names = dict.fromkeys((name, *self._lists_of(name)))
        return tuple(found for one in names if (found := self.find(one)) is not None)

    def find(self, name: str) -> bytes | None:
        """The list of this name, in DER; None if there is none."""
        keys = self._keys_of(name)
        stored, newest = self._stored(name, keys), self._newest.get(name)
        if newest is None or newest.key not in {key.metadata.uid for key in keys}:
            newest = None  # that key is gone
        if stored is not None and (newest is None or stored.number >= newest.number):
            newest = self._newest[name] = stored
        least = max((key.status.revocation_list_number for key in keys), default=0)
        if newest is None or newest.number < least:
            return None
        return newest.data

    def _stored(self, name: str, keys: Sequence[SigningKey]) -> SignedEdition | None:
        """The list in the ConfigMaps; None if there is none, or no key has signed it."""
        head = self._maps.get(self._home, stored_list.head_name(name))
        if head is None:
            self._read.pop(name, None)
            return None
        read, uids = self._read.get(name), frozenset(key.metadata.uid for key in keys)
        if read is None or (read.revision, read.keys) != (head.revision, uids):
            whole = self._joined(name, head.object)
            if whole is None:
                return None  # its parts have not arrived yet
            read = self._read[name] = _Read(head.revision, uids, _verified(name, whole, keys))
        return read.edition

    def _joined(self, name: str, head: ConfigMap) -> bytes | None:
        try:
            number = int(head.data.get(stored_list.NUMBER, ""))
            count = int(head.data.get(stored_list.PARTS, ""))
        except ValueError:
            return None
        parts = [head]
        for index in range(1, count):
            entry = self._maps.get(self._home, stored_list.part_name(name, number, index))
            if entry is None:
                return None
            parts.append(entry.object)
        return b"".join(part.binary_data.get(stored_list.DATA, b"") for part in parts)


def _verified(name: str, data: bytes, keys: Sequence[SigningKey]) -> SignedEdition | None:
    """A list that one of the keys has signed. Without a key, as after an authority, any list."""
    if not keys:
        return SignedEdition(data)
    problem: Refusal | None = None
    for key in keys:
        try:
            number = signed_number(data, key.status.public_key)
        except Refusal as refusal:
            problem = refusal
        else:
            return SignedEdition(data, number, key.metadata.uid)
    log.warning("crl.not_served", extra={"list": name, "why": str(problem)})
    return None
