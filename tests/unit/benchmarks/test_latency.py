"""Which parts of a measurement count, and what is said of the others: benchmarks/latency.py."""

from itertools import repeat

import pytest

from benchmarks import load
from benchmarks.disturbances import Moment
from benchmarks.latency import MOST_PARTS, Part, Wanted, enough, left_out, print_row
from benchmarks.open_load import Taken

READS = Wanted("get", load.get, 5.0, parts=2)
COMPACTS = Wanted("create", load.create_account, 15.0, compacts=True, parts=2)


def part(*took: float, stood_still: float = 0.0, compacted: bool = False) -> Part:
    """What came of some requests on a machine at its usual speed."""
    taken = Taken(due=[0.5] * len(took), answered=list(took), late=[0.1] * len(took))
    moments = [Moment(0.0), Moment(1.0)]
    return Part(100.0, 50.0, taken, 0.5, moments, [], stood_still, compacted)


def test_a_part_during_which_a_core_was_gone_is_asked_again() -> None:
    """No server can answer then, so it says nothing about ours."""
    calm, disturbed = part(1.0), part(700.0, stood_still=690.0)

    taken = enough(READS, iter([calm, disturbed, disturbed, calm, calm]))

    assert taken == [calm, disturbed, disturbed, calm]


def test_a_part_is_not_left_out_because_its_answers_were_late() -> None:
    """What the machine did not do is the server's."""
    slow = part(900.0, stood_still=4.9)

    assert enough(READS, repeat(slow)) == [slow, slow]


def test_parts_without_compaction_do_not_count_where_it_is_to_be_seen() -> None:
    """Otherwise the row would show what the one before it shows."""
    idle, busy = part(1.0), part(2.0, compacted=True)

    assert enough(COMPACTS, iter([idle, busy, idle, busy])) == [idle, busy, idle, busy]


def test_a_machine_that_never_rests_gets_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Too few parts are a failure, however quick they were."""
    gone = part(1.0, stood_still=20.0)

    taken = enough(READS, repeat(gone))

    assert len(taken) == MOST_PARTS
    assert not print_row("get", [*taken, part(1.0)], READS)
    assert "TOO FEW PARTS COUNT" in capsys.readouterr().out


def test_the_verdict_is_about_all_requests_of_the_parts_that_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of parts that were left out do not matter; no other request is forgiven."""
    calm, gone = part(1.0), part(500.0, stood_still=499.0)

    assert print_row("get", [calm, gone, calm], READS)
    assert not print_row("get", [calm, gone, part(6.0)], READS)
    assert "ABOVE 5" in capsys.readouterr().out


def test_a_refused_request_fails_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that answers quickly because it refuses keeps no limit."""
    refusing = part(1.0)
    refusing.taken.refused = 3

    assert not print_row("get", [part(1.0), refusing], READS)
    assert "REFUSED 3" in capsys.readouterr().out


def test_what_was_left_out_is_told() -> None:
    """Whoever reads the table sees what all requests took."""
    told = left_out([part(1.0), part(500.0, stood_still=499.0)], READS)

    assert told == (
        "2 parts, 1 left out: the machine stood still for 499.0 to 499.0 ms;"
        " all of them: p50 500.00, p99 500.00, p99.9 500.00, most 500.00"
    )
