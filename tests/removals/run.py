"""Take away what rights and credentials rest on, again and again; nobody may go on afterwards.

    make removals                                     10,000 on one process, 10,000 with workers
    python -m tests.removals.run --rounds 500 --workers 3 --seed 4711

Each round gives somebody a right or a credential (ways.py), lets them use it on open connections
until every cache on the way is warm, takes it away by another connection, and asks once more on
the same ones. A token is also reviewed before and after. The seed, which is printed, decides what
happens; with workers the kernel decides who answers. Ends with exit code 1 if anything that was
taken away still counted.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.removals.stage import ADMIN, Stage, staged
from tests.removals.ways import WAYS, Given, is_accepted

WARM = (3, 6)  # requests before the removal: the third finds all that is remembered
REVIEWED = 0.5  # how often a token is reviewed too
SHOWN = 20


@dataclass
class Report:
    """The removed objects, and the credentials that were still accepted afterwards."""

    seed: int
    workers: int
    removed: Counter[str] = field(default_factory=Counter)
    reviewed: int = 0
    allowed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{what} {count}" for what, count in sorted(self.removed.items()))
        return "\n".join(
            (
                f"seed {self.seed}, {self.workers} workers: {self.removed.total()} removals in "
                f"{self.seconds:.0f} s, {len(self.allowed)} of them not felt",
                f"  {counts}; {self.reviewed} tokens reviewed too",
                *(f"  ALLOWED {text}" for text in self.allowed[:SHOWN]),
            )
        )


def remove(directory: Path, *, rounds: int, workers: int, seed: int) -> Report:
    """Run so many rounds against a server of their own; every way has its turn at least once."""
    chance = random.Random(seed)
    report = Report(seed, workers)
    names = list(WAYS)
    weights = [weight for _, weight in WAYS.values()]
    planned = names + chance.choices(names, weights, k=max(0, rounds - len(names)))
    chance.shuffle(planned)
    began = time.monotonic()
    with staged(directory, workers=workers, chance=chance) as stage:
        for number, what in enumerate(planned[:rounds]):
            given = WAYS[what][0](stage)
            try:
                found = _one(stage, given, report)
            finally:
                given.close()
            report.removed[what] += 1
            report.allowed += [f"round {number}, {what}: {text}" for text in found]
    report.seconds = time.monotonic() - began
    return report


def _one(stage: Stage, given: Given, report: Report) -> list[str]:
    """Use what was given until it is known everywhere, take it away, and ask again."""
    reviewer, reviewed = (
        stage.administrator(),
        bool(given.token) and stage.chance.random() < REVIEWED,
    )
    for _ in range(stage.chance.randint(*WARM)):
        status = given.ask()
        if status >= 300 or (reviewed and not is_accepted(reviewer, ADMIN, given.token)):
            raise AssertionError(f"what was given is not granted: {status}")
    given.remove()
    status, found = given.ask(), []
    if status != given.refused:
        found.append(f"{status} instead of {given.refused}")
    if reviewed:
        report.reviewed += 1
        if is_accepted(reviewer, ADMIN, given.token):
            found.append("a review accepts the token")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="orchid-removals-") as directory:
        report = remove(
            Path(directory), rounds=given.rounds, workers=given.workers, seed=given.seed
        )
    print(report)
    return 1 if report.allowed else 0


if __name__ == "__main__":
    sys.exit(main())
