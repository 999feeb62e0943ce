"""Upgrade from a commit, and go back, with the real programs: make upgrade FROM=<commit>

Two servers of that commit run over one etcd, are filled, and are replaced under load by servers of
this checkout, one after the other; then the old ones are started again. The same on a data
directory, without load. Needs a clone with that commit. Ends with exit code 1 if anything was
refused or lost on the way up; the way back is reported.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.https import Https
from tests.e2e.serving import ServerFailed, running_server
from tests.unit.store import etcd_process
from tests.upgrades import old_code
from tests.upgrades.load import Load
from tests.upgrades.population import FLAGS, SIGNING, Population, fill, problems
from tests.upgrades.rolling import Pair, pair

ROUNDS = 100

Environment = Mapping[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="where to upgrade from")
    commit = parser.parse_args().commit
    if not old_code.has(commit):
        sys.exit(f"this clone has no commit {commit}: git fetch --unshallow")
    with tempfile.TemporaryDirectory() as home, old_code.source_of(commit) as old:
        lost = on_a_file(Path(home) / "data", old) + on_etcd(Path(home), old)
    for each in lost:
        print(each)
    print(f"{len(lost)} problems after an upgrade from {commit}")
    return 1 if lost else 0


def on_a_file(data: Path, old: Environment) -> list[str]:
    """One server on a data directory: the old one, this one, the old one again."""
    with running_server(data, *FLAGS, *SIGNING, env=old) as server, Https(server.port) as https:
        made = fill(https)
    with running_server(data, *FLAGS, *SIGNING) as server, Https(server.port) as https:
        lost = problems(https, server.port, made)
    report("on a data directory", lost)
    try:
        with (
            running_server(data, *FLAGS, *SIGNING, env=old) as server,
            Https(server.port) as https,
        ):
            report("back on the old version", problems(https, server.port, made))
    except ServerFailed as problem:
        report("back on the old version", [str(problem)])
    return lost


def on_etcd(home: Path, old: Environment, *, goes_back: bool = True) -> list[str]:
    """Two servers, replaced one after the other under load."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        with pair(home, cluster.urls[0]) as servers:
            for number in (0, 1):
                servers.start(number, old)
            with Https(servers.ports[0]) as https:
                made = fill(https)
            lost = rolled(servers, made, None)
            report("rolled up under load", lost)
            if goes_back:
                report("rolled back under load", rolled(servers, made, old))
    return lost


def rolled(servers: Pair, made: Population, program: Environment | None) -> list[str]:
    """Replace both servers by another program under load; return what was refused or lost."""
    found: list[str] = []
    with Load(servers.ports) as load:
        load.until_more(ROUNDS)
        for number in (0, 1):
            servers.replace(number, program)
            load.until_more(ROUNDS)
            found += servers.problems(made)
    found += load.failures
    for port in servers.ports:
        with Https(port) as https:
            found += load.lost(https)
    print(f"{load.rounds} rounds, {len(load.left)} objects")
    return found


def report(what: str, lost: list[str]) -> None:
    print(f"{what}: {'nothing refused, nothing lost' if not lost else f'{len(lost)} problems'}")
    for each in lost:
        print(f"  {each[:1000]}")


if __name__ == "__main__":
    sys.exit(main())
