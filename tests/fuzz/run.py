"""Throw bytes at everything that strangers can reach, and follow the coverage to new ones.

    make fuzz MINUTES=10                           all targets, in all so many minutes
    python -m tests.fuzz.run --target der --seconds 60
    python -m tests.fuzz.run --target der --input FILE    such as one that was found: once more

The targets are in targets.py; atheris (libFuzzer) does the work, one process for each target, all
forked from one that has imported everything. It begins with the corpus, one directory for each
target; what it finds interesting stays in a directory of the moment, and what makes a target fail
is named at the end. Put that into the corpus with the mend: the tests try the whole corpus every
time. Where there is no atheris, inputs of the corpus are changed at random (blind.py).
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LONGEST = 4096  # bytes of one input
LONGEST_SECONDS = 10  # that one input may take
TARGETS = tuple(sorted(path.name for path in CORPUS.iterdir()))


class Outcome(NamedTuple):
    """How the process of one target ended, and what it said."""

    target: str
    code: int
    said: str


def fuzz(target: str, arguments: Sequence[str]) -> None:
    """Be the process of one target; libFuzzer ends it."""
    import atheris

    atheris.Setup([sys.argv[0], *arguments], instrumented()[target])
    atheris.Fuzz()


def instrumented() -> dict[str, Callable[[bytes], None]]:
    """The targets, with our modules imported in such a way that coverage is seen: takes seconds."""
    import atheris

    with atheris.instrument_imports(include=["orchid"]):
        from tests.fuzz.targets import TARGETS as FUNCTIONS
    return FUNCTIONS


def fuzz_each(targets: Sequence[str], seconds: float, jobs: int, place: Path) -> None:
    """Fuzz each target in a process of its own, forked when all is imported."""
    instrumented()
    waiting, running = list(targets), dict[int, str]()
    while waiting or running:
        while waiting and len(running) < jobs:
            target = waiting.pop(0)
            running[forked(target, seconds, place)] = target
        process, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        (place / f"{running.pop(process)}.code").write_text(str(code))


def forked(target: str, seconds: float, place: Path) -> int:
    """The process that fuzzes one target and says what it has to say in a file."""
    if process := os.fork():
        return process
    said = os.open(place / f"{target}.said", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    found = place / target
    found.mkdir()
    limits = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={LONGEST}",
        f"-timeout={LONGEST_SECONDS}",
        f"-artifact_prefix={tempfile.gettempdir()}/orchid-fuzz-{target}-",
    ]
    fuzz(target, [str(found), str(CORPUS / target), *limits])
    os._exit(1)  # libFuzzer has ended the process before


def started(targets: Sequence[str], seconds: float, jobs: int) -> Iterator[Outcome]:
    """Fuzz targets for so many seconds each; give how each went."""
    with tempfile.TemporaryDirectory(prefix="orchid-fuzz-") as place:
        command = [sys.executable, "-m", "tests.fuzz.run", "--place", place, "--jobs", str(jobs)]
        done = subprocess.run(
            [*command, "--seconds", str(seconds), "--target", *targets],
            cwd=HERE.parent.parent,
            env=os.environ | {"PYTHONPATH": "src"},
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        for target in targets:
            code, said = (Path(place) / f"{target}.{part}" for part in ("code", "said"))
            yield Outcome(target, int(code.read_text()), said.read_text(errors="replace"))


def summary(outcome: Outcome) -> str:
    """One line about a target; the whole of what was said if something was found."""
    last = re.findall(r"^(?:#\d|Done).*", outcome.said, re.MULTILINE)[-2:]
    line = f"{outcome.target}: {'FOUND' if outcome.code else 'nothing found'}; {'; '.join(last)}"
    return f"{line}\n{outcome.said[-6000:]}" if outcome.code else line


def blindly(targets: Sequence[str], seconds: float) -> int:
    """Without atheris: random changes of the corpus, one target after the other."""
    from tests.fuzz import blind
    from tests.fuzz.targets import TARGETS as FUNCTIONS

    print("atheris is not installed: inputs are changed at random, no coverage is followed")
    seed, found = time.time_ns() % 1_000_000, 0
    for target in targets:
        finding = blind.run(FUNCTIONS[target], CORPUS / target, seconds, seed)
        print(f"{target}: {f'FOUND, {finding}' if finding else 'nothing found'}", flush=True)
        found += bool(finding)
    return 1 if found else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, nargs="+", default=TARGETS)
    parser.add_argument("--seconds", type=float, help="for each target, instead of --minutes")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--input", help="a file: try this one on the target, and nothing else")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)  # the process that forks
    given = parser.parse_args(words)
    seconds = given.seconds or given.minutes * 60 * given.jobs / len(given.target)
    if given.input:
        fuzz(given.target[0], [given.input])
    if given.place:
        fuzz_each(given.target, seconds, given.jobs, given.place)
        return 0
    if importlib.util.find_spec("atheris") is None:
        return blindly(given.target, seconds / given.jobs)
    outcomes = list(started(given.target, seconds, given.jobs))
    print(*map(summary, outcomes), sep="\n")
    return 1 if any(outcome.code for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
