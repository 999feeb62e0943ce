"""An authority is rotated by command, and nginx, curl, openssl and kubectl accept its chains."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server
from tests.system_packages import require_program

KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
HOST = "web.example.com"
CONFIGURATION = """
pid nginx.pid;
error_log error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
  uwsgi_temp_path temp; scgi_temp_path temp;
  ssl_verify_depth 4;
  ssl_client_certificate {clients};
  ssl_crl lists.pem;
  ssl_verify_client optional;
  server {{
    listen 127.0.0.1:{old_port} ssl;
    ssl_certificate old.crt; ssl_certificate_key old.key;
    location / {{ return 200 "$ssl_client_verify"; }}
  }}
  server {{
    listen 127.0.0.1:{new_port} ssl;
    ssl_certificate new.crt; ssl_certificate_key new.key;
    location / {{ return 200 "$ssl_client_verify"; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("rotated") / "data") as running:
        yield running


@pytest.fixture
def admin(server: Server, tmp_path: Path) -> Person:
    return Person(tmp_path, server.data_dir / "admin.kubeconfig")


def certified(admin: Person, name: str) -> None:
    """A key and a certificate of the authority, for a TLS server and a client."""
    admin.types("csr", "new", name, "--signer", "example.com/web", "--dns", HOST)
    admin.types("csr", "approve", name)
    admin.types("csr", "fetch", name)


def fetch(admin: Person, server: Server, path: str, file: str, mark: str) -> None:
    """Fetch a file of the server, once it has a part for each key."""
    ca, deadline = server.data_dir / "ca.crt", time.monotonic() + 30
    command = ["curl", "-sSf", "--cacert", ca, f"{server.url}{path}"]
    while (found := subprocess.run(command, check=True, capture_output=True).stdout).count(
        mark.encode()
    ) < 2:
        assert time.monotonic() < deadline, found
    (admin.home / file).write_bytes(found)


def rotate(admin: Person, kubectl: Kubectl) -> str:
    """Rotate the authority; its successor is published two days ago. Returns the first refusal."""
    refusal = admin.types("ca", "rotate", "web").stderr
    since = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = json.dumps({"status": {"times": {"published": since}}})  # the leader writes others
    kubectl("patch", "signingkeys", "web-2", "--subresource=status", "--type=merge", "-p", times)
    admin.types("ca", "rotate", "web", "--hurry", "--wait", "30s")
    assert "renewBy" in json.loads(kubectl("get", "--raw", f"{KEYS}/web-1").out)["spec"]
    deadline = time.monotonic() + 30
    while "web-2" not in admin.types("ca", "show", "web").stdout.split("Keys")[1].splitlines()[0]:
        assert time.monotonic() < deadline, "the authority does not sign with its successor"
    return refusal


@contextlib.contextmanager
def serving(home: Path, clients: str) -> Iterator[tuple[int, int]]:
    """An nginx with the old and the new certificate, each on a port."""
    old_port, new_port = free_port(), free_port()
    text = CONFIGURATION.format(clients=clients, old_port=old_port, new_port=new_port)
    (home / "nginx.conf").write_text(text)
    program = require_program("nginx")
    subprocess.run(
        [program, "-e", "error.log", "-p", home, "-c", home / "nginx.conf"], check=True, cwd=home
    )
    try:
        yield old_port, new_port
    finally:
        os.kill(int((home / "nginx.pid").read_text()), signal.SIGTERM)


def curl(home: Path, port: int, anchors: str, client: str) -> str:
    """What nginx says of the client's certificate; empty if curl does not accept the server."""
    done = subprocess.run(
        [
            "curl", "-s", "--cacert", anchors, "--connect-to", f"::127.0.0.1:{port}",
            "--cert", f"{client}.crt", "--key", f"{client}.key", f"https://{HOST}/",
        ],
        cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.system_package("nginx", "openssl")
def test_no_program_rejects_a_certificate_because_of_a_rotation(
    server: Server, admin: Person
) -> None:
    """With the old root, the new one, or both: as clients, as servers, and with all lists."""
    for program in ("nginx", "openssl", "curl", "kubectl"):
        require_program(program)
    home, kubectl = admin.home, Kubectl(admin.kubeconfig, admin.home)
    usages = ("--usage", "digital signature", "--usage", "server auth", "--usage", "client auth")
    admin.types("ca", "new", "web", "--signer", "example.com/web", *usages)
    certified(admin, "old")
    (home / "first.pem").write_text(admin.types("ca", "show", "web", "--pem").stdout)

    refusal = rotate(admin, kubectl)
    certified(admin, "new")
    (home / "second.pem").write_text(admin.types("ca", "show", "web", "--pem").stdout)
    fetch(admin, server, "/trust/web.pem", "both.pem", "BEGIN CERTIFICATE")
    fetch(admin, server, "/crl/web.pem", "lists.pem", "BEGIN X509 CRL")

    assert "web-2" in refusal
    assert "spec.state: Forbidden" in refusal
    for clients in ("first.pem", "second.pem", "both.pem"):
        with serving(home, clients) as (old_port, new_port):
            for anchors in ("first.pem", "second.pem", "both.pem"):
                assert curl(home, new_port, anchors, "new") == "SUCCESS", (clients, anchors)
            assert curl(home, old_port, "first.pem", "new") == "SUCCESS"
            assert curl(home, old_port, "second.pem", "new") == ""  # old leaf, new root alone
            accepted = curl(home, new_port, "both.pem", "old")
            assert (accepted == "SUCCESS") == (clients != "second.pem"), accepted
    _check_with_openssl(home)
    _check_dependents(admin, kubectl)


def _check_with_openssl(home: Path) -> None:
    for anchors, leaf in (
        ("first.pem", "old"), ("both.pem", "old"),
        ("first.pem", "new"), ("second.pem", "new"), ("both.pem", "new"),
    ):  # fmt: skip
        command = ["openssl", "verify", "-x509_strict", "-crl_check_all", "-CRLfile", "lists.pem"]
        done = subprocess.run(
            [*command, "-CAfile", anchors, "-untrusted", f"{leaf}.crt", f"{leaf}.crt"],
            cwd=home, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (anchors, leaf, done.stderr)


def _check_dependents(admin: Person, kubectl: Kubectl) -> None:
    """The previous key is not Retired while a certificate depends on it."""
    listed = admin.gets("issued", "--key", "web-1")
    refused = admin.types("key", "retire", "--yes", "web-1", code=1).stderr
    states = {row[0]: row[2] for row in kubectl("get", "signingkeys").rows}

    requested = [one for one in listed if not one["spec"].get("intermediate")]
    assert [one["spec"]["request"]["name"] for one in requested] == ["old"]
    assert "1 certificate depends on web-1, the last until" in refused
    assert (states["web-1"], states["web-2"]) == ("Verifying", "Active")


@pytest.mark.system_package("openssl")
def test_openssl_as_an_offline_root_signs_an_authority(admin: Person) -> None:
    """As docs/rotation.md shows it: request, signature elsewhere, chain; then a certificate."""
    require_program("openssl")
    home = admin.home

    def openssl(*words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=home, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "root.key", "-out", "root.crt", "-days", "3650", "-subj", "/CN=Offline Root",
    )  # fmt: skip
    made = admin.types("ca", "new", "below", "--signer", "example.com/below", "--external")
    (home / "below.csr").write_text(admin.types("ca", "request", "below").stdout)
    openssl(
        "x509", "-req", "-in", "below.csr", "-CA", "root.crt", "-CAkey", "root.key",
        "-days", "1825", "-copy_extensions", "copyall", "-out", "below.crt",
    )  # fmt: skip
    chain = (home / "below.crt").read_text() + (home / "root.crt").read_text()
    (home / "chain.pem").write_text(chain)
    refused = admin.types("ca", "install", "below", "root.crt", code=1).stderr

    admin.types("ca", "install", "below", "chain.pem")
    admin.types("csr", "new", "leaf", "--signer", "example.com/below", "--dns", HOST)
    admin.types("csr", "approve", "leaf")
    admin.types("csr", "fetch", "leaf")

    assert "orchid ca request below" in made.stdout
    assert "private key does not match public key" in refused
    openssl("verify", "-CAfile", "root.crt", "-untrusted", "leaf.crt", "leaf.crt")
