"""A test that hangs fails, whatever it does."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.time_limit import AGAIN, limited


def busy() -> None:
    while True:
        pass


async def _wait() -> None:
    await asyncio.Event().wait()


def waiting() -> None:
    asyncio.run(_wait())


async def _busy_beside() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def again() -> None:
        loop.call_soon(again)

    again()
    await ended.wait()


def busy_beside() -> None:
    asyncio.run(_busy_beside())


@pytest.mark.parametrize("hang", [busy, waiting, busy_beside])
def test_a_block_that_hangs_fails(hang: Callable[[], None]) -> None:
    """In a loop without an end, in an event loop that waits, and in one that works."""
    with (
        pytest.raises(pytest.fail.Exception, match=r"longer than 0\.01 seconds"),
        limited(0.01, again=0.01),
    ):
        hang()


def test_every_test_has_a_limit_and_gets_it_back() -> None:
    """A shorter limit within a test ends with its block."""
    seconds, again = signal.getitimer(signal.ITIMER_REAL)

    with limited(1000.0):
        pass

    assert (seconds > 0, again) == (True, AGAIN)
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= seconds
