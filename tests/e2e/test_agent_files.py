"""The files of an agent survive kill -9 at every system call: always a matching pair.

strace kills the writer at the Nth call of each kind, for each call that it makes after its start.
"""

import datetime
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from orchid.features.hosts.agent.generations import OutputFile, Permissions, write_generation

pytestmark = pytest.mark.system_package("strace")

SOURCE = Path(__file__).resolve().parents[2] / "src"
# Every call that changes something: a kill at another one leaves what the call before it left.
CALLS = (
    *("mkdirat", "openat", "write", "fchown", "fchmod", "fsync"),
    *("symlinkat", "unlinkat", "renameat", "renameat2"),
)
MARK = "/orchid-writer-begins"
WRITER = f"""
import datetime, os, pathlib, sys
from orchid.features.hosts.agent.generations import OutputFile, Permissions, write_generation
text, directory = sys.argv[1], pathlib.Path(sys.argv[2])
files = [
    OutputFile("tls.crt", text.encode()),
    OutputFile("tls.key", text.encode(), is_secret=True),
    OutputFile("tls.pem", text.encode() * 2, is_secret=True),
]
now = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
try:
    os.open({MARK!r}, os.O_RDONLY)
except OSError:
    pass
write_generation(directory, files, Permissions(), now)
os._exit(0)
"""


def complete(text: str, directory: Path) -> None:
    """Write one generation, undisturbed."""
    files = [
        OutputFile(name, text.encode() * times)
        for name, times in (("tls.crt", 1), ("tls.key", 1), ("tls.pem", 2))
    ]
    write_generation(directory, files, Permissions(), datetime.datetime.now(datetime.UTC))


def write(text: str, directory: Path, *strace: str) -> int:
    """Run the writer under strace; its exit code."""
    command = [sys.executable, "-B", "-S", "-c", WRITER, text, str(directory)]
    traced = ["strace", "-f", "-e", "signal=none", *strace]
    packages = Path(pytest.__file__).parents[1]
    done = subprocess.run(
        [*traced, *command],
        env={"PYTHONPATH": f"{SOURCE}:{packages}", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    return done.returncode


def calls(directory: Path, log: Path) -> list[tuple[str, int]]:
    """Each call of a write, as its name and its number among the calls of that name."""
    assert write("counted", directory, "-o", str(log), "-e", f"trace={','.join(CALLS)}") == 0
    names = re.findall(r"^\d+ +(\w+)\((.*)$", log.read_text(), re.MULTILINE)
    begins = next(i for i, (_, rest) in enumerate(names) if MARK in rest)
    before = Counter(name for name, _ in names[: begins + 1])
    found = []
    for name, _ in names[begins + 1 :]:
        before[name] += 1
        found.append((name, before[name]))
    return found


def texts(directory: Path) -> list[str | None]:
    """The text of each file, as a reader finds it; None for a missing file."""
    found: list[str | None] = []
    for name in ("tls.crt", "tls.key", "tls.pem"):
        try:
            found.append((directory / name).read_text())
        except FileNotFoundError:
            found.append(None)
    return found


@pytest.mark.parametrize("generation", ["first", "later"])
def test_a_killed_writer_leaves_a_matching_pair(tmp_path: Path, generation: str) -> None:
    """The old files or the new ones, all together; the next write completes and cleans up."""
    start = tmp_path / "start"
    start.mkdir(mode=0o755)
    if generation == "later":
        complete("older", start)
        complete("old", start)
    shutil.copytree(start, tmp_path / "counting", symlinks=True)
    before = ["old", "old", "oldold"] if generation == "later" else [None] * 3
    trials = calls(tmp_path / "counting", tmp_path / "log")
    wrong, killed = [], 0

    for name, number in trials:
        place = tmp_path / f"{name}-{number}"
        shutil.copytree(start, place, symlinks=True)
        kill = f"inject={name}:signal=KILL:when={number}"
        code = write("new", place, "-o", "/dev/null", "-e", f"trace={name}", "-e", kill)
        killed += code != 0
        seen = texts(place)
        complete("next", place)
        left = [path for path in place.iterdir() if path.name.startswith("..2")]
        if seen not in (before, ["new", "new", "newnew"]) or len(left) > 2:
            wrong.append((name, number, seen, left))
        elif texts(place) != ["next", "next", "nextnext"]:
            wrong.append((name, number, texts(place), left))

    assert wrong == []
    assert killed == len(trials)
    assert len(trials) > 20
