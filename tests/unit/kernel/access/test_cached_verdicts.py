"""A cached verdict is the verdict that a new server would give, whatever happened in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernel.access.verdicts import MOST_STEPS, compare


@given(st.binary(min_size=1, max_size=MOST_STEPS))
@settings(max_examples=40, deadline=None)
def test_cached_verdicts_are_those_of_a_new_server(steps: bytes) -> None:
    """Tokens, ours and others' and certificates: expired, revoked, other audiences, clock steps."""
    compare(steps)


@pytest.mark.parametrize("step", range(70))
def test_one_change_is_seen_by_what_is_cached(step: int) -> None:
    """Each change by itself, between two uses of every credential, and as time goes by."""
    half_a_minute, a_quarter = 7, 35
    compare(bytes([step, half_a_minute, half_a_minute, a_quarter]))
