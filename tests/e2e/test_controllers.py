"""The controllers beside a real server: in its process, in one of their own, and after a crash."""

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server
from tests.unit.kernel.credentials import samples

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
ROOTS = "/api/v1/namespaces/default/configmaps/orch-root-ca.crt"
ADMIN = "admin-token-0001"
PATIENCE = 30.0


def call(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    trust = ssl.create_default_context(cafile=str(server.data_dir / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust, timeout=10)
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def until(server: Server, path: str, is_so: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as it should be."""
    deadline = time.monotonic() + PATIENCE
    while True:
        status, found = call(server, "GET", path)
        if status == 200 and is_so(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def ask_and_approve(server: Server, name: str) -> None:
    request = b64encode(samples.request("alice", ("dev",))).decode()
    spec = {
        "request": request,
        "signerName": "orch.io/orch-apiserver-client",
        "usages": ["digital signature", "client auth"],
    }
    status, made = call(server, "POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})
    assert status == 201, made
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByTest"}]}
    status, approved = call(server, "PUT", f"{REQUESTS}/{name}/approval", made)
    assert status == 200, approved


def is_issued(csr: Any) -> bool:
    return bool(csr["status"].get("certificate"))


def test_controllers_run_in_the_servers_process_and_survive_its_crash(
    start_server: StartServer,
) -> None:
    """After a kill the same server leads immediately, without waiting for its old Lease."""
    first = start_server()
    ask_and_approve(first, "before")
    until(first, f"{REQUESTS}/before", is_issued)
    first.kill()

    second = start_server(port=first.port)
    ask_and_approve(second, "after")

    until(second, f"{REQUESTS}/after", is_issued)


def test_controllers_run_in_a_process_of_their_own(
    start_server: StartServer, tmp_path: Path
) -> None:
    """With a kubeconfig alone, over TLS: keys are those of the server. They end in order."""
    server = start_server("--controllers", "")
    kubeconfig = str(server.data_dir / "admin.kubeconfig")
    roots = (server.data_dir / "ca.crt").read_text()
    ask_and_approve(server, "r")
    assert not is_issued(call(server, "GET", f"{REQUESTS}/r")[1])
    command = [sys.executable, "-m", "orchid", "controllers", "--kubeconfig", kubeconfig]
    command += ["--data-dir", str(tmp_path / "empty")]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(server, f"{REQUESTS}/r", is_issued)
        until(server, "/api/v1/namespaces/default/serviceaccounts/default", lambda found: True)
        until(server, ROOTS, lambda found: found["data"]["ca.crt"] == roots)
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
        program.wait()

    assert program.returncode == 0, output.decode()
    lease = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases/orch-controller-manager"
    assert call(server, "GET", lease)[1]["spec"]["holderIdentity"] == ""


def test_misspelt_controller_ends_the_start_with_one_line(tmp_path: Path) -> None:
    """Exit code 2 and a sentence, no traceback."""
    command = [sys.executable, "-m", "orchid", "serve", "--controllers", "crssigning"]
    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data"), "--store", "memory"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 2
    assert "'crssigning' is no controller" in done.stderr
    assert "Traceback" not in done.stderr
