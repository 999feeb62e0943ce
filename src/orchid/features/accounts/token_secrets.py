"""TokenSecrets: index of the Secrets that hold a token, by the key that signed it.

Tokens in Secrets never end, so a key cannot be Retired while a Secret holds one of its tokens. The
index follows the cache of Secrets; only those of the token type are decoded.
"""

import binascii
from collections.abc import Iterator
from typing import Final

import msgspec

from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.naming import Naming

TOKEN: Final = "token"  # noqa: S105 - the key in a Secret
LONGEST_HEADER: Final = 2048


class _Header(msgspec.Struct):
    kid: str = ""


_header = msgspec.json.Decoder(_Header).decode


class TokenSecrets:
    """The Secrets that hold tokens, by the id of the key that signed them."""

    def __init__(self, feed: Feed, naming: Naming) -> None:
        cache = feed.of(Secret)
        self._decode = cache.kind.decoder.stored
        self._prefix = len(cache.kind.key_prefix)
        self._type = naming.token_secret_type
        self._mark = msgspec.json.encode(self._type)
        self._by_key: Table[str, None] = {}
        self._index = KeyedIndex(cache, self._rows)

    def of_key(self, kid: str) -> list[str]:
        """Namespace and name of each Secret that holds a token of a key."""
        self._index.catch_up()
        return sorted(key[self._prefix :] for key in self._by_key.get(kid, ()))

    def _rows(self, _: str, entry: Entry[Secret]) -> Iterator[Row]:
        if self._mark not in entry.tail:
            return
        secret = self._decode(entry.data)
        kid = _kid(secret.data.get(TOKEN, b"")) if secret.type == self._type else ""
        if kid:
            yield self._by_key, kid, None


def _kid(token: bytes) -> str:
    """The key id in the header of a token; empty if there is none."""
    head = token.partition(b".")[0]
    if len(head) > LONGEST_HEADER:
        return ""
    try:
        return _header(b64url_decode(head)).kid
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        return ""
