"""Nonces: each request of a client is accepted once (RFC 8555, section 6.5).

A nonce is a time, random bytes and an HMAC, so that every server accepts it without a shared list.
Each process remembers the nonces that it accepted, in two sets of limited size. When the older
set is dropped, every nonce as old as its newest entry is refused: within one process no nonce is
accepted twice, while its clock does not step. After a step, all are refused for five minutes at
most. A second process can accept it once more; every write is therefore
idempotent, with names that are derived from the nonce.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from orchid.features.acme.protocol.problems import AcmeProblem
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.keys import b64url_decode, b64url_encode

TIME_BYTES, RANDOM_BYTES, MAC_BYTES = 8, 16, 16
SIZE: Final = TIME_BYTES + RANDOM_BYTES + MAC_BYTES
LENGTH: Final = -(-SIZE * 4 // 3)  # characters
NANOSECONDS: Final = 1_000_000_000
LIFETIME: Final = 3600 * NANOSECONDS
SKEW: Final = 300 * NANOSECONDS  # by which the clock of another server may be ahead
MOST_USED: Final = 65_536  # remembered by one process

Key = Callable[[], bytes | None]


class Nonces:
    """The nonces of one server."""

    def __init__(self, key: Key, clock: Clock, most_used: int = MOST_USED) -> None:
        self._key = key
        self._clock = clock
        self._most = most_used // 2  # of one generation
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._refused_until = 0

    def issue(self) -> str | None:
        """A new nonce; None while the servers have no common key."""
        key = self._key()
        if not key:
            return None
        # The clock of this program changes once in a millisecond: the random bytes do the rest.
        body = self._now().to_bytes(TIME_BYTES, "big") + secrets.token_bytes(RANDOM_BYTES)
        return b64url_encode(body + _mac(key, body)).decode()

    def check(self, nonce: str) -> int:
        """The time of a nonce that this server or another one issued; raises AcmeProblem."""
        key, data = self._key(), _decoded(nonce)
        if not key or data is None:
            raise bad_nonce()
        body, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        moment = int.from_bytes(body[:TIME_BYTES], "big")
        now = self._now()
        age = now - moment
        # After a clock that was ahead: no nonce of a later time is accepted now.
        self._refused_until = min(self._refused_until, now + SKEW)
        if not hmac.compare_digest(_mac(key, body), mac) or not -SKEW <= age <= LIFETIME:
            raise bad_nonce()
        if moment <= self._refused_until or data in self._new or data in self._old:
            raise bad_nonce()
        return moment

    def use(self, nonce: str) -> int:
        """Accept a nonce, once; raises AcmeProblem. For requests whose signature is verified."""
        moment = self.check(nonce)
        if len(self._new) >= self._most:
            newest = max(self._old.values(), default=0)
            self._refused_until = max(self._refused_until, newest)
            self._old, self._new = self._new, {}
        data = _decoded(nonce)
        assert data is not None
        self._new[data] = moment
        return moment

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * NANOSECONDS)


def bad_nonce() -> AcmeProblem:
    return AcmeProblem(
        "badNonce", "the nonce is unknown, too old or used: try again with a new one"
    )


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).digest()[:MAC_BYTES]


def _decoded(nonce: str) -> bytes | None:
    if len(nonce) != LENGTH or not nonce.isascii():
        return None
    try:
        return b64url_decode(nonce.encode("ascii"))
    except ValueError:
        return None
