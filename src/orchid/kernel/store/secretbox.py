"""The provider `secretbox`: XSalsa20 and Poly1305, for existing keys of that type.

The library is an optional dependency (`orchid-identity[secretbox]`). Unlike AES-GCM, it does not
bind a value to its key in the store: that is a limit of the format, and a reason to prefer
`aesgcm`.
"""

import os

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from orchid.kernel.store.encryption import NotOpened, Provider, key_id

KEY_BYTES = 32
_NONCE_BYTES = 24


class SecretBox:
    def __init__(self, mark: bytes, key: bytes) -> None:
        self.mark = mark
        self.key_id = key_id(mark, key)
        self._key = key

    def seal(self, value: bytes, store_key: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self.mark + nonce + bytes(crypto_secretbox(value, nonce, self._key))

    def open(self, sealed: bytes, store_key: str) -> bytes:
        start = len(self.mark) + _NONCE_BYTES
        try:
            nonce = sealed[len(self.mark) : start]
            return bytes(crypto_secretbox_open(sealed[start:], nonce, self._key))
        except (CryptoError, ValueError):
            raise NotOpened from None


_: type[Provider] = SecretBox
