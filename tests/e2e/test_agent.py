"""`orchid agent` on a host: from the join file to a renewed certificate, with a real server."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.e2e.issuing import openssl
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

pytestmark = pytest.mark.system_package("openssl", "nginx")

HOST = "web-1.example.com"
POLICY = """
apiVersion: identity.orch.io/v1alpha1
kind: ApprovalPolicy
metadata: {name: own-names}
spec:
  signerNames: [example.com/servers]
  allows:
    dnsNames: ["*.example.com"]
    usages: [digital signature, key encipherment, server auth]
    keys: [ECDSA-P256]
    maxDuration: 720h
  rules:
  - expression: "request.dnsNames.all(n, user.username == 'system:node:' + n)"
    message: a host gets a certificate for its own name
"""
PATIENCE = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("agent") / "data") as started:
        home = tmp_path_factory.mktemp("operator")
        operator = Person(home, started.kubeconfig)
        operator.types("ca", "new", "servers", "--signer", "example.com/servers")
        (home / "policy.yaml").write_text(POLICY)
        policy = ("policy", "apply", str(home / "policy.yaml"))
        operator.types(*policy, "--for-group", "system:nodes")
        yield started


@pytest.fixture
def operator(server: Server, tmp_path: Path) -> Person:
    return Person(tmp_path, server.kubeconfig)


class Machine:
    """A host with a configuration."""

    def __init__(self, place: Path, operator: Person, name: str = HOST) -> None:
        self.place, self.name = place / name, name
        self.place.mkdir()
        self.join = self.place / "join.kubeconfig"
        self.web = self.place / "web"
        self.file = self.place / "agent.yaml"
        operator.types("host", "new", name, "--for", "1h", "--out", str(self.join))

    def configure(self, *outputs: dict[str, object]) -> None:
        certificate = {"signer": "example.com/servers", "dnsNames": [self.name], "lifetime": "24h"}
        web = {"name": "web", "directory": str(self.web), "certificate": certificate}
        document = {
            "apiVersion": "identity.orch.io/v1alpha1",
            "kind": "AgentConfiguration",
            "join": {"file": str(self.join)},
            "state": str(self.place / "state"),
            "checkEvery": "1m",
            "metricsFile": str(self.place / "agent.prom"),
            "outputs": list(outputs) or [web],
        }
        self.file.write_text(yaml.safe_dump(document))

    def types(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return Person(self.place, self.join).types(
            "agent", *words, "--config", str(self.file), code=code
        )

    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.web / "tls.crt").read_bytes())

    @contextlib.contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """`orchid agent` as a service; it ends with exit code 0."""
        log = self.place / "agent.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchid", "agent", "--config", str(self.file)],
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE)
        assert code == 0, log.read_text()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_once_joins_and_writes_a_verified_pair(
    server: Server, operator: Person, tmp_path: Path
) -> None:
    """One run from the join file to the files of every kind of output; a second changes nothing."""
    host = Machine(tmp_path, operator)
    operator.types("account", "new", "shop/frontend")
    placed = ("host", "place", HOST, "shop/frontend", "--audience", "https://vault.example")
    operator.types(*placed, "--api", "--signer", "orch.io/orch-apiserver-client-pod")
    place = {
        word: str(host.place / word) for word in ("web", "vault", "trust", "api", "own", "pod")
    }
    certificate = {"signer": "example.com/servers", "dnsNames": [HOST]}
    token = {"account": "shop/frontend", "audience": "https://vault.example"}
    bundle = {"signer": "example.com/servers", "formats": ["pem", "p12"], "password": "changeit"}
    by_pod = {"signer": "orch.io/orch-apiserver-client-pod", "as": "shop/frontend"}
    host.configure(
        {"name": "web", "directory": place["web"], "certificate": certificate},
        {"name": "vault", "directory": place["vault"], "token": token},
        {"name": "trust", "directory": place["trust"], "bundle": bundle},
        {"name": "api", "directory": place["api"], "kubeconfig": {"account": "shop/frontend"}},
        {"name": "own", "directory": place["own"], "kubeconfig": {}},
        {"name": "pod", "directory": place["pod"], "certificate": by_pod},
    )

    host.types("--once")
    before = host.leaf()
    host.types("--once")
    status = json.loads(host.types("status", "-o", "json").stdout)

    assert host.leaf() == before
    assert not host.join.exists()
    assert {one["state"] for one in status["outputs"]} == {"fresh"}
    web = host.place / "web"
    openssl("verify", "-CAfile", web / "ca.crt", web / "tls.crt")
    api = Person(tmp_path, host.place / "api" / "kubeconfig").types("whoami").stdout
    own = Person(tmp_path, host.place / "own" / "kubeconfig").types("whoami").stdout
    assert "system:serviceaccount:shop:frontend" in api
    assert f"system:node:{HOST}" in own
    subject = openssl("x509", "-in", host.place / "pod" / "tls.crt", "-noout", "-subject")
    assert "system:serviceaccount:shop:frontend" in subject
    assert (
        'orchid_agent_output_state{output="web",state="fresh"} 1'
        in (host.place / "agent.prom").read_text()
    )
    assert "fresh" in host.types("status").stdout


def test_waiting_and_mistakes_have_their_exit_codes(operator: Person, tmp_path: Path) -> None:
    """A name that the policy does not give waits for a person; a misspelt field ends the start."""
    host = Machine(tmp_path, operator, "db-1.example.com")
    other = {"signer": "example.com/servers", "dnsNames": ["other.example.com"]}
    host.configure({"name": "web", "directory": str(host.web), "certificate": other})

    waiting = host.types("--once", code=3)
    status = host.types("status", code=3)
    host.file.write_text(host.file.read_text().replace("dnsNames", "dnsName"))
    misspelt = host.types("--once", code=2)

    assert "waits for approval" in waiting.stderr
    assert "waits for approval" in status.stdout
    assert "unknown field `dnsName`" in misspelt.stderr
    assert "line" in misspelt.stderr
