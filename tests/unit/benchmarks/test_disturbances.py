"""Which times of a load test are the machine's and not the server's: benchmarks/disturbances.py."""

import os
from pathlib import Path

import pytest

from benchmarks.disturbances import (
    Counts,
    Look,
    Moment,
    Watch,
    backlogs,
    moments_of,
    overlaps,
    watched,
)

USUAL = 2e-6


def looks_of(*took: float) -> list[Look]:
    """Looks, one each millisecond."""
    return [Look(each / 1000, how_long, 0.0) for each, how_long in enumerate(took)]


def test_a_machine_at_its_usual_speed_leaves_no_backlog() -> None:
    """Nothing is excused while nothing was lost."""
    counts = [Counts(0.0), Counts(0.005)]

    moments = moments_of(looks_of(*[USUAL] * 5), counts)

    assert [moment.speed for moment in moments] == [1.0] * 4
    assert backlogs(moments) == []


def test_a_slow_clock_leaves_a_backlog_until_its_work_is_made_up_for() -> None:
    """A clock that stands for 2 ms costs half a load 2 ms more, at the usual speed."""
    moments = [Moment(each / 1000, clock=float(each in {3, 4})) for each in range(10)]

    assert backlogs(moments, needed=0.5) == [(0.002, 0.006)]


def test_a_clock_that_is_slower_but_quick_enough_is_no_excuse() -> None:
    """What the load needs was there, so that a slow answer is the server's."""
    moments = [Moment(each / 1000, clock=0.4) for each in range(10)]

    assert backlogs(moments, needed=0.5) == []


def test_the_speed_of_the_clock_is_told_by_how_long_nothing_takes() -> None:
    """Four times as long as usual is a quarter of the speed."""
    looks = looks_of(USUAL, USUAL, 4 * USUAL, USUAL)

    moments = moments_of(looks, [Counts(0.0), Counts(0.004)])

    assert [moment.clock for moment in moments] == [0.0, 0.75, 0.0]


def test_a_late_look_means_that_the_core_was_gone() -> None:
    """Nothing goes before the one who looks, except for the host."""
    looks = [Look(0.0, USUAL, 0.0), Look(0.010, USUAL, 0.008), Look(0.012, USUAL, 0.0)]

    first, second = moments_of(looks, [Counts(0.0), Counts(0.012)])

    assert first.stolen == pytest.approx(0.8)
    assert second.stolen == 0.0


@pytest.mark.parametrize(
    ("after", "waited", "stolen"),
    [
        (Counts(0.010, waited=0.004), 0.4, 0.0),
        (Counts(0.010, waited=0.004, beside=0.004), 0.0, 0.0),
        (Counts(0.010, delayed=0.005, waited=0.001, beside=0.009), 0.5, 0.0),
        (Counts(0.010, stolen=0.010), 0.0, 1.0),
    ],
)
def test_waiting_for_ones_own_threads_is_no_excuse(
    after: Counts, waited: float, stolen: float
) -> None:
    """Only a core that another process or the host had counts as lost."""
    looks = [Look(0.001, USUAL, 0.0), Look(0.009, USUAL, 0.0)]

    (moment,) = moments_of(looks, [Counts(0.0), after])

    assert moment.waited == pytest.approx(waited)
    assert moment.stolen == pytest.approx(stolen)


def test_a_long_flush_of_the_disk_counts_from_its_beginning() -> None:
    """The kernel counts it when it has ended, and the disk was busy before."""
    counts = [Counts(each / 100, flushed=0.022 * (each >= 4)) for each in range(6)]
    looks = [Look(each / 100 - 0.005, USUAL, 0.0) for each in range(6)]

    moments = moments_of(looks, counts)

    assert [moment.disk for moment in moments] == [0.0, 1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((0.0, 0.9), False),
        ((0.0, 1.0), True),
        ((1.5, 1.6), True),
        ((2.1, 2.9), False),
        ((0.0, 9.0), True),
        ((4.1, 5.0), False),
    ],
)
def test_a_request_is_disturbed_by_a_moment_in_common(
    span: tuple[float, float], expected: bool
) -> None:
    """From when it was due to its answer, whatever else happened before and after."""
    assert overlaps(span, [(1.0, 2.0), (3.0, 4.0)]) is expected


def test_a_running_process_is_watched(tmp_path: Path) -> None:
    """The kernel's files are read as they are: this process runs, and time goes on."""
    core = min(os.sched_getaffinity(0))

    with watched(os.getpid(), core, tmp_path) as watch:
        total = sum(range(3_000_000))

    moments = watch.moments()
    assert total
    assert watch.busy > 0
    assert [moment.at for moment in moments] == sorted(moment.at for moment in moments)
    assert all(0 <= moment.stolen <= 1 and 0 <= moment.waited <= 1 for moment in moments)


def test_a_core_that_is_gone_and_a_disk_that_flushes_stand_still() -> None:
    """Whichever takes longest: nobody can answer meanwhile."""
    watch = Watch()
    watch.looks = [Look(0.0, USUAL, 0.0), Look(0.1, USUAL, 0.004)]
    watch.counts = [Counts(0.0), Counts(0.1)]
    assert watch.stood_still == 0.004

    watch.counts = [Counts(0.0), Counts(0.1, flushed=0.02), Counts(0.2, flushed=0.03)]
    assert watch.stood_still == 0.02
