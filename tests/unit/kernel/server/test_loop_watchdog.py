"""The watchdog: it counts how late the loop is, and names what held it, without any value."""

import asyncio
import contextlib
import logging
import sys
from time import monotonic, sleep

import pytest

from orchid.kernel.server.loop_watchdog import LoopWatchdog, names_of

SECRET = "a-value-that-nobody-may-read"


def hold_the_loop(watchdog: LoopWatchdog, secret: str) -> None:
    """Do not return before the watchdog has noticed."""
    while not watchdog.found:
        sleep(0.001)
    assert secret


async def test_what_holds_the_loop_is_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the function and no argument of it; the histogram has the beat."""
    caplog.set_level(logging.INFO)
    watchdog = LoopWatchdog(monotonic)
    beating = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)
    hold_the_loop(watchdog, SECRET)
    async with asyncio.timeout(10):
        while not watchdog.held.value():  # noqa: ASYNC110 -- the watchdog sets no event
            await asyncio.sleep(0.01)
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating

    [line] = [record for record in caplog.records if record.message == "loop.held"]
    by: str = line.by  # type: ignore[attr-defined] -- an extra of the record
    assert by.startswith("tests.unit.kernel.server.test_loop_watchdog.hold_the_loop < ")
    assert SECRET not in str(line.__dict__)
    [sample] = watchdog.lag.family().samples
    assert not isinstance(sample.value, float)
    assert sum(sample.value.counts[5:]) >= 1


@pytest.mark.parametrize(("seconds", "level"), [(0.2, "INFO"), (0.3, "WARNING")])
def test_only_a_long_hold_is_a_warning(
    seconds: float, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A slow machine has many short ones; they are counted, and logged as information."""
    caplog.set_level(logging.INFO)
    watchdog = LoopWatchdog(lambda: seconds)
    watchdog._found = "orchid.x"
    watchdog._beat()

    [line] = caplog.records
    assert (line.message, line.levelname) == ("loop.held", level)
    assert watchdog.held.value() == 1


async def test_a_loop_with_time_is_not_accused(caplog: pytest.LogCaptureFixture) -> None:
    """Beats are counted, and what is asleep holds nothing."""
    watchdog = LoopWatchdog(monotonic)
    watchdog._due = sys.maxsize
    watchdog._beat()

    assert watchdog.held.value() == 0
    assert caplog.records == []


def test_a_busy_machine_is_counted_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of ours held the loop: the process was not scheduled."""
    caplog.set_level(logging.INFO)
    watchdog = LoopWatchdog(lambda: 10.0)
    watchdog._beat()

    assert watchdog.held.value() == 1
    assert caplog.records == []


def test_names_stop_at_the_machinery_below() -> None:
    """The frames below the callback are the same for all, and are omitted."""

    class Worker:
        def work(self) -> list[str]:
            return list(names_of(sys._getframe()))

    names = Worker().work()

    assert names[0].endswith("Worker.work")
    assert names[1].endswith("test_names_stop_at_the_machinery_below")
    assert list(names_of(None)) == []
