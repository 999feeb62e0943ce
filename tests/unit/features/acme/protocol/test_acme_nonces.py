"""Nonces: accepted once, for an hour, on every server."""

from datetime import timedelta

import pytest

from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.acme.protocol.problems import AcmeProblem
from tests.unit.features.beside import MovingClock

KEY = b"k" * 32


def is_good(nonces: Nonces, nonce: str) -> bool:
    try:
        nonces.use(nonce)
    except AcmeProblem:
        return False
    return True


def issued(nonces: Nonces) -> str:
    nonce = nonces.issue()
    assert nonce is not None
    return nonce


def test_a_nonce_is_accepted_once() -> None:
    nonces = Nonces(lambda: KEY, MovingClock())
    nonce = issued(nonces)

    assert is_good(nonces, nonce)
    assert not is_good(nonces, nonce)


def test_another_server_with_the_same_key_accepts_it() -> None:
    one, other = Nonces(lambda: KEY, MovingClock()), Nonces(lambda: KEY, MovingClock())
    stranger = Nonces(lambda: b"x" * 32, MovingClock())
    nonce = issued(one)

    assert not is_good(stranger, nonce)
    assert is_good(other, nonce)


def test_a_nonce_ends_after_an_hour() -> None:
    """And one from a clock that is far ahead is refused."""
    clock = MovingClock()
    nonces = Nonces(lambda: KEY, clock)
    old = issued(nonces)
    clock.ahead = timedelta(minutes=61)
    new = issued(nonces)

    assert not is_good(nonces, old)
    clock.ahead = timedelta()
    assert not is_good(nonces, new)


@pytest.mark.parametrize("nonce", ["", "x", "A" * 54, "ü" * 54, "A" * 53 + "=", "A" * 10_000])
def test_anything_else_is_no_nonce(nonce: str) -> None:
    assert not is_good(Nonces(lambda: KEY, MovingClock()), nonce)


def test_without_a_key_there_are_no_nonces() -> None:
    good = issued(Nonces(lambda: KEY, MovingClock()))
    nonces = Nonces(lambda: None, MovingClock())

    assert nonces.issue() is None
    assert not is_good(nonces, good)


def test_a_full_memory_refuses_old_nonces_and_accepts_none_twice() -> None:
    """However many are used: the memory is limited, and a dropped nonce is refused."""
    clock = MovingClock()
    nonces = Nonces(lambda: KEY, clock, most_used=8)
    used = []
    for second in range(40):
        clock.ahead = timedelta(seconds=second)
        used.append(issued(nonces))
        assert is_good(nonces, used[-1])

    assert not any(is_good(nonces, nonce) for nonce in used)
    assert len(nonces._new) + len(nonces._old) <= 8
    assert is_good(nonces, issued(nonces))
