"""Sealing keys: every Secret can be read at every moment, while keys are added and retired.

Over etcd each server has a file of its own, changed one after the other.
"""

import base64
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.faults.systems import Machine, ServersOnEtcd
from tests.rotation.faults.rounds import Lost, Report, Subject

SECRETS = "/api/v1/namespaces/ci/secrets"
OK, CREATED, CONFLICT = 200, 201, 409
NUMBER = 40  # of Secrets
COMMAND_SECONDS = 60.0


class SealingKeys(Subject):
    name = "sealing"
    most_writes = 12
    patterns = (r"core/secrets/ci/", r"core/secrets/")

    def __init__(self, report: Report, rng: random.Random) -> None:
        super().__init__(report, rng)
        self._values: dict[str, set[str]] = {}  # what a Secret may hold: the last acknowledged one,
        self._written = 0  # and those of writes without an answer
        self._files: dict[str, Path] = {}
        self._names = threading.Lock()

    def prepare(self, machine: Machine) -> None:
        if isinstance(self.system, ServersOnEtcd):
            shared = Path(machine.flags[machine.flags.index("--encryption-provider-config") + 1])
            own = shared.with_name(f"{machine.data.name}.yaml")
            shutil.copy(shared, own)
            machine.flags = (*machine.flags, "--encryption-provider-config", str(own))
            self._files[machine.data.name] = own
        else:
            self._files[machine.data.name] = machine.data / "encryption.yaml"

    def begin(self) -> None:
        for number in range(NUMBER):
            self._write(number, f"s{number}", "POST", SECRETS)

    # -- clients -----------------------------------------------------------------------------

    def work(self, turn: int) -> None:
        name = f"s{self.rng.randrange(NUMBER)}"
        if turn % 5 == 0:
            self._write(turn, name, "PUT", f"{SECRETS}/{name}")
        else:
            self._read(turn, name)

    def _write(self, turn: int, name: str, method: str, place: str) -> None:
        with self._names:  # one writer at a time, so that the last value is known
            self._written += 1
            value = f"value {self._written}"
            self._values.setdefault(name, set()).add(value)
            body = {"metadata": {"name": name}, "stringData": {"password": value}}
            self.send(turn, method, place, body, (OK, CREATED))
            self._values[name] = {value}
        self.count("writes")

    def _read(self, turn: int, name: str) -> None:
        with self._names:
            allowed = set(self._values[name])
            found = self.send(turn, "GET", f"{SECRETS}/{name}", None, (OK,)).json["data"]
        value = base64.b64decode(found["password"]).decode()
        self.count("reads")
        if value not in allowed:
            self.violate(f"Secret {name} has {value!r} instead of {allowed}")

    # -- the rotation ------------------------------------------------------------------------

    def drive(self) -> None:
        """Add a key to each file, one by one; then remove the others, one by one."""
        first, *others = self._files.values()
        if len(self._keys(first)) == 1:
            self._orchid("key", "rotate", "sealing", "--file", str(first))
        self._spread(first, others)
        for key in self._keys(first)[1:]:
            self._orchid("key", "retire", f"sealing/{key}", "--file", str(first))
        self._spread(first, others)
        if len(self._keys(first)) == 1:
            self.count("rotations")
            time.sleep(1)

    def _spread(self, first: Path, others: list[Path]) -> None:
        for other in others:
            if other.read_bytes() != first.read_bytes():
                time.sleep(self.rng.random())
                fresh = other.with_suffix(".new")
                fresh.touch(mode=0o600)
                fresh.write_bytes(first.read_bytes())
                fresh.replace(other)

    def _keys(self, file: Path) -> list[str]:
        """The names of the keys in a file, in order."""
        words = file.read_text().replace('"', "").replace(",", " ").split()
        return [words[n + 1] for n, word in enumerate(words) if word.lstrip("{[-") == "name:"]

    def _orchid(self, *words: str) -> str:
        """Run a command with any server; the reason if it refuses."""
        machine = self.rng.choice(self.system.machines)
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *words],
            env={**os.environ, "KUBECONFIG": str(machine.data / "admin.kubeconfig")},
            capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        if "Traceback" in done.stderr:
            self.violate(f"orchid {' '.join(words)}: {done.stderr}")
        return "" if done.returncode == 0 else done.stderr or "no reason"

    # -- what must hold ----------------------------------------------------------------------

    def unsettled(self) -> str:
        left = self._keys(next(iter(self._files.values())))[1:]
        return f"{left} cannot be retired" if left else ""

    def judge(self) -> None:
        for turn in range(len(self.system.machines)):
            for name in self._values:
                self._read(turn, name)
        if not self.report.done["rotations"]:
            raise Lost("no rotation was completed")
