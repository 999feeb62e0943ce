"""Metrics of token keys: since when a step is due."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.token_keys_metrics import OVERDUE, KeyMetrics
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.signing_key_status import SigningKeyStatus, SigningKeyTimes

NOW = datetime(2026, 11, 18, tzinfo=UTC)
PERIOD = timedelta(days=90)


class Cache:
    """The keys of a test."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def scan(self) -> list[Any]:
        return [type("Entry", (), {"object": self._key})]


def overdue(state: str, days: float, *, period: timedelta = PERIOD, source: str = "Made") -> Any:
    """The value of the gauge for a key that is in a state for so long; None if it has none."""
    times = SigningKeyTimes(**{state.lower(): NOW - timedelta(days=days)})
    status = SigningKeyStatus(times=times, publish_time="24h", source=source)
    key = SigningKey(
        metadata=ObjectMeta(name="tokens-1"), spec=SigningKeySpec(state=state), status=status
    )
    metrics = KeyMetrics(cast(KindCache[SigningKey], Cache(key)), {}, lambda: NOW, period)
    (family,) = [one.family() for one in metrics.all if one.family().name == OVERDUE]
    return family.samples[0].value if family.samples else None


@pytest.mark.parametrize(
    ("state", "days", "seconds"),
    [
        ("Active", 89, 0.0),
        ("Active", 92, 2 * 86_400.0),
        ("Verifying", 1, 0.0),
        ("Verifying", 3, 2 * 86_400.0 - 120),
        ("Published", 900, None),
        ("Retired", 900, None),
    ],
)
def test_a_step_is_overdue_after_the_period_or_the_wait(
    state: str, days: int, seconds: float | None
) -> None:
    """A signer after its period, a replaced key after the publish time and two minutes."""
    assert overdue(state, days) == seconds


def test_keys_by_hand_and_of_files_are_never_overdue() -> None:
    """Nothing is due by itself."""
    assert overdue("Active", 900, period=timedelta()) is None
    assert overdue("Active", 900, source="File") is None
