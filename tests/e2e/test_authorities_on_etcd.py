"""A CertificateAuthority with two servers on one etcd, and controllers in another process."""

import asyncio
import base64
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.conformance.exchanges import TOKENS
from tests.e2e.serving import Server, running_server, sealing_flags
from tests.e2e.test_controllers import PATIENCE, call, is_issued, until
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.store import etcd_process

pytestmark = pytest.mark.system_package("etcd")

ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
AUTHORITIES = "/apis/identity.orch.io/v1alpha1/certificateauthorities"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
SECRETS = "/api/v1/namespaces/orch-system/secrets"
SIGNING_KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
SIGNER = "example.com/web"
QUIET = ("--controllers", "")


@pytest.fixture
def etcd() -> Iterator[str]:
    """The address of a new etcd."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        yield cluster.urls[0]


@contextmanager
def two_servers(etcd: str, place: Path, *flags: str) -> Iterator[tuple[Server, Server]]:
    """Two servers with the same keys: the second has a copy of the files of the first."""
    with ExitStack() as running:
        servers = []
        for name in ("one", "two"):
            if servers:
                shutil.copytree(place / "one", place / name)
            options = ("--etcd-servers", etcd, "--token-auth-file", str(TOKENS), *flags)
            options += sealing_flags(place)
            servers.append(running.enter_context(running_server(place / name, *options)))
        yield servers[0], servers[1]


@contextmanager
def controllers_of(server: Server) -> Iterator[None]:
    """`orchid controllers` beside a server; they must end in order."""
    command = [sys.executable, "-m", "orchid", "controllers", "--data-dir", str(server.data_dir)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=PATIENCE)
        assert program.returncode == 0, output.decode()
    finally:
        program.kill()
        program.wait()


def made(server: Server, target: str, body: Any) -> Any:
    status, found = call(server, "POST", target, body)
    assert status == 201, found
    return found


def authority_on(server: Server) -> Any:
    spec = {"signerName": SIGNER, "key": {}, "subject": {"commonName": "Web CA"}}
    return made(server, AUTHORITIES, {"metadata": {"name": "web"}, "spec": spec})


def says_ready(reason: str) -> Any:
    def is_so(authority: Any) -> bool:
        conditions = authority["status"].get("conditions", [])
        return any((c["type"], c["reason"]) == ("Ready", reason) for c in conditions)

    return is_so


def leaf_of(asked: Server, approving: Server, name: str) -> x509.Certificate:
    """Ask one server for a certificate, approve at the other, and fetch it from the first."""
    names = (x509.DNSName("web.example.com"),)
    request = base64.b64encode(samples.request("", (), alternative_names=names)).decode()
    spec = {"request": request, "signerName": SIGNER}
    body = made(asked, REQUESTS, {"metadata": {"name": name}, "spec": spec})
    body["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByTest"}]}
    assert call(approving, "PUT", f"{REQUESTS}/{name}/approval", body)[0] == 200
    issued = until(asked, f"{REQUESTS}/{name}", is_issued)
    return x509.load_pem_x509_certificate(base64.b64decode(issued["status"]["certificate"]))


def anchor_of(authority: Any) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority["status"]["certificate"].encode())


def test_controllers_of_one_server_issue_for_both(etcd: str, tmp_path: Path) -> None:
    """Made at one, seen at the other, who approved included; the key and its loss are shared."""
    with two_servers(etcd, tmp_path, *QUIET) as (one, two), controllers_of(one):
        authority_on(two)
        ready = until(two, f"{AUTHORITIES}/web", says_ready("Issuing"))
        leaf = leaf_of(two, one, "r")
        _, record = call(two, "GET", f"{ISSUED}/{leaf.serial_number:x}")
        _, key = call(one, "GET", f"{SIGNING_KEYS}/web-1")
        status, _ = call(one, "DELETE", f"{SECRETS}/signing-key-{key['metadata']['uid']}")
        lost = until(two, f"{AUTHORITIES}/web", says_ready("KeyLost"))

    assert status == 200
    assert record["spec"]["approver"]["username"] == "admin"
    leaf.verify_directly_issued_by(anchor_of(ready))
    assert lost["status"]["certificate"] == ready["status"]["certificate"]


def test_an_authority_outlives_the_server_that_made_its_key(etcd: str, tmp_path: Path) -> None:
    """The server that runs the controllers ends; the other continues with the same key."""
    with two_servers(etcd, tmp_path) as servers:
        authority_on(servers[0])
        ready = until(servers[0], f"{AUTHORITIES}/web", says_ready("Issuing"))
        first, second = sorted(servers, key=lambda one: "leader.elected" not in one.log_text())
        before = leaf_of(second, first, "before")
        first.stop()
        after = leaf_of(second, second, "after")

    for leaf in (before, after):
        leaf.verify_directly_issued_by(anchor_of(ready))
