"""A short run of the whole: clients work, faults strike, and nothing that they saw is wrong.

ORCHID_FAULTS_SEED=7 ...     the plan of an earlier run again
make torture MINUTES=10      longer
"""

import os
import random
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.faults import plan
from tests.faults.history import Outcome
from tests.faults.run import run
from tests.faults.workload import intents

SEED = int(os.environ.get("ORCHID_FAULTS_SEED", random.SystemRandom().randrange(10**6)))
MINUTES = 0.25


@pytest.mark.parametrize(
    "store", ["workers", pytest.param("etcd", marks=pytest.mark.system_package("etcd"))]
)
def test_whatever_breaks_no_promise_does(store: str, tmp_path: Path) -> None:
    """Reads and writes are linearizable, watches are the log, rights end, records are whole.

    After every fault, revocations, inventory, lists and servers agree.
    """
    report = run(store, MINUTES, SEED, tmp_path)

    print(report)  # noqa: T201 - shown when it fails, with the seed
    assert report.broken == []
    assert report.struck.total() > 0
    assert report.decided > 5
    assert report.issued > 0
    assert report.removed.total() > 0
    assert report.changed["agreements"] == report.struck.total()
    assert sum(call.outcome is Outcome.DONE for call in report.history.calls) > 50  # they did work
    assert all(watcher.segments[-1].events for watcher in report.history.watchers)


def test_a_seed_is_a_plan() -> None:
    """The same seed gives the same intentions and the same faults; another gives others."""
    kinds = ["a", "b", "c"]

    assert list(islice(intents(1, 2), 50)) == list(islice(intents(1, 2), 50))
    assert list(islice(intents(1, 2), 50)) != list(islice(intents(2, 2), 50))
    assert list(islice(plan(1, kinds), 30)) == list(islice(plan(1, kinds), 30))
    assert list(islice(plan(1, kinds), 30)) != list(islice(plan(2, kinds), 30))
    assert sorted(fault.kind for fault in islice(plan(1, kinds), 3)) == kinds
