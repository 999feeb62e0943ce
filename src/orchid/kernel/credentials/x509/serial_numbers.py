"""Serial numbers of certificates: the time, then random bits."""

import datetime
from collections.abc import Callable
from typing import Final

Random = Callable[[int], bytes]

_TIME_BITS: Final = 42  # milliseconds, until the year 2109
_RANDOM_BITS: Final = 84


def new_serial(now: datetime.datetime, random: Random) -> int:
    """A serial number: the time, then 84 random bits; always positive, always 16 octets.

    It is the name of the certificate's record. Names in the order of time are stored in the same
    pages, and listed in the order of issue.
    """
    moment = int(now.timestamp() * 1000) & (1 << _TIME_BITS) - 1
    number = int.from_bytes(random((_RANDOM_BITS + 7) // 8), "big")
    number &= (1 << _RANDOM_BITS) - 1
    return ((1 << _TIME_BITS | moment) << _RANDOM_BITS) | number
