"""Random uids and name suffixes for new objects: the implementation of `Randomness`."""

import os
import secrets

UIDS_AT_ONCE = 64


class SystemRandomness:
    """Uids and suffixes from the random numbers of the operating system."""

    _ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words come out

    def __init__(self) -> None:
        self._uids: list[str] = []

    def uid(self) -> str:
        # In batches: a call to the kernel takes longer than the rest (docs/decisions/0026).
        if not self._uids:
            digits = os.urandom(16 * UIDS_AT_ONCE).hex()
            self._uids = [_uid(digits[at : at + 32]) for at in range(0, len(digits), 32)]
        return self._uids.pop()

    def suffix(self) -> str:
        return "".join(secrets.choice(self._ALPHABET) for _ in range(5))


def _uid(digits: str) -> str:
    """The text form of a version 4 UUID (RFC 9562, 5.4), faster than the uuid module."""
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
