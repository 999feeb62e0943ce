"""Make small mistakes, one at a time, and see whether the tests notice.

    make mutants                              all of the list
    make mutants ARGS="--only store/sqlite"   those whose file's name has this in it
    make mutants ARGS="--random 40 --seed 7"  so many that are drawn from the source (drawn.py)
    ... --in src/orchid/features/acme         from these files and folders only
    ... --since COMMIT                        from lines that are newer than a commit only

The list is the *.toml files beside this one. A row (`Mutant`) says: in this file of src/orchid,
this text (it occurs once) becomes that text, and these tests are the ones to notice. A row that
`changes_nothing`, and why, is there for the reader and is not run; if it is drawn, it is counted
apart, as a mistake that cannot be seen.

Each mistake is made in a copy of the tree, so that the work goes on undisturbed. The nearest tests
run first, then wider ones until `--seconds` are over (nearest.py). Those that hang have noticed
too. A test that fails must pass without the mistake, or it would notice anything. Ends with exit
code 1 if a mistake survived or could not be tried; of mistakes that were drawn, as many are tried
as the time (`--minutes`) allows.
"""

import argparse
import ast
import difflib
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from tests.mutants import nearest
from tests.mutants.drawn import DEFAULT, Drawn, draw

HERE = Path(__file__).parent
TREE = HERE.parent.parent
COPIED = ("src", "tests", "docs", "deploy", "benchmarks", "requirements", "scripts")
SECONDS = 420.0  # for the tests of one mistake
NEAR_SECONDS = 180.0  # for the nearest of them; without a mistake they take a few
FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)
NOTICED, SURVIVED, UNSEEN, LATE = "noticed", "SURVIVED", "cannot be seen", "late"
UNTRIED = "NOT TRIED"
HANGS = "no end"


@dataclass(frozen=True)
class Mutant:
    """One mistake of a list, and the tests that should notice it."""

    file: str  # below src/orchid
    before: str
    after: str
    tests: tuple[str, ...]
    changes_nothing: str = ""  # why it cannot be noticed

    @property
    def path(self) -> str:
        return f"src/orchid/{self.file}"

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
    def path(self) -> str: ...
    def applied(self, source: str) -> str: ...


def tests_of(mistake: Mistake) -> tuple[Sequence[str], Sequence[str]]:
    """The nearest tests and the wider ones."""
    if isinstance(mistake, Mutant):
        return mistake.tests, ()
    return nearest.near(mistake.path), nearest.wider(mistake.path)


def is_known(mistake: Drawn, explained: Iterable[Mutant]) -> bool:
    """Whether a row explains why this mistake cannot be seen."""
    rows = [row for row in explained if row.path == mistake.path]
    if not rows:
        return False
    source = (TREE / mistake.path).read_text()
    drawn = ast.dump(ast.parse(mistake.applied(source)))
    return any(ast.dump(ast.parse(row.applied(source))) == drawn for row in rows)


class Copy:
    """A copy of the tree in which one mistake after the other is made."""

    def __init__(self, place: Path, seconds: float) -> None:
        self.place = place
        self._seconds = seconds  # for the tests of one mistake
        self._running: subprocess.Popen[str] | None = None
        for name in COPIED:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TREE / name, place / name, ignore=leave)
        for path in TREE.iterdir():
            if path.is_file():
                shutil.copy(path, place)

    def outcome_of(self, mistake: Mistake) -> tuple[str, str]:
        """Whether the mistake is noticed, and by which test."""
        path = self.place / mistake.path
        source = path.read_text()
        end = time.monotonic() + self._seconds
        near, wide = tests_of(mistake)
        for tests in (near, wide):
            rest = list(tests)
            while rest and (seconds := end - time.monotonic()) > 1:
                path.write_text(mistake.applied(source))
                try:
                    failed = self.first_failure(rest, NEAR_SECONDS if tests is near else seconds)
                finally:
                    path.write_text(source)
                if not failed or (failed == HANGS and tests is wide):
                    break  # wider tests are many: their time is over
                if failed == HANGS and self.first_failure(rest, NEAR_SECONDS) != HANGS:
                    return NOTICED, HANGS
                if not self.first_failure([failed], NEAR_SECONDS):
                    return NOTICED, failed
                say(f"fails without a mistake: {failed}")
                rest = [test for test in rest if test != failed.partition("::")[0]]
            if tests is near and not rest:
                return UNTRIED, ""
        return SURVIVED, ""

    def first_failure(self, tests: Sequence[str], seconds: float) -> str:
        """Run tests until the first fails; its name, `HANGS`, or nothing if all have passed."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        # Before the tree that is installed; and no bytecode, which goes by the second of a change.
        paths = {"PYTHONPATH": str(self.place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryFile("w+") as output:
            running = self._running = subprocess.Popen(
                [*command, "--tb=no", "-rfE", *tests],
                cwd=self.place,
                env=os.environ | paths,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
            try:
                code = running.wait(seconds)
            except subprocess.TimeoutExpired:
                return HANGS
            finally:
                self.stop()
            output.seek(0)
            found = FAILED.search(output.read())
        return found[1] if found else tests[0] if code else ""

    def stop(self) -> None:
        if self._running is not None and self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)  # with whatever the tests have started
            self._running.wait()


@contextmanager
def copies(count: int, seconds: float) -> Iterator[list[Copy]]:
    with tempfile.TemporaryDirectory(prefix="orchid-mutants-") as directory:
        made = [Copy(Path(directory, str(number)), seconds) for number in range(count)]
        try:
            yield made
        finally:
            for copy in made:
                copy.stop()


def judge(
    rows: Sequence[Mistake], jobs: int, each: float, seconds: float = math.inf
) -> Counter[str]:
    """Try mistakes, each for a while, until the time is over; say which were noticed, and count."""
    end = time.monotonic() + seconds
    stopped = threading.Event()
    counts: Counter[str] = Counter()
    free: SimpleQueue[Copy] = SimpleQueue()

    def try_one(mistake: Mistake) -> tuple[str, str]:
        if stopped.is_set() or time.monotonic() > end:
            return LATE, ""
        copy = free.get()
        try:
            return copy.outcome_of(mistake)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(jobs) as pool, copies(jobs, each) as made:
        for copy in made:
            free.put(copy)
        try:
            for row, (outcome, by) in zip(rows, pool.map(try_one, rows), strict=True):
                counts[outcome] += 1
                if outcome != LATE:
                    say(f"{outcome:9} {row}" + f"  [{by}]" * bool(by))
                if outcome == SURVIVED:
                    say(lines_of(row))
        finally:
            stopped.set()  # by a signal: nothing new begins, and what runs is stopped
    return counts


def lines_of(mistake: Mistake) -> str:
    """The lines that a mistake changes, before and after."""
    source = (TREE / mistake.path).read_text()
    before, after = source.splitlines(), mistake.applied(source).splitlines()
    diff = difflib.unified_diff(before, after, n=0, lineterm="")
    return "\n".join(f"    {line}" for line in diff if line[:3] not in ("---", "+++"))


def say(text: str) -> None:
    print(text, flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("--only", default="", help="what the name of the file must contain")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--random", type=int, metavar="N", help="draw N mistakes from the source")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--in", dest="places", action="append", metavar="PATH", help="draw here")
    parser.add_argument("--since", default="", metavar="COMMIT", help="draw from newer lines")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one mistake's tests")
    parser.add_argument("--minutes", type=float, default=30.0, help="for mistakes that are drawn")
    given = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    if given.random is not None:
        places = given.places or DEFAULT
        say(f"--random {given.random} --seed {given.seed} in {' '.join(places)}")
        picked = draw(given.random, given.seed, places, given.since)
        explained = [row for row in mutants() if row.changes_nothing]
        seen = [one for one in picked if not is_known(one, explained)]
        counts = judge(seen, given.jobs, given.seconds, given.minutes * 60)
        counts[UNSEEN] = len(picked) - len(seen)
        return report(counts)
    rows = [row for row in mutants() if given.only in row.file]
    tried = [row for row in rows if not row.changes_nothing]
    say(f"{len(rows) - len(tried)} of the list change nothing")
    return report(judge(tried, given.jobs, given.seconds))


def report(counts: Counter[str]) -> int:
    tried = counts[NOTICED] + counts[SURVIVED]
    say(
        f"{tried} mistakes that can be seen: {counts[NOTICED]} noticed "
        f"({counts[NOTICED] / max(tried, 1):.1%}), {counts[SURVIVED]} survived"
    )
    for outcome in (UNSEEN, UNTRIED, LATE):
        if counts[outcome]:
            say(f"{counts[outcome]} {outcome}")
    return 1 if counts[SURVIVED] or counts[UNTRIED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
