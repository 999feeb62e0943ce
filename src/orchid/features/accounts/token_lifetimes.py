"""The longest lifetime of all issued tokens, which determines the expiry of revocations.

A revocation of an account expires with the last token that it can affect. The current maximum
(`--service-account-max-token-expiration`) does not determine that: a token may have been issued
under a longer one, or without any. So the longest lifetime is stored before the first token with it
is returned, and it never becomes shorter. Start with `TokenLifetimes.note`.

It is stored in a ConfigMap of the system namespace, with the time of the first start that stored
it: an older account may have tokens of any lifetime. Lifetimes are rounded up, so that there are
few writes. Without the ConfigMap, or if it is immutable, the expiry is unknown.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.internal_writes import InternalObjects
from orchid.kernel.wire.errors import AlreadyExists, Conflict
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp

NAME: Final = "token-lifetimes"
LONGEST: Final = "longestSeconds"
SINCE: Final = "since"
HOUR: Final = 3600
MOST: Final = 1 << 33  # seconds; more than any token may request
UNKNOWN: Final = timedelta(days=365)  # Pods get tokens for a year
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TokenLifetimes:
    """The longest lifetime of tokens, shared by all servers of one store."""

    def __init__(
        self, feed: Feed, objects: Callable[[], InternalObjects], naming: Naming, clock: Clock
    ) -> None:
        self._feed = feed
        self._objects = objects
        self._namespace = naming.system_namespace
        self._clock = clock
        self._maps = feed.of(ConfigMap)
        self._key = self._maps.kind.key(self._namespace, NAME)
        self._read: Entry[ConfigMap] | None = None  # the source of the next two
        self._longest = 0
        self._since: datetime | None = None

    @property
    def longest(self) -> int:
        """The longest stored lifetime, in seconds; 0 if there is none."""
        entry = self._maps.entries.get(self._key)
        if entry is not self._read:
            self._load(entry)
        return self._longest

    def longest_until_now(self) -> timedelta:
        """The longest lifetime of any token that was issued; at least a year if not known."""
        longest = timedelta(seconds=self.longest)
        return longest if self._since == BEGINNING else max(longest, UNKNOWN)

    async def begin(self) -> None:
        """Store the start time once: from then on every lifetime is recorded."""
        if await self._objects().get(ConfigMap, self._namespace, NAME) is not None:
            return
        is_new = not self._feed.of(ServiceAccount).entries
        # Creation times have whole seconds: an account of this second may be older than now.
        next_second = whole_seconds(self._clock.now()) + timedelta(seconds=1)
        since = BEGINNING if is_new else next_second
        await self._objects().ensure(self._map({LONGEST: "0", SINCE: timestamp(since)}))

    async def note(self, seconds: int) -> None:
        """Store a lifetime if it is longer than any before; await it before issuing the token."""
        while seconds > self.longest:
            config_map = await self._objects().get(ConfigMap, self._namespace, NAME)
            try:
                if config_map is None:
                    await self.begin()
                elif seconds > self.longest:
                    # Other content in the ConfigMap could leave no room.
                    kept = {SINCE: config_map.data[SINCE]} if SINCE in config_map.data else {}
                    data = {**kept, LONGEST: str(rounded(seconds))}
                    await self._objects().update(replace(config_map, data=data, binary_data={}))
                    await self._feed.fresh()
            except (AlreadyExists, Conflict):
                continue  # another server was faster

    def end_of(self, issued_before: datetime, account_made: datetime | None) -> datetime | None:
        """Expiry of all tokens of an account that were issued up to then; None: unknown.

        `account_made`: the creation time of the account; None for tokens of any account.
        """
        longest = self.longest
        oldest = account_made or BEGINNING
        if self._since is None or oldest < self._since:
            return None
        return whole_seconds(issued_before) + timedelta(seconds=max(longest, HOUR))

    def _load(self, entry: Entry[ConfigMap] | None) -> None:
        self._read, self._longest, self._since = entry, 0, None
        if entry is None:
            return
        if entry.object.immutable:
            # nothing can be stored: the expiry is unknown, but tokens are issued
            self._longest = MOST
            return
        # With other content, lifetime and expiry are unknown.
        data = entry.object.data
        with contextlib.suppress(KeyError, ValueError):
            self._longest = min(int(data[LONGEST]), MOST)
        with contextlib.suppress(KeyError, ValueError, OverflowError):
            self._since = datetime.fromisoformat(data[SINCE]).astimezone(UTC)

    def _map(self, data: dict[str, str]) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name=NAME, namespace=self._namespace), data=data)


def rounded(seconds: int) -> int:
    """A lifetime, rounded up to 1, 2, 3, 4, 6, 8, 12, … hours: at most a third more."""
    hours, step = -(-seconds // HOUR), 1
    while hours > 4 * step:
        step *= 2
    return -(-hours // step) * step * HOUR
