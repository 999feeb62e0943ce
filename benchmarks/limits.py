"""What the machine allows: the parts of a request that no server can leave out, each by itself.

`Limits.measure` takes them on the server's core: an answer over TLS by a server that does nothing
else (echo.py), a P-256 signature and its verification (openssl), and a value that SQLite has on
disk. `Limits.most` says how many requests of a row the machine could answer if these were all.
"""

import os
import re
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path

from benchmarks import echo, load

SPEED = re.compile(r"nistp256\)\s+\S+s\s+\S+s\s+([\d.]+)\s+([\d.]+)")
LIST_BYTES = 250_000  # about as long as a list of 500 accounts
VALUE = b"x" * 700  # about as long as a stored account
TOGETHER = 32  # values in a commit: as many as there are connections
LOOKS, SECONDS = 3, 1

# What one request of a row consists of. A token is verified once and then known; a certificate is
# created, approved and issued, each of which is stored, by two requests or by one and a policy.
CONSISTS_OF = {
    "livez": {"answers": 1},
    "get": {"answers": 1},
    "list500": {"lists": 1},
    "selfsubjectreview": {"answers": 1},
    "tokenreview-one": {"answers": 1},
    "tokenreview-many": {"answers": 1},
    "tokenrequest": {"answers": 1, "signatures": 1},
    "create": {"answers": 1, "commits": 1},
    "csr-create": {"answers": 1, "commits": 1},
    "csr-create-many": {"answers": 1, "verifications": 1, "commits": 1},
    "csr-issue": {"answers": 2, "verifications": 1, "signatures": 1, "commits": 3},
    "csr-policy": {"answers": 1, "verifications": 1, "signatures": 1, "commits": 3},
}


@dataclass(frozen=True)
class Limits:
    """How many of each part one core makes in a second."""

    answers: float
    lists: float  # answers as long as a list
    signatures: float
    verifications: float
    commits: float  # values that are on disk, by processor time
    on_disk: float  # the same by the clock

    @classmethod
    def measure(cls, core: int, load_core: int, directory: Path) -> "Limits":
        """The best of several looks: a limit is what was possible when nothing was in the way."""
        looks = [cls._look(core, load_core, directory) for _ in range(LOOKS)]
        return cls(*map(max, zip(*map(astuple, looks), strict=True)))

    @classmethod
    def _look(cls, core: int, load_core: int, directory: Path) -> "Limits":
        signatures, verifications = signing_speed(core)
        commits, on_disk = committing_speed(core, directory)
        return cls(
            answers=answering_speed(core, load_core, directory, echo.USUAL_BYTES),
            lists=answering_speed(core, load_core, directory, LIST_BYTES),
            signatures=signatures,
            verifications=verifications,
            commits=commits,
            on_disk=on_disk,
        )

    def most(self, row: str) -> float:
        """How many requests a second are possible: the core makes their parts, the disk keeps up.

        Parts of the processor come one after the other; the disk works beside it.
        """
        parts = CONSISTS_OF[row]
        by_core: float = 1 / sum(number / getattr(self, part) for part, number in parts.items())
        return min(by_core, self.on_disk / parts["commits"]) if "commits" in parts else by_core

    def __str__(self) -> str:
        return (
            "one core makes, in a second, each by itself: "
            f"{self.answers:,.0f} answers over TLS, {self.lists:,.0f} of {LIST_BYTES // 1000} kB, "
            f"{self.signatures:,.0f} signatures, {self.verifications:,.0f} verifications, "
            f"{self.commits:,.0f} values in SQLite, {TOGETHER} in a commit "
            f"({self.on_disk:,.0f} with the wait for the disk)"
        )


def signing_speed(core: int) -> tuple[float, float]:
    """P-256 signatures and verifications per second."""
    command = ["taskset", "-c", str(core), "openssl", "speed", "-seconds", str(SECONDS)]
    told = subprocess.run([*command, "ecdsap256"], capture_output=True, text=True, check=True)
    found = SPEED.search(told.stdout)
    if found is None:
        raise SystemExit(f"cannot read the answer of openssl speed:\n{told.stdout}")
    return float(found[1]), float(found[2])


def answering_speed(core: int, load_core: int, directory: Path, answer_bytes: int) -> float:
    job = load.Job("GET", ["/"], [])
    with echo.running(directory, core, answer_bytes) as (port, _):
        url = f"https://127.0.0.1:{port}"
        found = load.measure(job, url, core=load_core, seconds=SECONDS, connections=TOGETHER)
    return found.per_second


def committing_speed(core: int, directory: Path, seconds: float = SECONDS) -> tuple[float, float]:
    """Values per second that SQLite makes durable: by processor time, and by the clock."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as place,
        on_core(core),
        closing(sqlite3.connect(f"{place}/values.db", isolation_level=None)) as database,
    ):
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        names, made = (f"/registry/serviceaccounts/bench/{number:08}" for number in count()), 0
        busy, began = time.thread_time(), time.monotonic()
        while time.monotonic() - began < seconds:
            database.execute("BEGIN")
            values = [(next(names), VALUE) for _ in range(TOGETHER)]
            database.executemany("INSERT INTO kept VALUES (?, ?)", values)
            database.execute("COMMIT")
            made += TOGETHER
        return made / (time.thread_time() - busy), made / (time.monotonic() - began)


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Have this thread on one core for a while."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)
