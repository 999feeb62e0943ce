"""Make small mistakes in critical lines, one at a time, and see whether the tests notice.

    make mutants                              all of the list
    make mutants ARGS="--only store/sqlite"   those whose file's name has this in it
    make mutants ARGS="--random 40 --seed 7"  so many that are drawn from the source (drawn.py)

The list is the *.toml files beside this one. A row (`Mutant`) says: in this file of src/orchid,
this text (it occurs once) becomes that text, and these tests are the ones to notice. A row that
`changes_nothing`, and why, is there for the reader and is not run.

Each mistake is made in a copy of the tree, so that the work goes on undisturbed. Tests that hang
have noticed too. First the tests are run on the copy as it is: they must pass, or they would notice
anything. Ends with exit code 1 if a mistake survived or could not be tried; of mistakes that were
drawn, as many are tried as the time (`--minutes`) allows.
"""

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from tests.mutants.drawn import draw

HERE = Path(__file__).parent
TREE = HERE.parent.parent
COPIED = ("src", "tests", "docs", "deploy", "benchmarks", "requirements", "scripts")
SECONDS = 180  # for the tests of one mistake; without it they take a few
PASSED, FAILED = 0, 1  # pytest's exit codes
NOTICED, SURVIVED, UNTRIED, LATE = "noticed", "SURVIVED", "NOT TRIED", "late"


@dataclass(frozen=True)
class Mutant:
    """One mistake of a list, and the tests that should notice it."""

    file: str  # below src/orchid
    before: str
    after: str
    tests: tuple[str, ...]
    changes_nothing: str = ""  # why it cannot be noticed

    def __str__(self) -> str:
        before, after = (" ⏎ ".join(text.split("\n")).strip() for text in (self.before, self.after))
        return f"{self.file}: {before}  ->  {after or '(removed)'}"

    def applied(self, source: str) -> str:
        """The source with the mistake; raises ValueError if it is not as the list says."""
        if source.count(self.before) != 1:
            raise ValueError(
                f"{self.file} has this {source.count(self.before)} times: {self.before}"
            )
        return source.replace(self.before, self.after)


def mutants() -> list[Mutant]:
    """Every row of every list."""
    return [
        Mutant(**{**row, "tests": tuple(row["tests"])})
        for path in sorted(HERE.glob("*.toml"))
        for row in tomllib.loads(path.read_text())["mutant"]
    ]


class Mistake(Protocol):
    """A mistake of a list, or one that was drawn."""

    @property
    def file(self) -> str: ...
    @property
    def tests(self) -> tuple[str, ...]: ...
    def applied(self, source: str) -> str: ...


class Copy:
    """A copy of the tree in which one mistake after the other is made."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in COPIED:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TREE / name, place / name, ignore=leave)
        for path in TREE.iterdir():
            if path.is_file():
                shutil.copy(path, place)

    def outcome_of(self, mutant: Mistake) -> str:
        path = self.place / "src" / "orchid" / mutant.file
        source = path.read_text()
        path.write_text(mutant.applied(source))
        try:
            return {PASSED: SURVIVED, FAILED: NOTICED}.get(self.run(mutant.tests), UNTRIED)
        finally:
            path.write_text(source)

    def run(self, tests: Sequence[str]) -> int:
        """Run tests until the first fails; what takes too long has failed."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        # Before the tree that is installed; and no bytecode, which goes by the second of a change.
        paths = {"PYTHONPATH": str(self.place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        running = subprocess.Popen(
            [*command, *tests],
            cwd=self.place,
            env=os.environ | paths,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return FAILED
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)  # with whatever the tests have started
                running.wait()


@contextmanager
def copies(count: int) -> Iterator["SimpleQueue[Copy]"]:
    free: SimpleQueue[Copy] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="orchid-mutants-") as directory:
        for number in range(count):
            free.put(Copy(Path(directory, str(number))))
        yield free


def judge(rows: Sequence[Mistake], jobs: int, seconds: float = math.inf) -> Counter[str]:
    """Try mistakes until the time is over, say of each whether it was noticed, and count."""
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    with copies(jobs) as free, ThreadPoolExecutor(jobs) as pool:

        def try_one(mutant: Mistake) -> str:
            if time.monotonic() > end:
                return LATE
            copy = free.get()
            try:
                return copy.outcome_of(mutant)
            finally:
                free.put(copy)

        def passes(tests: tuple[str, ...]) -> bool:
            if time.monotonic() > end:
                return True
            copy = free.get()
            try:
                return copy.run(tests) == PASSED
            finally:
                free.put(copy)

        tests = sorted({row.tests for row in rows})
        for each, passed in zip(tests, pool.map(passes, tests), strict=True):
            if not passed:
                say(f"these fail without a mistake: {' '.join(each)}")
                counts[UNTRIED] += sum(row.tests == each for row in rows)
        for row, outcome in zip(rows, pool.map(try_one, rows), strict=True):
            counts[outcome] += 1
            if outcome != LATE:
                say(f"{outcome:9} {row}")
    return counts


def say(text: str) -> None:
    print(text, flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("--only", default="", help="what the name of the file must contain")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--random", type=int, metavar="N", help="draw N mistakes from the source")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--minutes", type=float, default=30.0, help="for mistakes that are drawn")
    given = parser.parse_args(words)
    if given.random is not None:
        say(f"--random {given.random} --seed {given.seed}")
        picked = draw(given.random, given.seed, given.only)
        return report(judge(picked, given.jobs, given.minutes * 60))
    rows = [row for row in mutants() if given.only in row.file]
    tried = [row for row in rows if not row.changes_nothing]
    say(f"{len(rows) - len(tried)} of the list change nothing")
    return report(judge(tried, given.jobs))


def report(counts: Counter[str]) -> int:
    tried = counts.total() - counts[LATE]
    share = counts[NOTICED] / max(tried, 1)
    late = f"; no time for {counts[LATE]}" if counts[LATE] else ""
    say(
        f"{tried} mistakes: {counts[NOTICED]} noticed ({share:.1%}), "
        f"{counts[SURVIVED]} survived, {counts[UNTRIED]} not tried{late}"
    )
    return 1 if counts[SURVIVED] or counts[UNTRIED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
