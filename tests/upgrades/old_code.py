"""Servers of earlier commits, started beside those of this one.

The source of a commit is unpacked into a temporary directory and put before the installed package,
so the old program runs with the libraries of today. Needs a clone with that commit.
"""

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def has(commit: str) -> bool:
    """Whether this is a clone with the commit; a shallow clone or a source archive is not."""
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def time_of(commit: str) -> str:
    """The time of a commit as digits: 20261118-0246."""
    asked = ["log", "-1", "--format=%cd", "--date=format:%Y%m%d-%H%M", commit, "--"]
    done = subprocess.run(
        ["git", "-C", str(ROOT), *asked], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextmanager
def source_of(commit: str) -> Iterator[dict[str, str]]:
    """The environment in which `python -m orchid` is the program of a commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"],
        capture_output=True,
        check=True,
    ).stdout
    with tempfile.TemporaryDirectory(prefix="orchid-old-") as directory:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(directory, filter="data")
        yield {"PYTHONPATH": str(Path(directory) / "src")}
