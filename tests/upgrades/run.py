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
from tests.unit.kernel.store import etcd_process
from tests.upgrades import old_code
from tests.upgrades.load import Load
from tests.upgrades.population import (
    ADMIN,
    FLAGS,
    IDENTITY,
    SIGNING,
    Population,
    fill,
    problems,
)
from tests.upgrades.rolling import Pair, pair

ROUNDS = 100
KEYS = f"{IDENTITY}/signingkeys"
LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases"

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
            if number == 0 and program is None:
                found += unblocked(servers)
    found += load.failures
    for port in servers.ports:
        with Https(port) as https:
            found += load.lost(https)
    print(f"{load.rounds} rounds, {len(load.left)} objects")
    return found


def unblocked(servers: Pair) -> list[str]:
    """What is wrong if the first server is of this version and the other may not have stored keys:
    a key must not become Active, and the message must name the server that does not have it.
    """
    new, old = servers.ports
    with Https(new) as https, Https(old) as other:
        if other.send("GET", KEYS, token=ADMIN).status == 200:
            return []  # it has stored keys
        body = {"metadata": {"name": "tokens-2"}, "spec": {"algorithm": "ES256"}}
        https.send("POST", KEYS, body, token=ADMIN)  # the leader may have done so
        key = https.send("GET", f"{KEYS}/tokens-2", token=ADMIN).json
        key["spec"]["state"] = "Active"
        answer = https.send("PUT", f"{KEYS}/tokens-2", key, token=ADMIN)
        leases = https.send("GET", LEASES, token=ADMIN).json["items"]
    silent = [
        one["metadata"]["name"]
        for one in leases
        if one["metadata"]["name"].startswith("orch-server-")
        and "identity.orch.io/keys" not in one["metadata"].get("annotations", {})
    ]
    text = answer.json.get("message", "")
    if answer.status == 422 and any(name in text for name in silent):
        print(f"blocked, as it should be: {text}")
        return []
    return [f"an activation beside an old server: {answer.status} {text}, {silent}"]


def report(what: str, lost: list[str]) -> None:
    print(f"{what}: {'nothing refused, nothing lost' if not lost else f'{len(lost)} problems'}")
    for each in lost:
        print(f"  {each[:1000]}")


if __name__ == "__main__":
    sys.exit(main())
