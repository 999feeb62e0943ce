"""One timer for all deadlines: who is ended, when, and what is left behind."""

import asyncio
import time
from collections.abc import Callable

from orchid.kernel.http.deadlines import ACCURACY, Deadlines
from orchid.kernel.http.messages import HttpRequest, Response
from tests.unit.kernel.http.listening import serving, until

SOON, LONG = 0.001, 3600.0


class Waiting:
    """Writes down that it was ended."""

    def __init__(self, ended: list["Waiting"], end: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        self._end = end

    def expire(self) -> None:
        self._ended.append(self)
        self._end()


class Clock:
    """Shows the time it is set to, and counts who looks at it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.seconds


def timers() -> list[asyncio.TimerHandle]:
    """The scheduled calls of the event loop."""
    loop = asyncio.get_running_loop()
    known = loop._scheduled  # type: ignore[attr-defined]  # there is no public API
    return [timer for timer in known if not timer.cancelled()]


async def test_who_is_not_done_in_time_is_ended() -> None:
    """And forgotten."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    one = Waiting(ended)

    deadlines.add(one, SOON)
    await until(lambda: bool(ended))

    assert ended == [one]
    assert len(deadlines) == 0


async def test_nobody_is_ended_early() -> None:
    """A timer that fires too soon is set again."""
    clock, ended = Clock(), list[Waiting]()
    deadlines, one = Deadlines(clock.monotonic), Waiting(ended)
    deadlines.add(one, SOON)
    await until(lambda: clock.looks == 3)
    early = list(ended)

    clock.seconds = SOON
    await until(lambda: bool(ended))

    assert early == []
    assert ended == [one]


async def test_who_is_done_in_time_is_not_ended() -> None:
    """The timer that was set for them finds only others."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    done, late = Waiting(ended), Waiting(ended)
    deadlines.add(done, SOON)
    deadlines.add(late, SOON)

    deadlines.pop(done)
    await until(lambda: bool(ended))

    assert ended == [late]


async def test_a_shorter_time_is_not_kept_waiting_by_a_longer_one() -> None:
    """In whichever order they come; the others wait on."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    long, short, later = Waiting(ended), Waiting(ended), Waiting(ended)
    deadlines.add(long, LONG)
    deadlines.add(short, SOON)
    deadlines.add(later, 0.05)

    await until(lambda: len(ended) == 2)

    assert ended == [short, later]
    assert len(deadlines) == 1
    deadlines.close()


async def test_short_times_that_keep_coming_do_not_put_off_the_end_of_others() -> None:
    """The timer is set earlier for them, never later."""
    clock, ended = Clock(), list[Waiting]()
    deadlines = Deadlines(clock.monotonic)
    deadlines.add(Waiting(ended), SOON)
    first = timers()

    clock.seconds = ACCURACY / 2
    deadlines.add(Waiting(ended), SOON)

    assert timers() == first
    deadlines.close()


async def test_infinite_time_is_possible() -> None:
    """No event loop knows such a timer."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    deadlines.add(Waiting(ended), float("inf"))
    short = Waiting(ended)

    deadlines.add(short, SOON)
    await until(lambda: bool(ended))

    assert ended == [short]
    deadlines.close()


async def test_one_that_fails_does_not_stop_the_others() -> None:
    """Each is ended by itself."""
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()

    def fail() -> None:
        raise ValueError

    failing, behind = Waiting(ended, fail), Waiting(ended)
    deadlines.add(failing, SOON)
    deadlines.add(behind, SOON)
    await until(lambda: len(ended) == 2)

    assert ended == [failing, behind]
    assert len(failures) == 1


async def test_many_who_are_done_share_one_timer_and_leave_nothing() -> None:
    """However many came and went, and whatever their times were."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    before = len(timers())

    for number in range(1000):
        one = Waiting(ended)
        deadlines.add(one, LONG + number % 7)
        deadlines.pop(one)

    assert len(deadlines) == 0
    assert len(timers()) == before + 1
    deadlines.close()
    assert len(timers()) == before
    assert not ended


async def test_a_timer_that_finds_nobody_is_not_set_again() -> None:
    """A server without requests has nothing to wake up for."""
    deadlines, ended = Deadlines(time.monotonic), list[Waiting]()
    before, done = len(timers()), Waiting(ended)
    deadlines.add(done, SOON)
    deadlines.pop(done)

    await until(lambda: len(timers()) <= before + 1)  # that of `until` itself

    assert len(deadlines) == 0


async def test_a_stopped_server_leaves_no_timer() -> None:
    """Neither of requests that were answered, nor of one that never comes to its end."""
    before, stuck = len(timers()), asyncio.Event()

    async def handler(request: HttpRequest) -> Response:
        await (asyncio.sleep(0) if request.path == "/fine" else stuck.wait())
        return Response(200)

    async with serving(handler) as running:
        client, other = await running.connect(), await running.connect()
        client.get("/fine")
        answer = await client.answer()
        other.get("/stuck")
        await until(lambda: running.listener.requests == 2)

    assert answer.status == 200
    assert len(timers()) == before
