"""Certificates that `orchid` renews in place: from a timer, and as a credential plugin."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    home = tmp_path / "home"
    home.mkdir()
    return Person(home, server.kubeconfig)


@contextmanager
def approving(person: Person, request: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that waits for a request, and approve that."""
    with subprocess.Popen(
        [sys.executable, "-m", "orchid", *words],
        cwd=person.home,
        env=person.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        while request not in person.types("csr", "list", "-o", "name").stdout.split():
            assert running.poll() is None
        person.types("csr", "approve", request)
        yield running


def issue(person: Person, name: str) -> bytes:
    """Get a certificate of ten minutes into NAME.crt."""
    person.types("csr", "new", name, "--for", "10m")
    person.types("csr", "approve", name)
    person.types("csr", "fetch", name)
    return (person.home / f"{name}.crt").read_bytes()


def test_certificate_renews_itself_through_the_kubeconfig_that_has_it(
    person: Person, server: Server
) -> None:
    """Again and again: each renewal is requested with the certificate before. Its mode stays."""
    person.types("grant", "certificate-requester", "--user", "robin")
    issue(person, "robin")
    pair = ("--cert", "robin.crt", "--key", "robin.key")
    person.types("kubeconfig", "--exec", *pair, "--out", "robin.kubeconfig")
    cluster = Authority.load_files(server.data_dir / "ca.crt", server.data_dir / "ca.key")

    for request in ("robin-2", "robin-3"):
        then = datetime.now(UTC) - timedelta(minutes=50)
        old = cluster.issue_client("robin", lifetime=timedelta(hours=1), now=then)
        write_private(person.home / "robin.key", old.key.reveal().encode())
        (person.home / "robin.crt").write_bytes(old.chain)
        (person.home / "robin.crt").chmod(0o644)
        words = ("whoami", "--kubeconfig", "robin.kubeconfig")
        with approving(person, request, *words) as running:
            printed, said = running.communicate(timeout=60)

        assert "robin" in printed, said
        assert (person.home / "robin.crt").read_bytes() != old.chain
        assert stat.S_IMODE((person.home / "robin.crt").stat().st_mode) == 0o644
    assert str(server.kubeconfig) not in (person.home / "robin.kubeconfig").read_text()


def test_renewal_from_a_timer(person: Person) -> None:
    """Nothing until the end is near; then one request, however often; then file and command."""
    before = issue(person, "timer")
    near = ("csr", "renew", "timer", "--if-ends-within", "1h")

    early = person.types("csr", "renew", "timer", "--if-ends-within", "5m").stdout
    waits = person.types(*near, "--wait", "0s", code=1).stderr
    with approving(person, "timer-2", *near, "--exec", "cp timer.crt seen.crt") as running:
        _, said = running.communicate(timeout=60)
    with approving(person, "timer-3", *near, "--exec", "false") as failing:
        _, complaint = failing.communicate(timeout=60)

    requests = person.types("csr", "list", "-o", "name").stdout.split()
    assert early.endswith("nothing to do\n")
    assert "timer-2 has no certificate after 0s" in waits
    assert running.returncode == 0, said
    assert (person.home / "seen.crt").read_bytes() != before
    assert failing.returncode == 1
    assert "--exec: 'false' ended with exit code 1" in complaint
    assert [one for one in requests if "timer" in one] == ["timer", "timer-2", "timer-3"]
