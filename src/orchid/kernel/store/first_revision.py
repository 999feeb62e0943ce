"""The first revision of a new or restored store: decision 11.

The time in seconds since 2020 is ahead of every store with less than one commit per second, so that
a client with a revision of another store gets an Expired error.
"""

from typing import Final

from orchid.kernel.store.interface import Revision

EPOCH: Final = 1_577_836_800  # 2020-01-01


def first_revision(now: float) -> Revision:
    """The first revision of a store created at this time, in seconds since 1970."""
    return max(1, int(now) - EPOCH)
