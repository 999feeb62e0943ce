"""Conditions of the machine: clock, room, rights and damaged files, each alone."""

import contextlib
import logging
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.expiry import CertificateFile
from orchid.kernel.credentials.files import set_aside
from orchid.kernel.server.metrics.host_conditions import (
    CLOCK,
    DAMAGED,
    FULL,
    PROBE,
    READ_ONLY,
    SKEW,
    HostConditions,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NOBODY = 65534


class Calendar:
    """A clock that a test sets."""

    def __init__(self, moment: datetime = START) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


def conditions(
    directory: Path, clock: Calendar | None = None, files: Sequence[CertificateFile] = ()
) -> HostConditions:
    read = "revocations.jsonl", "ledger.checkpoint"
    return HostConditions(directory, files, clock or Calendar(), read)


def values(looking: HostConditions) -> dict[str, float]:
    return {labels[0][1]: float(value) for labels, value in looking.gauge.family().samples}


def test_a_healthy_directory_has_no_condition(tmp_path: Path) -> None:
    """Nothing stays behind in it, and the metric has a zero for each condition."""
    looking = conditions(tmp_path)

    looking.take(looking.check())

    assert list(tmp_path.iterdir()) == []
    assert values(looking) == {CLOCK: 0, FULL: 0, READ_ONLY: 0, DAMAGED: 0}


def test_a_certificate_from_the_future_means_that_the_clock_is_behind(tmp_path: Path) -> None:
    """Not for the minute by which the clocks of two servers may differ."""
    file = tmp_path / "ca.crt"
    made = Authority.create("ca", now=START, lifetime=timedelta(days=9))
    file.write_bytes(made.certificate_pem)
    begins = CertificateFile("cluster-ca", file).start()
    clock = Calendar(begins - SKEW - SECOND)
    looking = conditions(tmp_path, clock, [CertificateFile("cluster-ca", file)])

    behind = looking.check()
    clock.moment += SECOND

    assert "the cluster-ca certificate is valid from" in behind[CLOCK]
    assert looking.check() == {}


def test_a_certificate_that_cannot_be_read_says_nothing_about_the_clock(tmp_path: Path) -> None:
    """The metric of its expiry reports it."""
    looking = conditions(tmp_path, files=[CertificateFile("serving", tmp_path / "none")])

    assert looking.check() == {}


def test_a_chain_is_valid_when_all_of_it_is_and_a_bundle_with_its_first(tmp_path: Path) -> None:
    """A new CA in a bundle may begin later; in a chain nothing may."""
    file = tmp_path / "several.crt"
    moments = START, START + timedelta(days=5)
    made = [Authority.create("ca", now=one, lifetime=timedelta(days=9)) for one in moments]
    file.write_bytes(b"".join(one.certificate_pem for one in made))

    chain, bundle = CertificateFile("a", file), CertificateFile("a", file, is_bundle=True)

    assert chain.start() - bundle.start() == timedelta(days=5)


@contextlib.contextmanager
def without_rights(directory: Path) -> Iterator[None]:
    """A directory where we may write no file: of another user, if we are root."""
    directory.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        directory.chmod(0o755)


@contextlib.contextmanager
def without_room(_: Path) -> Iterator[None]:
    """A file may have a hundred bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("state", "expected"), [(without_rights, READ_ONLY), (without_room, FULL)])
def test_a_directory_that_takes_no_file_is_a_condition(
    tmp_path: Path, state: Callable[[Path], AbstractContextManager[None]], expected: str
) -> None:
    """Each with its own name; afterwards nothing stays behind."""
    looking = conditions(tmp_path)

    with state(tmp_path):
        found = looking.check()

    assert next(iter(found)) == expected
    assert str(tmp_path) in found[expected]
    assert list(tmp_path.iterdir()) == []
    assert looking.check() == {}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """The check of the directory overwrites no file elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / PROBE).symlink_to(elsewhere)

    assert READ_ONLY in conditions(tmp_path).check()
    assert elsewhere.read_text() == "mine"


def test_a_file_that_was_set_aside_is_a_condition_until_it_is_removed(tmp_path: Path) -> None:
    """Its content stays, also when the file is written again."""
    file = tmp_path / "ledger.checkpoint"
    file.write_text("damaged")
    aside = set_aside(file, START)
    file.unlink()
    looking = conditions(tmp_path)

    found = looking.check()

    assert aside.name == "ledger.checkpoint.unreadable-20260101T000000Z"
    assert aside.read_text() == "damaged"
    assert aside.name in found[DAMAGED]
    aside.unlink()
    assert looking.check() == {}


@pytest.mark.parametrize("name", ["revocations.jsonl", "ledger.checkpoint"])
def test_a_file_that_cannot_be_opened_is_a_condition(tmp_path: Path, name: str) -> None:
    """One that is missing is none: it is made with the first entry."""
    (tmp_path / name).symlink_to(name)  # a loop

    assert name in conditions(tmp_path).check()[DAMAGED]


def test_a_condition_is_logged_when_it_begins_changes_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at every check."""
    caplog.set_level(logging.WARNING)
    looking = conditions(tmp_path)

    for found in ({FULL: "a"}, {FULL: "a"}, {FULL: "b"}, {}, {}):
        looking.take(found)

    assert caplog.messages == ["disk.full", "disk.full", "condition.ended"]
    assert values(looking)[FULL] == 0


def test_the_metric_follows(tmp_path: Path) -> None:
    """One for each condition that holds."""
    looking = conditions(tmp_path)

    looking.take({CLOCK: "a", DAMAGED: "b"})

    assert values(looking) == {CLOCK: 1, FULL: 0, READ_ONLY: 0, DAMAGED: 1}
