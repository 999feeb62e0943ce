"""Random uids and name suffixes for new objects: the implementation of `Randomness`."""

import secrets
import uuid


class SystemRandomness:
    """Uids and suffixes from the random numbers of the operating system."""

    _ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words come out

    def uid(self) -> str:
        return str(uuid.uuid4())

    def suffix(self) -> str:
        return "".join(secrets.choice(self._ALPHABET) for _ in range(5))
