"""Keys in blocks behave as one sorted list does, however they come and go."""

import random
from bisect import bisect_left
from itertools import pairwise

import pytest

from orchid.kernel.engine.cache import sorted_keys
from orchid.kernel.engine.cache.sorted_keys import SortedKeys


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that a few keys fill many of them, and groups of few."""
    monkeypatch.setattr(sorted_keys, "LARGEST_BLOCK", 4)
    monkeypatch.setattr(sorted_keys, "GROUP", 3)


def same(keys: SortedKeys, expected: list[str], start: str, end: str) -> bool:
    """Whether both hold the same keys in a span, and as many."""
    wanted = expected[bisect_left(expected, start) : bisect_left(expected, end)]
    return list(keys.between(start, end)) == wanted and keys.count(start, end) == len(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_come_and_go_stay_in_order(seed: int) -> None:
    """After every change, any span of the keys is that of a plain sorted list."""
    chance = random.Random(seed)
    known = {f"k{number:03d}" for number in chance.sample(range(200), chance.randrange(30))}
    keys = SortedKeys(known)
    for _ in range(300):
        key = f"k{chance.randrange(200):03d}"
        if key in known:
            keys.remove(key)
        else:
            keys.add([key])
        known ^= {key}
        start, end = (f"k{chance.randrange(210):03d}" for _ in range(2))
        assert same(keys, sorted(known), start, end)
        assert same(keys, sorted(known), "", "l")


def test_a_block_never_grows_beyond_its_size() -> None:
    """Writes are cheap because the list that a key is inserted into stays short."""
    keys = SortedKeys()
    keys.add(f"k{number * 7919 % 1000:03d}" for number in range(1000))

    blocks = keys._blocks

    assert max(map(len, blocks)) <= sorted_keys.LARGEST_BLOCK
    assert all(one[-1] < other[0] for one, other in pairwise(blocks))


def test_no_keys_at_all_are_a_span_of_nothing() -> None:
    """Empty at first, and empty again when the last key has gone."""
    keys = SortedKeys()
    assert list(keys.between("", "z")) == []
    keys.add(["a"])
    keys.remove("a")
    assert (list(keys.between("", "z")), keys.count("", "z")) == ([], 0)
