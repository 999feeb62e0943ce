"""Throw bytes at everything that strangers can reach, and follow the coverage to new ones.

    make fuzz MINUTES=10                           all targets, in all so many minutes
    python -m tests.fuzz.run --target der --seconds 60
    python -m tests.fuzz.run --target der FILE     one input again, such as one that was found

The targets are in targets.py; atheris (libFuzzer) does the work, one process for each target. It
begins with the corpus, one directory for each target; what it finds interesting stays in a
directory of the moment, and what makes a target fail is named at the end. Put that into the corpus
with the mend: the tests try the whole corpus every time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LONGEST = 4096  # bytes of one input
LONGEST_SECONDS = 10  # that one input may take
TARGETS = tuple(sorted(path.name for path in CORPUS.iterdir()))


def fuzz(target: str, arguments: Sequence[str]) -> None:
    """Be the process of one target; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["orchid"]):
        from tests.fuzz.targets import TARGETS as FUNCTIONS
    atheris.Setup([sys.argv[0], *arguments], FUNCTIONS[target])
    atheris.Fuzz()


def started(target: str, seconds: float) -> tuple[int, str]:
    """Fuzz a target in a process of its own; give its exit code and what it said."""
    with tempfile.TemporaryDirectory(prefix="orchid-fuzz-") as found:
        command = [sys.executable, "-m", "tests.fuzz.run", "--target", target, found]
        limits = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-max_len={LONGEST}",
            f"-timeout={LONGEST_SECONDS}",
            f"-artifact_prefix={tempfile.gettempdir()}/orchid-fuzz-{target}-",
        ]
        done = subprocess.run(
            [*command, str(CORPUS / target), *limits],
            cwd=HERE.parent.parent,
            env=os.environ | {"PYTHONPATH": "src"},
            capture_output=True,
            check=False,
        )
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def fuzz_all(minutes: float, jobs: int) -> int:
    """Give every target the same time; tell how each went, and in whole what was found."""
    seconds = minutes * 60 * jobs / len(TARGETS)
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = pool.map(lambda target: started(target, seconds), TARGETS)
        for target, (code, said) in zip(TARGETS, outcomes, strict=True):
            last = [line for line in said.splitlines() if line.startswith(("#", "Done"))][-2:]
            print(
                f"{target}: {'FOUND' if code else 'nothing found'}; {'; '.join(last)}", flush=True
            )
            if code:
                failed += 1
                print(said[-6000:], flush=True)
    return 1 if failed else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given, rest = parser.parse_known_args(words)
    if given.target is None:
        return fuzz_all(given.minutes, given.jobs)
    if given.seconds:
        code, said = started(given.target, given.seconds)
        print(said)
        return code
    fuzz(given.target, rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
