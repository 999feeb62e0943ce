"""The token keys as metrics: their states, what depends on them, and how often they verify.

Every server shows all keys, from its cache; verifications are counted by each process.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    VERIFYING,
    SigningKey,
)
from orchid.kernel.base.metrics import Family, Joining, Sample
from orchid.kernel.engine.cache.kind_cache import KindCache

INFO: Final = "orchid_signing_key_info"
STATE_SECONDS: Final = "orchid_signing_key_state_seconds"
DEPENDENTS: Final = "orchid_key_dependents"
DEPENDENTS_END: Final = "orchid_key_dependents_end_seconds"
VERIFICATIONS: Final = "orchid_token_verifications_total"
OVERDUE: Final = "orchid_key_step_overdue_seconds"
ALLOWANCE: Final = timedelta(minutes=2)  # of the wait before Retired, for clocks that differ

Value = Callable[[SigningKey], float | None]


class _KeyGauge:
    """A gauge with a series for each key that has a value."""

    def __init__(self, cache: KindCache[SigningKey], name: str, text: str, value: Value) -> None:
        self._cache = cache
        self._name = name
        self._text = text
        self._value = value

    def family(self) -> Family:
        samples = []
        for entry in self._cache.scan():
            value = self._value(entry.object)
            if value is not None:
                samples.append(Sample((("key", entry.object.name),), value))
        return Family(self._name, "gauge", self._text, samples, Joining.MOST)

    def reset(self) -> None:
        """Do nothing: these are current values."""


class _KeyInfo:
    """One series for each key, with its state as a label."""

    def __init__(self, cache: KindCache[SigningKey]) -> None:
        self._cache = cache

    def family(self) -> Family:
        keys = (entry.object for entry in self._cache.scan())
        samples = [Sample((("key", key.name), ("state", key.state)), 1.0) for key in keys]
        return Family(INFO, "gauge", "Token keys by name and state.", samples, Joining.MOST)

    def reset(self) -> None:
        """Do nothing: these are current values."""


class _Verifications:
    """Accepted tokens by key; keys without an object share a series."""

    def __init__(self, cache: KindCache[SigningKey], counts: Mapping[str, int]) -> None:
        self._cache = cache
        self._counts = counts
        self._before: dict[str, int] = {}

    def family(self) -> Family:
        names = {entry.object.key_id: entry.object.name for entry in self._cache.scan()}
        by_name: dict[str, float] = {}
        for kid, count in self._counts.items():
            name = names.get(kid, "other")
            by_name[name] = by_name.get(name, 0.0) + count - self._before.get(kid, 0)
        samples = [Sample((("key", name),), value) for name, value in sorted(by_name.items())]
        return Family(VERIFICATIONS, "counter", "Accepted tokens by their key.", samples)

    def reset(self) -> None:
        self._before = dict(self._counts)


class KeyMetrics:
    """All metrics of token keys."""

    def __init__(
        self,
        cache: KindCache[SigningKey],
        verifications: Mapping[str, int],
        now: Callable[[], datetime],
        period: timedelta,
    ) -> None:
        """`verifications`: how many tokens of each key id this process has accepted. `period`: how
        long a key signs; zero: it is replaced by hand.
        """
        self._now = now
        self._period = period
        self.all = (
            _KeyInfo(cache),
            _KeyGauge(cache, STATE_SECONDS, "How long a key is in its state.", self._in_state),
            _KeyGauge(cache, DEPENDENTS, "Live recorded tokens or certificates of a key.", _live),
            _KeyGauge(cache, DEPENDENTS_END, "When the last of them ends, since the epoch.", _end),
            _KeyGauge(
                cache,
                OVERDUE,
                "For how long the next step of a token key is due and has not been possible.",
                self._overdue,
            ),
            _Verifications(cache, verifications),
        )

    def _in_state(self, key: SigningKey) -> float | None:
        times = key.status.times
        since = {
            PUBLISHED: times.published,
            ACTIVE: times.active,
            VERIFYING: times.verifying,
            RETIRED: times.retired,
        }.get(key.state)
        return (self._now() - since).total_seconds() if since else None

    def _overdue(self, key: SigningKey) -> float | None:
        """An Active key is due after its period, a Verifying one after the wait for its tokens."""
        times, due = key.status.times, None
        if key.is_file or key.group:
            return None
        if key.state == ACTIVE and times.active and self._period:
            due = times.active + self._period
        elif key.state == VERIFYING and key.back_until:
            due = key.back_until + ALLOWANCE
        return max((self._now() - due).total_seconds(), 0.0) if due else None


def _live(key: SigningKey) -> float | None:
    return float(key.status.dependents.live) if key.status.dependents else None


def _end(key: SigningKey) -> float | None:
    found = key.status.dependents
    ends = (found.end, found.unknown_until) if found else ()
    return max((end.timestamp() for end in ends if end), default=None)
