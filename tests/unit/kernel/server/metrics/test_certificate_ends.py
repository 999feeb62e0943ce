"""The server's own certificates: their ends as a metric, and a warning before each."""

import datetime
import logging
from pathlib import Path

import pytest

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.expiry import CertificateFile
from orchid.kernel.server.metrics.certificate_ends import CertificateEnds

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


class Calendar:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime.datetime:
        return self.moment


def written(path: Path, *days: int) -> Path:
    """A file with certificates that end so many days after the start."""
    path.write_bytes(
        b"".join(
            Authority.create("ca", now=START, lifetime=count * DAY).certificate_pem
            for count in days
        )
    )
    return path


def days_left(file: CertificateFile) -> int:
    return round((file.end() - START) / DAY)


def test_chain_ends_with_its_first_and_bundle_with_its_last(tmp_path: Path) -> None:
    """A chain needs all of its certificates, a bundle one of them."""
    path = written(tmp_path / "several.crt", 100, 10, 50)

    assert days_left(CertificateFile("serving", path)) == 10
    assert days_left(CertificateFile("client-ca", path, is_bundle=True)) == 100


def test_metric_has_the_end_of_each(tmp_path: Path) -> None:
    """As seconds since the epoch, from the beginning; a file that cannot be read is left out."""
    file = CertificateFile("serving", written(tmp_path / "a.crt", 90))
    ends = CertificateEnds([file, CertificateFile("client-ca", tmp_path / "none")], Calendar())

    samples = list(ends.gauge.family().samples)

    assert [dict(each.labels) for each in samples] == [{"certificate": "serving"}]
    assert samples[0].value == file.end().timestamp()


def test_warnings_come_once_for_each_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """30 days, 7 days, 1 day before, and at the end; looking more often says nothing more."""
    clock = Calendar()
    file = CertificateFile("serving", written(tmp_path / "a.crt", 90))
    ends = CertificateEnds([file], clock)
    logged = []

    for day in range(0, 95):
        clock.moment = START + day * DAY
        for _ in range(2):
            ends.take(ends.read(), warns=True)
        logged += [(day, record.getMessage(), record.levelno) for record in caplog.records]
        caplog.clear()

    assert logged == [
        (60, "certificate.ends", logging.WARNING),
        (83, "certificate.ends", logging.WARNING),
        (89, "certificate.ends", logging.WARNING),
        (90, "certificate.ended", logging.ERROR),
    ]


def test_replaced_certificate_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The new end counts; one that ends soon again is warned of again."""
    clock = Calendar()
    file = CertificateFile("serving", written(tmp_path / "a.crt", 5))
    ends = CertificateEnds([file], clock)
    ends.take(ends.read(), warns=True)

    written(file.path, 6)
    ends.take(ends.read(), warns=True)

    assert len(caplog.records) == 2
    assert ends.gauge.value("serving") == (START + 6 * DAY).timestamp()
