"""A controller keeps watching while the server restarts under it, and misses nothing.

The controller is recording_operator.py, made with kopf, whose informer lists once and then watches
from the last version that it has seen. $ORCHID_CONTROLLER_SECONDS says for how long.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.exchanges import TOKENS
from tests.e2e import serving
from tests.e2e.https import Https
from tests.e2e.issuing import new_request

SECONDS = float(os.environ.get("ORCHID_CONTROLLER_SECONDS", "10"))
PATIENCE_SECONDS = 40.0
POLL_SECONDS = 0.02
OPERATOR = Path(__file__).with_name("recording_operator.py")
FLAGS = ("--naming", "kubernetes", "--token-auth-file", str(TOKENS))
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

Event = tuple[str, str, str]  # its type, the object's kind and its name


@dataclass
class Writer:
    """Makes, changes and deletes objects, and remembers what a watcher has to see of it."""

    port: int
    request: bytes
    expected: list[Event] = field(default_factory=list)

    def write(self, phase: str, names: list[str]) -> None:
        with Https(self.port) as https:
            for name in names:
                self._write(https, phase, ACCOUNTS, account(name))
                self._write(https, phase, REQUESTS, certificate_request(name, self.request))

    def _write(self, https: Https, phase: str, place: str, body: Any) -> None:
        name = body["metadata"]["name"]
        merge = {"Content-Type": "application/merge-patch+json"}
        labelled = {"metadata": {"labels": {"phase": phase.lower()}}}
        token = "admin-token-0001"
        if phase == "ADDED":
            reply = https.send("POST", place, body, token=token)
        elif phase == "MODIFIED":
            reply = https.send("PATCH", f"{place}/{name}", labelled, token=token, headers=merge)
        else:
            reply = https.send("DELETE", f"{place}/{name}", token=token)
        assert reply.status in {200, 201}, reply.body
        self.expected.append((phase, body["kind"], name))


def account(name: str) -> Any:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def certificate_request(name: str, request: bytes) -> Any:
    spec = {"signerName": "example.test/nobody", "usages": ["client auth"]}
    spec["request"] = base64.b64encode(request).decode()
    return {"kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Record:
    """The notes of the controller so far."""

    path: Path

    def lines(self) -> list[tuple[str | None, str, str, int]]:
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [
            (kind, of, name, int(version)) for kind, of, name, version in map(json.loads, whole)
        ]

    def wait_for(self, count: int) -> None:
        """Wait for this many events; the comparison would find additional ones."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.ours()) < count:
            assert time.monotonic() < deadline, f"{len(self.ours())} of {count} events arrived"
            time.sleep(POLL_SECONDS)

    def wait_for_listing(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(name == "there-before" for _, _, name, _ in self.lines()):
            assert time.monotonic() < deadline, "the controller listed nothing"
            time.sleep(POLL_SECONDS)

    def ours(self) -> list[Event]:
        return [
            (kind or "LISTED", of, name)
            for kind, of, name, _ in self.lines()
            if name.startswith("round-")
        ]


@contextmanager
def operator(kubeconfig: Path, record: Path) -> Iterator[None]:
    """The controller, as a process of its own, for as long as the block lasts."""
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces"]
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "ORCHID_RECORD": str(record)}
    log = record.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(OPERATOR)], stdout=output, stderr=subprocess.STDOUT, env=environ
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.system_package("openssl")
def test_no_event_is_lost_or_repeated_while_the_server_restarts(tmp_path: Path) -> None:
    """Every write is seen once, in order, though the server ends or dies after every few."""
    data = tmp_path / "data"
    server = serving.wait_until_ready(serving.start(data, *FLAGS))
    writer = Writer(server.port, new_request(tmp_path / "key", "/CN=jane"))
    record = Record(tmp_path / "record")
    with Https(server.port) as https:
        https.send("POST", ACCOUNTS, account("there-before"), token="admin-token-0001")
    restarts = 0

    try:
        with operator(server.kubeconfig, record.path):
            record.wait_for_listing()
            until = time.monotonic() + SECONDS  # a busy machine takes long to get here
            while time.monotonic() < until:
                names = [f"round-{restarts}-{number}" for number in range(3)]
                for phase in ("ADDED", "MODIFIED", "DELETED"):
                    writer.write(phase, names)
                    # Half of the events are on their way when the server ends.
                    (server.kill, server.stop)[restarts % 2]()
                    server = serving.start(data, *FLAGS, port=server.port)
                    server = serving.wait_until_ready(server)
                    restarts += 1
                    # The controller joins what comes together, so each phase waits for the last.
                    record.wait_for(len(writer.expected))
            seen = record.lines()
    finally:
        server.kill()

    assert restarts >= 3
    assert sorted(record.ours()) == sorted(writer.expected), "lost or repeated"
    for kind in ("ServiceAccount", "CertificateSigningRequest"):
        versions = [version for type_, of, _, version in seen if of == kind and type_]
        assert len(versions) == len(set(versions))
        by_name = [(name, type_) for type_, of, name, _ in seen if of == kind and type_]
        for name in {name for name, _ in by_name if name.startswith("round-")}:
            story = [type_ for of, type_ in by_name if of == name]
            assert story == ["ADDED", "MODIFIED", "DELETED"]
