"""The size of an agent: what it loads, and its memory after many renewals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.features.hosts.agent.pretend_server import HOST, SIGNER, serving

ROOT = Path(__file__).resolve().parents[5]
# Packages of the project that an agent needs; each other one would cost memory on every host.
PACKAGES = {"base", "credentials", "outbound", "wire"}  # of the kernel; and nothing of a feature
UNWANTED = ("asyncio", "httptools", "uvloop", "sqlite3", "cel", "grpc", "rich", "multiprocessing")
MODULES = 320
MEGABYTES = 40
OUTPUTS, ROUNDS = 10, 10
PROGRAM = """
import random, sys
from pathlib import Path
from orchid.features.hosts.agent import items
from orchid.features.hosts.agent.running import program
from orchid.features.hosts.agent.agent import Agent
from orchid.features.hosts.agent.configuration import read_configuration
from orchid.features.hosts.agent.state_directory import opened
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.kernel.base.clock import SystemClock
items.AFTER_SWAP = 0.0
configuration = read_configuration(Path(sys.argv[1]))
with opened(Path(configuration.state)) as state:
    agent = Agent(configuration, state, SystemClock(), Supervisor({}), random.SystemRandom())
    seen = set()
    for _ in range(int(sys.argv[2])):
        agent.check_once()
        seen |= {Path(one.directory, "tls.crt").read_text() for one in configuration.outputs}
    code = agent.exit_code()
memory = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(code, len(seen), memory.split()[1], *sorted(sys.modules))
"""


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    file = tmp_path / "agent.yaml"
    certificate = {"signer": SIGNER, "dnsNames": [HOST]}
    outputs = [
        {"name": f"o{n}", "directory": str(tmp_path / f"o{n}"), "certificate": certificate}
        for n in range(OUTPUTS)
    ]
    document = {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "AgentConfiguration",
        "join": {"file": str(tmp_path / "join.kubeconfig")},
        "state": str(tmp_path / "state"),
        "outputs": outputs,
    }
    file.write_text("# read as YAML, whose parser counts too\n---\n" + json.dumps(document))
    return file


def test_an_agent_is_small_after_a_hundred_renewals(agent_file: Path, tmp_path: Path) -> None:
    """No event loop, no kinds, no engine, no server; less than 40 MB."""
    with serving() as server:
        server.join_file(tmp_path / "join.kubeconfig")
        server.windows = (-3600.0, -1800.0)

        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(agent_file), str(ROUNDS)],
            env={"MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    code, renewals, kilobytes, *modules = done.stdout.split()
    packages = {name.split(".")[2] for name in modules if name.startswith("orchid.kernel.")}
    features = {name.split(".")[2] for name in modules if name.startswith("orchid.features.")}
    loaded = {name.partition(".")[0] for name in modules}
    assert (code, renewals) == ("0", str(OUTPUTS * ROUNDS))
    assert packages == PACKAGES
    assert features == {"hosts"}
    assert [name for name in UNWANTED if name in loaded] == []
    assert len(modules) < MODULES
    assert int(kilobytes) < MEGABYTES * 1024
