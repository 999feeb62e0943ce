"""Many agents and one server: `python -m benchmarks.agents --agents 1000`.

The server runs on core 0. Agents are real `Agent` objects with real files in memory, in a few
processes on the other cores. Measured: the time until all have joined, rounds of checks, the
TokenReviews of another caller before (`alone`) and meanwhile, and the time from the start of one
`orchid agent` to its first request.

Real agents have machines of their own; here 1,000 of them share a core, and take longer than the
server. So the figure to compare is the CPU time of the server (`server_cpu_seconds`): the time that
its core would need if the agents were fast enough. `server_busy` is the share of the time in which
its core worked; far below 1, `seconds` is that of the agents. The agents have a lower priority than
the caller of the TokenReviews, so that its waiting is that for the server.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import islice
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.harness import (
    PINNED,
    SERVER_CORE,
    cpu_nanoseconds,
    processes,
    resident_bytes,
    write_results,
)
from orchid.features.certificates.commands import kubeconfig
from orchid.features.hosts.agent.agent import Agent
from orchid.features.hosts.agent.configuration import read_configuration
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.features.hosts.agent.state_directory import opened
from orchid.features.hosts.commands import host
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import ServerConnection
from tests.e2e.serving import Server, free_port, running_server

ROUNDS = 3
REVIEWS_ALONE = 500  # before the agents begin: what the machine itself does to a review
JOINING_SECONDS = 3600
WAITING_SECONDS = 300.0
PAUSE_SECONDS = 0.05
MEMORY = Path("/dev/shm")  # noqa: S108 -- its files are in a directory of this program
LOWER_PRIORITY = 10
THREADS = 10  # agents of a process that send at the same time
MILLISECONDS = 1000
NANOSECONDS = 1e9


def main() -> None:
    chosen = _arguments()
    with ExitStack() as ending:
        data = Path(ending.enter_context(tempfile.TemporaryDirectory()), "data")
        memory = MEMORY if MEMORY.is_dir() else None
        home = Path(ending.enter_context(tempfile.TemporaryDirectory(dir=memory)))
        server = ending.enter_context(running_server(data, launcher=PINNED))
        _leave_core_of_server()
        administrator = ending.enter_context(closing(_connection(server)))
        files = list(_hosts(administrator, home, chosen.agents))
        results: dict[str, Any] = {"agents": chosen.agents}
        results |= _measure(server, administrator, files, chosen.processes)
        results["first_request_seconds"] = _first_request(home)
    write_results("agents", results)
    print(json.dumps(results, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    return parser.parse_args()


def _leave_core_of_server() -> None:
    if others := os.sched_getaffinity(0) - {SERVER_CORE}:
        os.sched_setaffinity(0, others)


def _connection(server: Server) -> ServerConnection:
    found = kubeconfig_file.find(server.kubeconfig, {})
    return ServerConnection(kubeconfig_file.load(found), found)


def _hosts(server: ServerConnection, home: Path, count: int) -> Iterator[Path]:
    """A join file and a configuration for each host, with four outputs."""
    host.bind_roles(server)
    anchors = {"signer": server.naming.server_serving_signer}
    clients = {"signer": server.naming.client_signer}
    for number in range(count):
        name, place = f"host-{number}.example.com", home / f"host-{number}"
        place.mkdir()
        token = host.create_token(server, name, JOINING_SECONDS)
        join = place / "join.kubeconfig"
        join.write_text(kubeconfig.document(server, name, {"token": token}, ""))
        contents: list[dict[str, Any]] = [
            {"kubeconfig": {}},
            {"bundle": anchors},
            {"bundle": clients},
            {"bundle": {**clients, "formats": ["pem", "p12"]}},
        ]
        outputs = [
            {"name": f"o{index}", "directory": str(place / f"o{index}"), **content}
            for index, content in enumerate(contents)
        ]
        yield _configuration(place, join, outputs)


def _configuration(place: Path, join: Path, outputs: list[dict[str, Any]]) -> Path:
    file = place / "agent.yaml"
    document = {
        "apiVersion": "identity.orch.io/v1alpha1",
        "kind": "AgentConfiguration",
        "join": {"file": str(join)},
        "state": str(place / "state"),
        "outputs": outputs,
    }
    file.write_text(json.dumps(document))
    return file


# --- the load -----------------------------------------------------------------------------------


def _measure(
    server: Server, administrator: ServerConnection, files: list[Path], count: int
) -> dict[str, Any]:
    together = multiprocessing.Barrier(count + 1)
    workers = [
        multiprocessing.Process(target=_agents, args=(files[one::count], together))
        for one in range(count)
    ]
    alone = list(islice(_reviews(administrator, together, count), REVIEWS_ALONE))
    for worker in workers:
        worker.start()
    pids, load = processes(server), tuple(one.pid for one in workers if one.pid)
    results: dict[str, Any] = {"alone": _review_times(alone)}
    for name in ("join", *(f"round_{number}" for number in range(1, ROUNDS + 1))):
        together.wait()
        began = time.monotonic()
        server_cpu, agents_cpu = cpu_nanoseconds(pids), cpu_nanoseconds(load)
        reviews = list(_reviews(administrator, together, count))
        seconds = time.monotonic() - began
        server_cpu, agents_cpu = (
            cpu_nanoseconds(pids) - server_cpu,
            cpu_nanoseconds(load) - agents_cpu,
        )
        results[name] = {
            "seconds": round(seconds, 2),
            "server_cpu_seconds": round(server_cpu / NANOSECONDS, 2),
            "server_cpu_ms_per_agent": round(server_cpu / len(files) / 1e6, 2),
            "server_busy": round(server_cpu / NANOSECONDS / seconds, 2),
            "agents_cpu_seconds": round(agents_cpu / NANOSECONDS, 2),
            **_review_times(reviews),
        }
        together.wait()
    for worker in workers:
        worker.join()
    results["server_megabytes"] = resident_bytes(pids) >> 20
    return results


def _review_times(reviews: list[float]) -> dict[str, float]:
    return {
        "reviews": len(reviews),
        "review_p50_ms": round(median(reviews) * MILLISECONDS, 1),
        "review_p99_ms": round(quantiles(reviews, n=100)[98] * MILLISECONDS, 1),
    }


def _reviews(server: ServerConnection, together: Barrier, count: int) -> Iterator[float]:
    """The times of TokenReviews of another caller, until all agents have finished."""
    place = server.group("authentication", "v1", "tokenreviews")
    body = {
        "apiVersion": server.api_version("authentication", "v1"),
        "kind": "TokenReview",
        "spec": {"token": "no.such.token"},
    }
    while together.n_waiting < count and not together.broken:
        began = time.monotonic()
        server.post(place, body)
        yield time.monotonic() - began
        time.sleep(0.01)


def _agents(files: list[Path], together: Barrier) -> None:
    """The agents of one process: they join, then they check, some of them at the same time."""
    os.nice(LOWER_PRIORITY)
    try:
        with ExitStack() as ending:
            threads = ending.enter_context(ThreadPoolExecutor(THREADS))
            agents = [_agent(file, ending) for file in files]
            together.wait()
            list(threads.map(_join, (agents[first::THREADS] for first in range(THREADS))))
            together.wait()
            for _ in range(ROUNDS):
                together.wait()
                list(threads.map(Agent.check_once, agents))
                together.wait()
    except BaseException:
        together.abort()  # the others would wait for ever
        raise


def _agent(file: Path, states: ExitStack) -> Agent:
    configuration = read_configuration(file)
    state = states.enter_context(opened(Path(configuration.state)))
    return Agent(configuration, state, SystemClock(), Supervisor({}), random.SystemRandom())


def _join(agents: list[Agent]) -> None:
    left, deadline = list(agents), time.monotonic() + WAITING_SECONDS
    while left and time.monotonic() < deadline:
        for agent in left:
            if agent.seconds_to_next() == 0:
                agent.check()
        left = [agent for agent in left if agent.exit_code() != 0]
        time.sleep(PAUSE_SECONDS)
    if left:
        raise SystemExit(f"{len(left)} agents are not fresh: {left[0].status()}")


# --- one agent ----------------------------------------------------------------------------------


def _first_request(home: Path) -> float:
    """Seconds from the start of the program to its first connection."""
    place = home / "first"
    place.mkdir()
    port = free_port()
    join = place / "join.kubeconfig"
    access = {"server": f"https://127.0.0.1:{port}"}
    document = {
        "clusters": [{"name": "c", "cluster": access}],
        "users": [{"name": "u", "user": {"token": "abcdef.0123456789abcdef"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    join.write_text(json.dumps(document))
    file = _configuration(place, join, [])
    with socket.create_server(("127.0.0.1", port)) as listener:
        began = time.monotonic()
        words = [sys.executable, "-m", "orchid", "agent", "--once", "--config", str(file)]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        connection, _ = listener.accept()
        seconds = time.monotonic() - began
        connection.close()
        process.wait()
    shutil.rmtree(place)
    return round(seconds, 3)


if __name__ == "__main__":
    main()
