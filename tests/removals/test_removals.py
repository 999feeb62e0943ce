"""A few rounds of the removals; `make removals` runs ten thousand."""

from pathlib import Path

import pytest

from tests.removals.run import remove
from tests.removals.ways import WAYS

ROUNDS = 60
SEED = 14


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_taken_away_is_refused_in_the_next_request(tmp_path: Path, workers: int) -> None:
    """Whatever a right or a credential rests on, and however well its holder was known."""
    report = remove(tmp_path, rounds=ROUNDS, workers=workers, seed=SEED)

    assert report.allowed == []
    assert report.removed.keys() == WAYS.keys()
    assert report.reviewed > 0
