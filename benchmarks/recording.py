"""What it costs to record: certificates and tokens of a server as it is, and of one that does not.

    python -m benchmarks.recording --seconds 10

The second server writes no inventory and nothing into the ledger, and counts no tokens; there is no
setting for that, so it is taken out here, before the server starts. Counted are the calls of
functions written in Python, under a profiler, which are the same on every machine; processor time,
measured before that without one, is told beside them. Both run one after the other.
"""

import argparse
import cProfile
import os
import pstats
import signal
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import issuing
from benchmarks.bench import FLAGS
from benchmarks.setting import Administrator, Stage, token_request
from orchid import cli
from orchid.access.issuing import TokenIssuer
from orchid.admission.record_issued import RecordIssued
from orchid.kinds import certificate_signing_request
from tests.e2e.serving import Server, running_server

TOKENS = 500
WARM_SECONDS, CONNECTIONS = 2, 8
ROUNDS = 5  # of which the cheapest counts for processor time: others may be busy beside it
BARE = "--bare"  # of the server that records nothing


@dataclass(frozen=True)
class Cost:
    """Of one certificate or token."""

    calls: float
    cpu_ms: float


def main() -> int:
    if "serve" in sys.argv:  # as the launcher of a server: see `measured`
        serve(Path(sys.argv[1]), bare=sys.argv[2] == BARE, arguments=sys.argv)
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="of issuing, for each server")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        usual = measured(Path(directory) / "usual", seconds, "--recording")
        bare = measured(Path(directory) / "bare", seconds, BARE)
    print(f"{'':14}{'recording':>24}{'not recording':>24}{'more calls':>12}")
    for name in usual:
        one, other = usual[name], bare[name]
        more = one.calls / other.calls - 1
        print(f"{name:14}{shown(one):>24}{shown(other):>24}{more:>12.1%}")
    return 0


def shown(cost: Cost) -> str:
    return f"{cost.calls:.1f} ({cost.cpu_ms:.2f} ms)"


def measured(data_dir: Path, seconds: int, how: str) -> dict[str, Cost]:
    """Start a server, and say what a certificate and a token cost it."""
    counts = data_dir.with_suffix(".calls")
    launcher = (sys.executable, "-m", "benchmarks.recording", str(counts), how)
    with (
        running_server(data_dir, *FLAGS, launcher=launcher) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        return {
            "certificate": certificates(server, counts, seconds),
            "token": tokens(server, counts, Stage(administrator, accounts=1), administrator),
        }


def certificates(server: Server, counts: Path, seconds: int) -> Cost:
    def issue(duration: int) -> issuing.Issued:
        return issuing.measure(server.url, server.pid, seconds=duration, connections=CONNECTIONS)

    issue(WARM_SECONDS)
    cpu_ms = min(issue(seconds // ROUNDS).cpu_ms for _ in range(ROUNDS))
    begin(server, counts)
    counted = issue(seconds)
    return Cost(end(server, counts) / counted.certificates, cpu_ms)


def tokens(server: Server, counts: Path, stage: Stage, administrator: Administrator) -> Cost:
    path, body = f"{stage.accounts}/{stage.names[0]}/token", token_request()
    administrator.call("POST", path, body)

    def ask() -> float:
        used = issuing.processor_seconds(server.pid)
        for _ in range(TOKENS):
            administrator.call("POST", path, body)
        return (issuing.processor_seconds(server.pid) - used) / TOKENS * 1000

    cpu_ms = min(ask() for _ in range(ROUNDS))
    begin(server, counts)
    ask()
    return Cost(end(server, counts) / TOKENS, cpu_ms)


def begin(server: Server, counts: Path) -> None:
    counts.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR1)
    time.sleep(0.3)  # until the profiler runs; what it misses is not counted


def end(server: Server, counts: Path) -> int:
    """The calls of Python functions since `begin`."""
    os.kill(server.pid, signal.SIGUSR2)
    while not counts.exists():
        time.sleep(0.05)
    stats: dict[Any, Any] = vars(pstats.Stats(str(counts)))["stats"]
    return sum(called[1] for (file, *_), called in stats.items() if file != "~")


def serve(counts: Path, *, bare: bool, arguments: list[str]) -> None:
    """Be the server, with a profiler that two signals switch on and off."""
    if bare:
        take_out_records()
    profiles: list[cProfile.Profile] = []

    def start(*_: object) -> None:
        profiles.append(cProfile.Profile())
        profiles[-1].enable()

    def stop(*_: object) -> None:
        profiles[-1].disable()
        profiles[-1].dump_stats(counts.with_suffix(".part"))
        counts.with_suffix(".part").rename(counts)

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
    sys.argv = ["orchid", *arguments[arguments.index("serve") :]]
    cli.main()


def take_out_records() -> None:
    """No inventory, no entries of the ledger for certificates, no counting of tokens."""
    setattr(RecordIssued, "accompanies", ())  # noqa: B010 -- not what its type foresees
    vars(certificate_signing_request)["decisions"] = None
    made = TokenIssuer.__init__

    def without_counting(self: TokenIssuer, *given: Any, counted: Any, **more: Any) -> None:
        made(self, *given, counted=None, **more)

    setattr(TokenIssuer, "__init__", without_counting)  # noqa: B010 -- likewise


if __name__ == "__main__":
    sys.exit(main())
