"""A renewal of the agent, killed at every system call: `python -m tests.faults.killed_renewals`.

A forked agent is traced (ptrace) and gets SIGKILL when it enters its Nth system call, for each N
until a renewal is complete. After each kill, `tls.crt`, `tls.key` and `tls.pem` must be one
matching pair; the next start must complete the renewal and its reload, and leave nothing behind.

    --every N    only each Nth system call (the test suite does that)

The directory has `live` with the agent's files, and `start`, a copy that each trial begins with.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orchid.features.hosts.agent import items
from orchid.features.hosts.agent.agent import Agent
from orchid.features.hosts.agent.configuration import read_configuration
from orchid.features.hosts.agent.held_certificate import read_held
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.features.hosts.agent.state_directory import opened
from orchid.kernel.base.clock import SystemClock
from tests.unit.features.hosts.agent.pretend_server import HOST, SIGNER, PretendServer, serving

TRACE_ME, CONTINUE_TO_CALL, SET_OPTIONS = 0, 24, 0x4200  # of ptrace(2)
MARK_CALLS: Final = 1  # PTRACE_O_TRACESYSGOOD: a stop at a system call has bit 7 set
CALL_STOP: Final = signal.SIGTRAP | 0x80
FAILED: Final = 99

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, pid: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


class Trials:
    """The files of an agent, and trials that disturb its renewal."""

    def __init__(self, place: Path) -> None:
        self.live, self._start = place / "live", place / "start"

    def prepare(self, server: PretendServer) -> None:
        """Write a configuration for a server whose certificates are due at every check."""
        self.live.mkdir()
        server.join_file(self.live / "join.kubeconfig")
        server.windows = (-3600.0, -1800.0)
        copying = ["/bin/cp", str(self.live / "web" / "tls.crt"), str(self.live / "seen")]
        web = {
            "name": "web",
            "directory": str(self.live / "web"),
            "certificate": {"signer": SIGNER, "dnsNames": [HOST]},
            "reload": [{"command": copying}],
        }
        document = {
            "apiVersion": "identity.orch.io/v1alpha1",
            "kind": "AgentConfiguration",
            "join": {"file": str(self.live / "join.kubeconfig")},
            "state": str(self.live / "state"),
            "outputs": [web],
        }
        (self.live / "agent.yaml").write_text(json.dumps(document))

    def first(self) -> None:
        """Join and write the first certificate: each trial begins with it."""
        assert self.completed() == 0, "the first check fails"
        (self.live / "seen").unlink()
        shutil.copytree(self.live, self._start, symlinks=True)

    def again(self) -> bytes:
        """Begin a trial; the certificate that is to be renewed."""
        shutil.rmtree(self.live)
        shutil.copytree(self._start, self.live, symlinks=True)
        return self.read("tls.crt")

    def read(self, name: str) -> bytes:
        return (self.live / "web" / name).read_bytes()

    def has_pair(self) -> bool:
        """Whether a program that opens the files finds one certificate with its key."""
        chain, key = self.read("tls.crt"), self.read("tls.key")
        return read_held(chain, key) is not None and self.read("tls.pem") == key + chain

    def completed(self) -> int:
        """Check once, undisturbed; the exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self._forked(self._check), 0)[1])

    def left(self) -> list[str]:
        """What a completed renewal should not leave behind."""
        state = self.live / "state"
        found = [*(state / "reloads").iterdir(), *(state / "requests").iterdir()]
        generations = [one for one in (self.live / "web").iterdir() if one.name.startswith("..2")]
        return [str(one) for one in (*found, *generations[2:])]

    # -- disturbances ------------------------------------------------------------------------

    def killed_at(self, number: int) -> bool:
        """Kill a check as it enters a system call; False if it ended before."""

        def traced() -> int:
            ptrace(TRACE_ME)
            os.kill(os.getpid(), signal.SIGSTOP)
            return self._check()

        child = self._forked(traced)
        os.waitpid(child, 0)
        ptrace(SET_OPTIONS, child, MARK_CALLS)
        stops, passed_on = 0, 0
        while True:
            ptrace(CONTINUE_TO_CALL, child, passed_on)
            _, status = os.waitpid(child, 0)
            if not os.WIFSTOPPED(status):
                assert os.waitstatus_to_exitcode(status) == 0, "the undisturbed check fails"
                return False
            passed_on = 0
            if os.WSTOPSIG(status) != CALL_STOP:
                passed_on = os.WSTOPSIG(status)  # a signal of the agent itself, like SIGCHLD
                continue
            stops += 1
            if stops == 2 * number - 1:  # each call stops twice, at its begin and at its end
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return True

    def _check(self) -> int:
        vars(items)["AFTER_SWAP"] = 0.0  # otherwise files change at most once a minute
        configuration = read_configuration(self.live / "agent.yaml")
        with opened(self.live / "state") as state:
            agent = Agent(
                configuration, state, SystemClock(), Supervisor({}), random.SystemRandom()
            )
            agent.check_once()
            return agent.exit_code()

    @staticmethod
    def _forked(work: Callable[[], int]) -> int:
        child = os.fork()
        if child == 0:
            code = FAILED
            try:
                code = work()
            finally:
                os._exit(code)
        return child


def problems(trials: Trials, *, every: int = 1) -> tuple[int, list[dict[str, Any]]]:
    """Kill a renewal at each Nth system call; how many kills, and each one that did harm."""
    killed, wrong, number = 0, list[dict[str, Any]](), 1
    while True:
        before = trials.again()
        if not trials.killed_at(number):
            return killed, wrong
        killed += 1
        is_pair, is_new = trials.has_pair(), trials.read("tls.crt") != before
        code = trials.completed()
        seen = trials.live / "seen"
        found = {
            "matching pair": is_pair and trials.has_pair(),
            "completed": code == 0 and trials.read("tls.crt") != before,
            "reloaded": seen.exists() and seen.read_bytes() == trials.read("tls.crt"),
            "cleaned up": not trials.left(),
        }
        if not all(found.values()):
            wrong.append({"call": number, "was new": is_new, "code": code, **found})
        number += every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--prepared", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.prepared is None:
        sys.exit(_serve(chosen.every))
    trials = Trials(chosen.prepared)
    trials.first()
    killed, wrong = problems(trials, every=chosen.every)
    lines = [f"{killed} kills, {len(wrong)} with harm", *map(str, wrong)]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(bool(wrong))


def _serve(every: int) -> int:
    """Serve here and run the trials in a process without threads, since they fork."""
    with tempfile.TemporaryDirectory() as place, serving() as server:
        Trials(Path(place)).prepare(server)
        words = ("--every", str(every), "--prepared", place)
        return subprocess.run([sys.executable, "-m", __spec__.name, *words], check=False).returncode


if __name__ == "__main__":
    main()
