"""What the machine allows, beside which rates are shown: benchmarks/limits.py."""

import os
import ssl
import urllib.request
from pathlib import Path

import pytest

from benchmarks import echo, load
from benchmarks.limits import CONSISTS_OF, Limits, committing_speed, on_core, signing_speed

HERE = min(os.sched_getaffinity(0))
LIMITS = Limits(
    answers=20_000,
    lists=2_000,
    signatures=20_000,
    verifications=5_000,
    commits=40_000,
    on_disk=10_000,
)


@pytest.mark.parametrize(
    ("row", "most"),
    [
        ("get", 20_000),  # one answer
        ("list500", 2_000),
        ("tokenrequest", 10_000),  # 50 us to answer and 50 to sign
        ("create", 10_000),  # the core could 13,333, but the disk cannot
        ("csr-create-many", 1 / (50e-6 + 200e-6 + 25e-6)),
    ],
)
def test_a_row_cannot_be_faster_than_its_parts_together(row: str, most: float) -> None:
    """The core makes them one after the other; the disk works beside it."""
    assert LIMITS.most(row) == pytest.approx(most)


def test_every_load_has_its_limit() -> None:
    """A new row of the table says what it consists of."""
    assert {*load.JOBS} <= {*CONSISTS_OF}


def test_values_are_made_durable_on_the_core_that_is_measured(tmp_path: Path) -> None:
    """Afterwards whoever measured has all cores back."""
    usual = os.sched_getaffinity(0)

    by_processor, by_clock = committing_speed(HERE, tmp_path, seconds=0.05)

    assert min(by_processor, by_clock) > 0
    assert os.sched_getaffinity(0) == usual


def test_a_core_is_left_again_after_a_failure() -> None:
    """Whatever is measured next has the cores it had."""
    usual = os.sched_getaffinity(0)

    with pytest.raises(ZeroDivisionError), on_core(HERE):
        _ = 1 / 0

    assert os.sched_getaffinity(0) == usual


@pytest.mark.system_package("openssl")
def test_signatures_and_verifications_are_read_from_openssl() -> None:
    """What it prints differs from version to version."""
    assert min(signing_speed(HERE)) > 0


@pytest.mark.system_package("openssl")
def test_the_bare_server_answers_with_so_many_bytes(tmp_path: Path) -> None:
    """Over TLS, as the servers that are compared with it."""
    trusting = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback

    with (
        echo.running(tmp_path, HERE, answer_bytes=1_234) as (port, _),
        urllib.request.urlopen(f"https://127.0.0.1:{port}/", context=trusting) as answer,
    ):
        assert len(answer.read()) == 1_234
