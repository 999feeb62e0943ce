"""`orchid agent` on a host: from the join file to a renewed certificate, with a real server."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.e2e.issuing import openssl
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server
from tests.e2e.tls_services import (
    PATIENCE,
    Callers,
    Nginx,
    PostgreSql,
    TlsService,
    readable_directory,
    until,
)

pytestmark = pytest.mark.system_package("openssl")

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("agent") / "data") as started:
        home = tmp_path_factory.mktemp("operator")
        operator = Person(home, started.kubeconfig)
        operator.types("ca", "new", "servers", "--signer", "example.com/servers")
        mesh = ("ca", "new", "mesh", "--signer", "example.com/mesh")
        operator.types(*mesh, "--trust-domain", "example.org")
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

    def configure(
        self,
        *outputs: dict[str, object],
        owner: str = "",
        reload: dict[str, object] | None = None,
    ) -> None:
        certificate = {"signer": "example.com/servers", "dnsNames": [self.name], "lifetime": "24h"}
        web: dict[str, object] = {
            "name": "web",
            "directory": str(self.web),
            "certificate": certificate,
        }
        if owner:
            web["owner"] = owner
        if reload is not None:
            web["reload"] = [reload]
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


def test_once_joins_and_writes_a_verified_pair(
    server: Server, operator: Person, tmp_path: Path
) -> None:
    """One run from the join file to the files of every kind of output; a second changes nothing."""
    host = Machine(tmp_path, operator)
    operator.types("account", "new", "shop/frontend")
    placed = ("host", "place", HOST, "shop/frontend", "--audience", "https://vault.example")
    signers = ("--signer", "orch.io/orch-apiserver-client-pod", "--signer", "example.com/mesh")
    operator.types(*placed, "--api", *signers)
    words = ("web", "vault", "trust", "api", "own", "pod", "svid")
    place = {word: str(host.place / word) for word in words}
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
        {
            "name": "svid",
            "directory": place["svid"],
            "certificate": {"signer": "example.com/mesh", "as": "shop/frontend"},
        },
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
    verify_svid(server, host.place / "svid", "spiffe://example.org/ns/shop/sa/frontend")
    assert (
        'orchid_agent_output_state{output="web",state="fresh"} 1'
        in (host.place / "agent.prom").read_text()
    )
    assert "fresh" in host.types("status").stdout


def verify_svid(server: Server, svid: Path, spiffe_id: str) -> None:
    """Verify an X.509-SVID for both purposes with the SPIFFE bundle that anybody can fetch."""
    trust = ssl.create_default_context(cafile=str(server.data_dir / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust)
    connection.request("GET", "/trust/mesh.json")
    bundle = json.loads(connection.getresponse().read())
    connection.close()
    assert [key["use"] for key in bundle["keys"]] == ["x509-svid"]
    (encoded,) = bundle["keys"][0]["x5c"]
    anchors = svid.with_name("anchors.pem")
    anchors.write_text(ssl.DER_cert_to_PEM_cert(base64.b64decode(encoded)))
    for purpose in ("sslclient", "sslserver"):
        checks = ("-x509_strict", "-purpose", purpose, "-CAfile", anchors)
        openssl("verify", *checks, "-untrusted", svid / "tls.crt", svid / "tls.crt")
    text = openssl("x509", "-in", svid / "tls.crt", "-noout", "-ext", "subjectAltName")
    assert text.split()[-1] == f"URI:{spiffe_id}"


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


# --- services that use the files --------------------------------------------------------------


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(Nginx, marks=pytest.mark.system_package("nginx")),
        pytest.param(PostgreSql, marks=pytest.mark.system_package("pg_ctlcluster")),
    ],
)
def test_a_revoked_certificate_is_replaced_under_load(
    operator: Person, service: type[TlsService]
) -> None:
    """The agent notices the revocation, the service presents the new one, and no call fails."""
    with readable_directory() as place:
        host = Machine(place, operator, f"{service.__name__.lower()}-1.example.com")
        host.configure(owner=service.user())
        host.types("--once")
        first = host.leaf()
        program = service(host.place / "service", host.web)
        host.configure(owner=service.user(), reload=program.reload)
        os.utime(host.web / "..data", (0, 0), follow_symlinks=False)  # written long ago
        with (
            program.running() as port,
            host.running() as agent,
            Callers(service, port, host.web / "ca.crt") as callers,
        ):
            until(lambda: callers.answers > 20, "the service does not answer")
            operator.types(
                "revoke", f"cert/{first.serial_number:x}", "--yes", "--reason", "superseded"
            )
            agent.send_signal(signal.SIGHUP)
            until(lambda: host.leaf() != first, "the certificate is not replaced")
            new = host.leaf().public_bytes(serialization.Encoding.DER)
            until(lambda: new in callers.served, "the service does not present the new one")
            before = callers.answers
            until(lambda: callers.answers > before + 20, "the service does not answer any more")

        assert callers.failures == []
        assert host.types("status").returncode == 0


def test_systemd_hears_of_the_agent(operator: Person, tmp_path: Path) -> None:
    """READY when the files exist, a status line, the watchdog, and the memory of the process."""
    host = Machine(tmp_path, operator, "notify-1.example.com")
    host.configure()
    address = tmp_path / "notify"
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(PATIENCE)
        with host.running(NOTIFY_SOCKET=str(address), MALLOC_ARENA_MAX="1") as agent:
            while "READY=1" not in heard:
                heard.append(listener.recv(4096).decode())
            heard += [listener.recv(4096).decode() for _ in range(2)]
            memory = Path(f"/proc/{agent.pid}/status").read_text()
            is_written = (host.web / "tls.crt").exists()

    kilobytes = int(memory.partition("VmRSS:")[2].split()[0])
    assert is_written
    assert "WATCHDOG=1" in heard
    assert "STATUS=notify-1.example.com: 1 of 1 outputs fresh" in heard
    assert kilobytes < 40 * 1024
