"""Where a store that is made anew, or restored, begins to count: decision 11.

The time in seconds since 2020 is ahead of what any store with less than one commit a second has
given out, so that a client which remembers a revision of another store is told that it is gone.
"""

from typing import Final

from orchid.store.interface import Revision

EPOCH: Final = 1_577_836_800  # 2020-01-01


def first_revision(now: float) -> Revision:
    """The first revision of a store made at this time, in seconds since 1970."""
    return max(1, int(now) - EPOCH)
