"""`make growth`: the same requests among 500 objects and among a million.

For each size a data directory is filled (seeding.py) and a server is started on it; its start and
its memory are measured. Then all servers are asked in turn, a second each, for several rounds. The
cost is the server's CPU time per request, in the cheapest of all rounds: other work on the machine
makes a request more expensive, never cheaper. Prints a table and writes
benchmarks/results/growth.json.

    python -m benchmarks.growth --sizes 500,10000 --rounds 3
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness, load
from benchmarks.harness import NO_CONTROLLERS, Target, Unsuitable
from benchmarks.load import UNIQUE, Job, token_reviews
from benchmarks.seeding import Seeded, seeded
from benchmarks.setting import AUTHENTICATION, Administrator, account, token_request
from orchid.kernel.engine.verbs import continue_token
from orchid.kernel.wire.naming import ORCH
from tests.e2e.serving import Server

SIZES = (500, 10_000, 100_000, 1_000_000)
CONNECTIONS = 16
DIFFERENT = 500  # accounts that the requests of one row are about
BOUND = 50  # of them, those that have a binding: as many as there are among 500
PAGE = "/api/v1/serviceaccounts?limit=500"
REVIEWS = "/apis/authorization.orch.io/v1/subjectaccessreviews"
MakeJob = Callable[[Seeded, Administrator], Job]
START_SECONDS, BEYOND_BYTES, TIMES_AS_DEAR = 20.0, 700.0, 1.25  # what must hold at a million


@dataclass
class Grown:
    """The measurements at one size."""

    accounts: int
    bindings: int
    own_bytes: float  # of one object, as it is stored
    start_seconds: float
    start_cpu: float
    resident: float
    beyond_bytes: float = 0.0  # of memory for one object, beyond its own
    rounds_us: dict[str, list[float]] = field(default_factory=dict)  # CPU time, by row

    @property
    def cpu_us(self) -> dict[str, float]:
        """Cost of a request of each row: the cheapest round."""
        return {name: min(rounds) for name, rounds in self.rounds_us.items()}


@dataclass(frozen=True)
class Running:
    """A server with its objects, and what was measured on it so far."""

    server: Server
    made: Seeded
    administrator: Administrator
    grown: Grown

    def target(self, name: str) -> Target:
        job = JOBS[name](self.made, self.administrator)
        url, pids = self.server.url, (self.server.pid,)
        send = partial(load.send, name, job, url, seconds=1, connections=CONNECTIONS)
        return Target(pids, send)


def main() -> int:
    options = parse_arguments()
    try:
        harness.prepare()
    except Unsuitable as reason:
        print(f"make growth: {reason}")
        return 2
    with ExitStack() as open_things:
        directory = Path(
            open_things.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        )
        running: list[Running] = []
        for size in map(int, options.sizes.split(",")):
            running.append(started(directory / str(size), size, open_things))
            compare_memory([each.grown for each in running])
            print(start_line(running[-1].grown), flush=True)
        for name in JOBS:
            measure_row(name, running, options.rounds)
    grown = [each.grown for each in running]
    print("\n" + table(grown))
    harness.write_results("growth", {"sizes": [asdict(each) for each in grown]})
    problems = list(broken(grown))
    print("\n".join(problems))
    return 1 if problems else 0


def started(data_dir: Path, size: int, open_things: ExitStack) -> Running:
    """A server that has just read so many accounts; it runs until `open_things` are closed."""
    made = seeded(data_dir, size)
    server = open_things.enter_context(
        harness.serving(data_dir, *NO_CONTROLLERS, ready_seconds=600)
    )
    grown = Grown(
        made.accounts,
        made.bindings,
        made.stored_bytes / made.objects,
        server.ready_after,
        harness.cpu_nanoseconds((server.pid,)) / 1e9,
        harness.resident_bytes((server.pid,)),
    )
    administrator = open_things.enter_context(closing(Administrator(server.url)))
    return Running(server, made, administrator, grown)


def measure_row(name: str, running: list[Running], rounds: int) -> None:
    """Load all servers in turn."""
    targets = [each.target(name) for each in running]
    for _ in range(rounds):
        for each, target in zip(running, targets, strict=True):
            cost = round(harness.cost(target).cpu_us, 1)
            each.grown.rounds_us.setdefault(name, []).append(cost)
    costs = (f"{each.grown.cpu_us[name]:.0f}" for each in running)
    print(f"{name}: {' '.join(costs)} us", flush=True)


# --- the requests ---------------------------------------------------------------------------------


def get(made: Seeded, administrator: Administrator) -> Job:
    return Job("GET", [path_of(*place) for place in made.chosen(DIFFERENT)], [])


def token_review(made: Seeded, administrator: Administrator) -> Job:
    tokens = []
    for place in made.chosen(DIFFERENT):
        answer = administrator.call("POST", f"{path_of(*place)}/token", token_request())
        tokens.append(answer["status"]["token"])
    return token_reviews(tokens)


def self_subject_review(made: Seeded, administrator: Administrator) -> Job:
    body = {"apiVersion": "authentication.orch.io/v1", "kind": "SelfSubjectReview"}
    return Job("POST", [f"{AUTHENTICATION}/selfsubjectreviews"], [json.dumps(body)])


def access_review(made: Seeded, administrator: Administrator) -> Job:
    """May accounts that have a binding read in their own namespace?"""
    bodies = [access_question(*place) for place in made.chosen(BOUND, bound=True)]
    answer = administrator.call("POST", REVIEWS, bodies[0])
    if not answer["status"]["allowed"]:
        raise SystemExit(f"an account has not what its binding grants: {answer['status']}")
    return Job("POST", [REVIEWS], [json.dumps(body) for body in bodies])


def access_question(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "authorization.orch.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{name}",
            "resourceAttributes": {
                "namespace": namespace,
                "verb": "get",
                "resource": "configmaps",
            },
        },
    }


def first_page(made: Seeded, administrator: Administrator) -> Job:
    return Job("GET", [PAGE], [])


def deep_page(made: Seeded, administrator: Administrator) -> Job:
    """Pages from the middle on, at the revision of a first page."""
    revision = int(administrator.call("GET", PAGE)["metadata"]["resourceVersion"])
    namespace, name = made.place((made.accounts - 500) // 2)
    token = continue_token.encode_start(f"{namespace}/{name}", revision, ORCH)
    return Job("GET", [f"{PAGE}&continue={token}"], [])


def namespace_list(made: Seeded, administrator: Administrator) -> Job:
    return Job("GET", [accounts_beside(made)], [])


def create(made: Seeded, administrator: Administrator) -> Job:
    return Job("POST", [accounts_beside(made)], [json.dumps(account(f"w-{UNIQUE}"))])


def accounts_beside(made: Seeded) -> str:
    """The accounts of a namespace in the middle."""
    namespace, _ = made.place(made.accounts // 2)
    return f"/api/v1/namespaces/{namespace}/serviceaccounts"


def path_of(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"


# What writes comes late; a deep page behind it is one of the past.
JOBS: dict[str, MakeJob] = {
    "get": get,
    "TokenReview": token_review,
    "SelfSubjectReview": self_subject_review,
    "SubjectAccessReview": access_review,
    "page of 500": first_page,
    "page of 500, deep": deep_page,
    "namespace of 500": namespace_list,
    "create": create,
}


# --- results --------------------------------------------------------------------------------------


def compare_memory(grown: list[Grown]) -> None:
    """Compute the memory per object: the difference to a server with few objects."""
    least, last = grown[0], grown[-1]
    more = last.accounts + last.bindings - least.accounts - least.bindings
    if more > 0:
        last.beyond_bytes = (last.resident - least.resident) / more - last.own_bytes


def broken(grown: list[Grown]) -> Iterator[str]:
    """The limits that were exceeded."""
    least, most = grown[0], grown[-1]
    if most.start_seconds > START_SECONDS:
        yield f"start: {most.start_seconds:.1f} s, must be under {START_SECONDS:g} s"
    if most.beyond_bytes > BEYOND_BYTES:
        yield f"memory: {most.beyond_bytes:.0f} bytes an object, must be under {BEYOND_BYTES:g}"
    for name, cost in most.cpu_us.items():
        if cost > least.cpu_us[name] * TIMES_AS_DEAR:
            yield f"{name}: {cost:.0f} us, {cost / least.cpu_us[name]:.2f} times as dear"


def start_line(grown: Grown) -> str:
    return (
        f"{grown.accounts:>9,} accounts: start {grown.start_seconds:.1f} s, "
        f"{grown.start_cpu:.1f} s of CPU; {grown.resident / 1e6:.0f} MB, "
        f"{grown.beyond_bytes:.0f} bytes beyond the {grown.own_bytes:.0f} of each"
    )


def table(grown: list[Grown]) -> str:
    """The same as Markdown."""
    sizes = [f"{each.accounts:,}" for each in grown]
    rows = [
        ("start, s", [f"{each.start_seconds:.1f}" for each in grown]),
        ("start, s of CPU", [f"{each.start_cpu:.1f}" for each in grown]),
        ("memory, MB", [f"{each.resident / 1e6:.0f}" for each in grown]),
        (
            "memory beyond an object's own bytes",
            [f"{each.beyond_bytes:.0f}" if each.beyond_bytes else "" for each in grown],
        ),
        *(
            (f"{name}, us of CPU", [f"{each.cpu_us[name]:.0f}" for each in grown])
            for name in grown[0].cpu_us
        ),
    ]
    lines = [f"| Accounts | {' | '.join(sizes)} |", f"|---|{'---:|' * len(sizes)}"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows]
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make growth", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="accounts, with commas")
    parser.add_argument("--rounds", type=int, default=7, help="how often each server is asked")
    parser.add_argument("--directory", help="where the data goes; a million accounts need 2 GB")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
