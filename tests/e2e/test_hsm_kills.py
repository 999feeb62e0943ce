"""An authority with keys in an HSM (SoftHSM) rotates, and its server is killed at random points.

After each rotation one key signs, every certificate of every key is accepted below the published
bundle, and the token has the keys that it had.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, start, wait_until_ready
from tests.soft_hsm import SoftHsm
from tests.system_packages import require_program

SIGNER = "example.com/web"
HOST = "web.example.com"
KEYS = "/apis/identity.orch.io/v1beta1/signingkeys"
ROTATIONS, KILLS = 2, 1  # kills in each rotation
PATIENCE = 120.0
SEED = random.SystemRandom().randrange(1 << 32)


class KilledServer:
    """A server that can be killed at any time, and starts again on the same directory and port."""

    def __init__(self, directory: Path, soft: SoftHsm) -> None:
        settings = soft.flags.items()
        self._flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings]
        self._directory, self._port = directory, free_port()
        self.server = self._start()

    def _start(self) -> Server:
        made = start(self._directory, *self._flags, port=self._port)
        return wait_until_ready(made, PATIENCE)

    def kill(self) -> None:
        self.server.kill()
        self.server = self._start()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} (seed {SEED})"
        time.sleep(0.2)


class Operator:
    """Types a command until it succeeds: the server is killed meanwhile."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.kubectl = Kubectl(person.kubeconfig, person.home)

    def tries(self, *words: str) -> bool:
        command = [sys.executable, "-m", "orchid", *words]
        return (
            subprocess.run(
                command,
                cwd=self.person.home,
                env={**os.environ, **self.person.environment},
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )

    def keys(self) -> dict[str, tuple[str, str]]:
        """Name and state of each key of the HSM, by label; empty while no server answers."""
        said = self.kubectl.run("get", "--raw", KEYS)
        items = json.loads(said.out)["items"] if said.code == 0 else []
        return {
            one["spec"]["pkcs11"]["label"]: (one["metadata"]["name"], one["spec"]["state"])
            for one in items
            if one["spec"].get("pkcs11")
        }

    def certified(self, name: str) -> None:
        until(
            lambda: (
                (self.person.home / f"{name}.key").exists()
                or self.tries("csr", "new", name, "--signer", SIGNER, "--dns", HOST)
            ),
            "no request",
        )
        until(lambda: self.tries("csr", "approve", name), "no approval")
        until(lambda: self.tries("csr", "fetch", name), "no certificate")

    def rotated(self, label: str) -> None:
        """Import a key of the HSM, and sign with it."""

        def activated() -> bool:
            name, state = self.keys().get(label, ("", ""))
            if not name:
                self.tries("key", "import", "--authority", "web", "--pkcs11", label)
            if state == "Published":
                self._published_long_ago(name)
                self.tries("ca", "rotate", "web", "--hurry", "--wait", "5s")
            return state == "Active"

        until(activated, f"{label} never signs")

    def _published_long_ago(self, name: str) -> None:
        since = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = json.dumps({"status": {"times": {"published": since}}})
        patch = ("patch", "signingkeys", name, "--subresource=status", "--type=merge", "-p", times)
        self.kubectl.run(*patch)  # the leader writes other times


@pytest.mark.system_package("softhsm2-util", "openssl", "kubectl")
def test_kills_during_rotations_lose_no_key_and_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the server was doing with the module when it was killed."""
    for program in ("openssl", "kubectl"):
        require_program(program)
    choice, soft = random.Random(SEED), SoftHsm(tmp_path / "hsm")
    monkeypatch.setenv("SOFTHSM2_CONF", str(soft.configuration))
    labels = [f"web-hsm-{number}" for number in range(ROTATIONS)]
    killed = KilledServer(tmp_path / "data", soft)
    try:
        for label in labels:
            soft.generate(label)
        operator = Operator(Person(tmp_path, killed.server.kubeconfig))
        operator.person.types("ca", "new", "web", "--signer", SIGNER)
        operator.certified("first")

        for label in labels:
            rotation = threading.Thread(target=operator.rotated, args=(label,))
            rotation.start()
            for _ in range(KILLS):
                time.sleep(choice.uniform(0.0, 3.0))  # a random point of the rotation
                killed.kill()
            rotation.join()
            operator.certified(f"by-{label}")

        states = operator.keys()
        bundle = operator.person.types("bundle", "show", "--signer", SIGNER, "--pem").stdout
    finally:
        killed.server.kill()

    (tmp_path / "bundle.pem").write_text(bundle)
    active = [label for label, (_, state) in states.items() if state == "Active"]
    assert active == [labels[-1]], (states, SEED)
    assert sorted(states) == labels, (states, SEED)
    for name in ("first", *(f"by-{label}" for label in labels)):
        chain = f"{name}.crt"
        command = ["openssl", "verify", "-CAfile", "bundle.pem", "-untrusted", chain, chain]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0, (name, SEED)
