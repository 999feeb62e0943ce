"""A renewal that is killed at any of its steps: files, requests, network and the reload.

A forked agent gets SIGKILL before the Nth thing that it does to the outside; Python reports each by
an audit event. The writer itself is killed at every system call in tests/e2e/test_agent_files.py.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.agent.pretend_server import HOST, SIGNER, serving

ROOT = Path(__file__).resolve().parents[3]
LEAST_STEPS = 40
PROGRAM = """
import os, pathlib, random, shutil, signal, sys
from orchid.agent import items, program
from orchid.agent.agent import Agent
from orchid.agent.configuration import read_configuration
from orchid.agent.held_certificate import read_held
from orchid.agent.state_directory import opened
from orchid.agent.supervision import Supervisor
from orchid.clock import SystemClock

items.AFTER_SWAP = 0.0
place = pathlib.Path(sys.argv[1])
live, start = place / "live", place / "start"
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.symlink",
          "http.client.connect", "subprocess.Popen"}
WRITING = os.O_WRONLY | os.O_RDWR

def is_step(event, arguments):
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
    if event == "http.client.send":
        return arguments[1][:4] == b"POST"
    return event in EVENTS

def check(kill_at=0):
    if kill_at:
        count = 0
        def hook(event, arguments):
            nonlocal count
            if is_step(event, arguments):
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
    configuration = read_configuration(live / "agent.yaml")
    with opened(live / "state") as state:
        agent = Agent(configuration, state, SystemClock(), Supervisor({}), random.SystemRandom())
        agent.check_once()
        return agent.exit_code()

def forked(kill_at):
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = check(kill_at)
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]

def read(name):
    return (live / "web" / name).read_bytes()

def pair():
    held = read_held(read("tls.crt"), read("tls.key"))
    return held is not None and read("tls.pem") == read("tls.key") + read("tls.crt")

assert forked(0) == 0, "the first check fails"
(live / "seen").unlink()
shutil.copytree(live, start, symlinks=True)
before = read("tls.crt")
wrong, step = [], 0
while True:
    step += 1
    shutil.rmtree(live)
    shutil.copytree(start, live, symlinks=True)
    status = forked(step)
    if not os.WIFSIGNALED(status):
        break
    has_pair, is_new = pair(), read("tls.crt") != before
    code = os.waitstatus_to_exitcode(forked(0))
    seen = (live / "seen").read_bytes() if (live / "seen").exists() else b""
    left = list((live / "state" / "reloads").iterdir())
    if not has_pair or not pair() or code != 0 or seen != read("tls.crt") or left:
        wrong.append((step, has_pair, is_new, code, seen == read("tls.crt"), left))
print(step - 1, wrong)
"""


def test_a_killed_renewal_leaves_a_pair_and_is_completed(tmp_path: Path) -> None:
    """After each kill: one matching pair; after the next start: fresh, and reloaded."""
    live = tmp_path / "live"
    live.mkdir()
    certificate = {"signer": SIGNER, "dnsNames": [HOST]}
    copying = ["/bin/cp", str(live / "web" / "tls.crt"), str(live / "seen")]
    web = {
        "name": "web",
        "directory": str(live / "web"),
        "certificate": certificate,
        "reload": [{"command": copying}],
    }
    document = {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "AgentConfiguration",
        "join": {"file": str(live / "join.kubeconfig")},
        "state": str(live / "state"),
        "outputs": [web],
    }
    (live / "agent.yaml").write_text(json.dumps(document))
    with serving() as server:
        server.join_file(live / "join.kubeconfig")
        server.windows = (-3600.0, -1800.0)

        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    steps, wrong = done.stdout.split(maxsplit=1)
    assert wrong.strip() == "[]"
    assert int(steps) >= LEAST_STEPS
