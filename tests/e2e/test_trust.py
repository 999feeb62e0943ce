"""Published bundles as other programs get them: curl, Java, openssl; and after a restore."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchid.kernel.credentials.x509 import certificates
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.system_packages import require_program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("trust") / "data") as running:
        yield running


@pytest.fixture
def person(server: Server, tmp_path: Path) -> Person:
    return Person(tmp_path, server.kubeconfig)


def run(*words: str, cwd: Path, code: int = 0) -> str:
    require_program(words[0])
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, input="\n",
        timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def until_published(person: Person, name: str, count: int) -> dict[str, object]:
    """Wait by the commands' own means until a bundle has so many certificates."""
    for _ in range(60):
        for one in person.gets("bundle", "published"):
            status = one.get("status", {})
            if one["metadata"]["name"] == name and status.get("certificates") == count:
                return dict(status)
    raise AssertionError(f"{name} never had {count} certificates")


def test_curl_fetches_a_bundle_once_and_waits_for_the_next(
    person: Person, server: Server, tmp_path: Path
) -> None:
    """The first time with a SHA-256 from elsewhere, then by entity tag and the bundle itself."""
    status = until_published(person, "cluster", 1)
    url = f"{server.url}/trust/cluster.pem"
    run("curl", "-fsSk", "-o", "first.pem", url, cwd=tmp_path)
    fetch = (
        "curl", "-fsS", "--cacert", "first.pem", "--etag-compare", "tag", "--etag-save", "tag",
        "-w", "%{http_code}", "-o", "bundle.pem",
    )  # fmt: skip

    codes = [run(*fetch, url, cwd=tmp_path), run(*fetch, f"{url}?wait=1s", cwd=tmp_path)]

    assert hashlib.sha256((tmp_path / "first.pem").read_bytes()).hexdigest() == status["sha256"]
    assert codes == ["200", "304"]
    assert (tmp_path / "bundle.pem").read_bytes() == (tmp_path / "first.pem").read_bytes()
    assert (tmp_path / "tag").read_text().strip() == f'"{status["sequence"]}"'
    verified = run("openssl", "verify", "-CAfile", "bundle.pem", "bundle.pem", cwd=tmp_path)
    assert "OK" in verified


def test_java_reads_both_stores(person: Person, server: Server, tmp_path: Path) -> None:
    """With the password changeit, and without one."""
    until_published(person, "cluster", 1)
    for name in ("cluster.p12", "cluster.nopassword.p12"):
        run("curl", "-fsSk", "-O", f"{server.url}/trust/{name}", cwd=tmp_path)
    listing = ("keytool", "-list", "-storetype", "PKCS12", "-keystore")

    closed = run(*listing, "cluster.p12", "-storepass", "changeit", cwd=tmp_path)
    opened = run(*listing, "cluster.nopassword.p12", cwd=tmp_path)

    assert closed.count("trustedCertEntry") == opened.count("trustedCertEntry") == 1


def test_a_bundle_of_files_is_published_and_its_consumers_are_listed(
    person: Person, server: Server, tmp_path: Path
) -> None:
    """Debian's roots are accepted; a client with a credential has a name, and can be forgotten."""
    roots = Path("/etc/ssl/certs/ca-certificates.crt")
    if not roots.exists():
        pytest.skip("system package missing: ca-certificates")
    person.types("bundle", "set", "public-roots", str(roots))
    person.types(
        "bundle", "publish", "web", "--bundle", "public-roots", "--trust-domain", "example.com"
    )
    now = datetime.now(UTC)
    given = certificates.parse_blocks(roots.read_bytes())
    count = sum(one.not_valid_after_utc > now for one in given)  # expired ones are left out
    status = until_published(person, "web", count)
    person.types("account", "new", "ci/builder")
    token = person.types("token", "ci/builder").stdout.strip()

    run(
        "curl", "-fsSk", "-H", f"Authorization: Bearer {token}", "-o", "web.json",
        f"{server.url}/trust/web.json", cwd=tmp_path,
    )  # fmt: skip
    history = person.types("bundle", "history", "web").stdout
    listed = person.types("bundle", "published").stdout

    document = json.loads((tmp_path / "web.json").read_text())
    assert document["spiffe_sequence"] == status["sequence"]
    assert 0 < len(document["keys"]) <= count
    assert str(status["sequence"]) in history
    assert str(status["sha256"]) in history
    assert "ready" in listed
    assert "no client sent a credential" in person.types("bundle", "consumers", "cluster").stderr
    assert "is no consumer of web" in person.types("bundle", "forget", "web", "x", code=1).stderr
    person.types("bundle", "publish", "empty", code=2)
    person.types("bundle", "publish", "empty", "--label", "word", code=2)
    person.types("bundle", "unpublish", "--yes", "web")


def test_a_restore_never_brings_back_a_sequence_that_clients_have_passed(tmp_path: Path) -> None:
    """Consumers written at a stop are there after the start; the sequence grows."""
    data, copy, home = tmp_path / "data", tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    person = Person(home, data / "admin.kubeconfig")
    with running_server(data) as server:
        until_published(person, "cluster", 1)
        ca = data / "ca.crt"
        person.types("bundle", "set", "mine", str(ca))
        person.types("bundle", "publish", "pay", "--bundle", "mine")
        first = until_published(person, "pay", 1)
        person.types("account", "new", "ci/builder")
        token = person.types("token", "ci/builder").stdout.strip()
        run(
            "curl", "-fsSk", "-H", f"Authorization: Bearer {token}", "-o", "pay.pem",
            f"{server.url}/trust/pay.pem", cwd=home,
        )  # fmt: skip
        server.stop()
    with running_server(data, port=server.port) as server:
        seen = person.types("bundle", "consumers", "pay").stdout
        person.types("bundle", "forget", "pay", "system:serviceaccount:ci:builder")
        forgotten = person.gets("bundle", "consumers", "pay")
        person.types("backup", str(copy), "--data-dir", str(data))
        server.stop()
    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, port=server.port):
        for _ in range(60):
            after = until_published(person, "pay", 1)
            if after["sequence"] != first["sequence"]:
                break

    assert "system:serviceaccount:ci:builder" in seen
    assert "current" in seen
    assert forgotten["named"] == {}
    assert int(str(after["sequence"])) > int(str(first["sequence"]))
    assert after["sha256"] == first["sha256"]
