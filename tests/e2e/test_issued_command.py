"""`orchid issued` as a person types it, against a real server."""

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.e2e.serving import Server, running_server
from tests.e2e.test_commands import Person, person_of

# Without the server's own certificates, which have another signer.
REQUESTED = ("issued", "--signer", "orch.io/orch-apiserver-client")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests, with two certificates of which one lasts long."""
    directory = tmp_path_factory.mktemp("server")
    with running_server(directory / "data") as running:
        home = directory / "issuing"
        home.mkdir()
        person = Person(home, running.kubeconfig)
        for name, lifetime in (("alice", "2400h"), ("bob", "24h")):
            person.types("csr", "new", name, "--for", lifetime, "--user", f"=cmd|{name}")
            person.types("csr", "approve", name)
            person.types("csr", "fetch", name)
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return person_of(server, tmp_path)


def test_the_first_to_end_stands_first(person: Person) -> None:
    """So that what needs attention is seen first."""
    lines = person.types(*REQUESTED).stdout.splitlines()

    assert lines[0].split()[:3] == ["SERIAL", "SIGNER", "SUBJECT"]
    assert ["bob" in line for line in lines[1:]] == [True, False]


@pytest.mark.parametrize(
    ("flags", "subjects"),
    [
        ((), ["CN==cmd|bob", "CN==cmd|alice"]),
        (("--expires-within", "2d"), ["CN==cmd|bob"]),
        (("--name", "*cmd|a*"), ["CN==cmd|alice"]),
        (("--user", "orchid-admin", "--sort", "subject"), ["CN==cmd|alice", "CN==cmd|bob"]),
        (("--user", "a,b=c"), []),
        (("--signer", "example.com/x"), []),
        (("--revoked",), []),
        (("--live",), ["CN==cmd|bob", "CN==cmd|alice"]),
        (("CMD|ALI",), ["CN==cmd|alice"]),
        (("alice", "orchid-admin"), ["CN==cmd|alice"]),
        (("alice", "bob"), []),
    ],
)
def test_filters_and_order(person: Person, flags: tuple[str, ...], subjects: list[str]) -> None:
    """Each filter shows the selected certificates and no others."""
    found = person.gets(*(("issued",) if "--signer" in flags else REQUESTED), *flags)

    assert [one["spec"]["subject"].replace("\\", "") for one in found] == subjects


def test_exports_are_what_other_programs_read(person: Person) -> None:
    """PEM is certificates, and nothing in a CSV file is a formula."""
    pem = person.types(*REQUESTED, "-o", "pem").stdout.encode()
    rows = list(csv.DictReader(io.StringIO(person.types(*REQUESTED, "-o", "csv").stdout)))

    certificates = x509.load_pem_x509_certificates(pem)
    assert [f"{one.serial_number:x}" for one in certificates] == [row["serial"] for row in rows]
    assert [row["approver"] for row in rows] == ["orchid-admin", "orchid-admin"]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_wide_shows_what_one_looks_for_elsewhere(person: Person) -> None:
    """The request, the sort of key and the fingerprint, beside what is always there."""
    title, *lines = person.types(*REQUESTED, "-o", "wide").stdout.splitlines()
    found = person.gets(*REQUESTED)

    assert title.split()[-6:] == ["APPROVED", "BY", "NAMES", "REQUEST", "KEY", "SHA-256"]
    assert [line.split()[-1] for line in lines] == [one["spec"]["sha256"] for one in found]
    assert [line.split()[-3] for line in lines] == ["bob", "alice"]
    assert [line.split()[-4] for line in lines] == ["orchid-admin", "orchid-admin"]


def issue(person: Person, name: str) -> None:
    person.types("csr", "new", name)
    person.types("csr", "approve", name)
    person.types("csr", "fetch", name)


def test_watch_prints_new_certificates(tmp_path: Path) -> None:
    """Existing certificates come first, then each new one; an export has an end."""
    command = [sys.executable, "-m", "orchid", *REQUESTED, "--watch", "-o", "name"]
    with running_server(tmp_path / "data") as server:
        person = person_of(server, tmp_path)
        issue(person, "first")
        refused = person.types("issued", "--watch", "-o", "pem", code=2).stderr
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=person.home, env=person.environment
        ) as watching:
            assert watching.stdout is not None
            seen = [watching.stdout.readline().strip()]
            issue(person, "second")
            seen.append(watching.stdout.readline().strip())
            watching.terminate()
        there = [one["metadata"]["name"] for one in person.gets(*REQUESTED, "--sort", "issued")]

    assert "--watch does not go with -o pem" in refused
    assert sorted(name.rpartition("/")[2] for name in seen) == sorted(there)


def test_what_ends_soon_has_no_certificate_that_was_revoked_or_replaced(person: Person) -> None:
    """A certificate is replaced by a later one with the same signer, subject and names."""
    for name, lifetime in (("due", "24h"), ("renewed", "24h"), ("gone", "24h"), ("later", "2400h")):
        user = "renewed" if name == "later" else name
        person.types("csr", "new", name, "--for", lifetime, "--user", user)
        person.types("csr", "approve", name)
        person.types("csr", "fetch", name)
    person.types("revoke", "csr/gone", "--yes")

    found = person.gets("issued", "--expires-within", "2d", "--sort", "subject")
    live = person.gets("issued", "--live", "--name", "gone")

    subjects = [one["spec"]["subject"] for one in found]
    assert "CN=due" in subjects
    assert "CN=renewed" not in subjects
    assert "CN=gone" not in subjects
    assert live == []
