"""The time limit of a test: one that hangs fails by itself, and the others go on.

The limit of faulthandler is longer, and ends the whole process: it is for a test that does not even
run Python code.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

import pytest

SECONDS: Final = 150.0  # less than faulthandler_timeout; far more than any test needs
AGAIN: Final = 1.0  # the first failure may have ended another task of an event loop


@contextlib.contextmanager
def limited(seconds: float = SECONDS, again: float = AGAIN) -> Iterator[None]:
    """Fail the test if the block takes longer; it runs in the main thread."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"the test took longer than {seconds:g} seconds")

    handler = signal.signal(signal.SIGALRM, fail)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)
