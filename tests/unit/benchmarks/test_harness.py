"""The statistics of the benchmarks, and the load script for wrk."""

from benchmarks.harness import Ratio, selected
from benchmarks.load import Job


def test_the_median_of_all_turns_counts_and_its_interval_contains_it() -> None:
    """One turn during which the machine stood still does not change the result."""
    ratio = Ratio.of([2.0, 2.1, 1.9, 2.0, 40.0])

    assert ratio.median == 2.0
    assert ratio.low <= ratio.median <= ratio.high


def test_many_turns_narrow_the_interval() -> None:
    """The interval of the sign test leaves out the ends of many turns."""
    ratio = Ratio.of([float(number) for number in range(101)])

    assert (ratio.low, ratio.median, ratio.high) == (40.0, 50.0, 60.0)


def test_rows_are_selected_by_their_beginnings() -> None:
    """An empty selection means all rows."""
    assert selected("tokenreview-varied", "")
    assert selected("tokenreview-varied", "get,tokenreview")
    assert not selected("create", "get,tokenreview")


def test_a_varied_load_has_a_header_that_differs_in_each_request() -> None:
    """Only then do the heads of two requests differ."""
    job = Job("GET", ["/livez"], [])

    assert "X-Request-Id" not in job.script()
    assert (
        'wrk.headers["X-Request-Id"] = wrk.salt .. "-" .. n'
        in Job("GET", ["/livez"], [], varied=True).script()
    )
