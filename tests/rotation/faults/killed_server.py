"""Be a server that dies right after one of its commits, as by `kill -9`.

    python -m tests.rotation.faults.killed_server 3 'identity/signingkeys/' FILE \
        python -m orchid serve ...

It dies after the third commit with a key that matches, before anybody has received the answer. The
file gets a line about that commit.
"""

import asyncio
import json
import os
import re
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import Change
from orchid.kernel.store.sqlite.store import SQLiteStore

MODULE = "tests.rotation.faults.killed_server"


class Fuse:
    """Counts commits, and ends the process after the last one."""

    def __init__(self, after: int, pattern: str, report: Path) -> None:
        self._left = after
        self._matches = re.compile(pattern).match
        self._report = report

    def committed(self, changes: Sequence[Change]) -> None:
        found = [change for change in changes if self._matches(change.key)]
        if not found:
            return
        self._left -= 1
        if self._left == 0:
            with self._report.open("a") as file:
                file.write(" and ".join(map(described, found)) + "\n")
            os.kill(os.getpid(), signal.SIGKILL)


def described(change: Change) -> str:
    """What a change does, without names and numbers, so that equal steps can be counted."""
    place = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uid>", change.key)
    place = re.sub(r"(~tokens|~ledger/\w+)/.*", r"\1", place)
    place = re.sub(r"\d+(?=$|\.)|\d{4,}|[0-9a-f]{32,}", "N", place)
    if change.value is None:
        return f"delete {place}"
    try:
        found: Any = json.loads(change.value)
        state = found["spec"].get("state", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"write {place}"
    times = ",".join(sorted(found.get("status", {}).get("times", {})))
    return f"write {place} {state} {f'({times})' if times else ''}".rstrip()


def guard(fuse: Fuse) -> None:
    """Put the fuse into both stores."""
    queue, commit = SQLiteStore._queue, EtcdStore._commit

    def queued(self: SQLiteStore, commits: Any, delete: Any = None) -> Any:
        answer = queue(self, commits, delete)

        def done(future: asyncio.Future[list[Any]]) -> None:
            if future.cancelled() or future.exception():
                return
            for changes, outcome in zip(commits, future.result(), strict=True):
                if not isinstance(outcome, Exception):
                    fuse.committed(changes)

        answer.add_done_callback(done)  # the first one: nobody has seen the answer yet
        return answer

    async def committed(self: EtcdStore, changes: Any, delete: Any) -> Any:
        revision = await commit(self, changes, delete)
        fuse.committed(changes)
        return revision

    SQLiteStore._queue = queued
    EtcdStore._commit = committed


def launcher(after: int, pattern: str, report: Path) -> tuple[str, ...]:
    """What goes before the command of a server."""
    return sys.executable, "-m", MODULE, str(after), pattern, str(report)


def main() -> None:
    after, pattern, report, *command = sys.argv[1:]
    guard(Fuse(int(after), pattern, Path(report)))
    sys.argv = command[command.index("orchid") :]
    runpy.run_module("orchid", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
