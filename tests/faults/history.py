"""Requests and observations of clients, with times: written by the workload, read by the checker.

`Call` is one request. `Watcher` is one client that follows changes through all troubles, in one or
more `Segment`s: within a segment nothing may be missing; a new one begins where the server has said
that history is gone. `Commit` is one entry of the store's own log, read when all is over: the
truth that everything else is held against.

Times are of one clock in one process. Nothing here judges.
"""

import enum
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ABSENT = 0  # the revision of what does not exist


class Outcome(enum.Enum):
    DONE = "done"
    REFUSED = "refused"  # 404 or 409: it did not happen, and there was a reason
    UNKNOWN = "unknown"  # no answer, or one that leaves it open


class Version(NamedTuple):
    """An object as a client sees it."""

    revision: int
    value: str


class Commit(NamedTuple):
    """One change in the log; `value` is None for a deletion."""

    revision: int
    key: str
    value: str | None


class Event(NamedTuple):
    """One event of a watch; a bookmark has no key."""

    at: float
    type: str
    key: str
    value: str
    revision: int


@dataclass
class Call:
    """One request of a client. What was asked, and what came of it."""

    client: int
    action: str  # create, update, delete, get, list
    key: str = ""
    value: str = ""  # of create and update: no two calls have the same
    expected: int = ABSENT  # of update and delete: the revision that must still be there
    fresh: bool = True  # of list: it must show all that was acknowledged before
    began: float = 0.0
    ended: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    status: int = 0
    revision: int = ABSENT  # of a write: its commit; of a get: what was found; of a list: its own
    found: dict[str, Version] = field(default_factory=dict)  # by get and list

    def __str__(self) -> str:
        asked = " ".join(
            str(part) for part in (self.action, self.key, self.value, self.expected or "") if part
        )
        came = f"{self.outcome.value} {self.status} at revision {self.revision}"
        return f"client {self.client}: {asked} [{self.began:.4f}, {self.ended:.4f}]: {came}"


@dataclass
class Segment:
    """The changes after a revision, without a gap."""

    after: int
    events: list[Event] = field(default_factory=list)


@dataclass
class Watcher:
    """One client's watches, each begun where the last one ended."""

    number: int
    segments: list[Segment] = field(default_factory=list)
    sessions: int = 0


@dataclass
class History:
    """Everything that clients did and saw."""

    calls: list[Call] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)
    improper: list[str] = field(default_factory=list)  # answers that no fault excuses
    end: int = ABSENT  # a revision that every watcher must have come to

    def save(self, path: Path, log: list[Commit]) -> None:
        """Write the complete history to a file, to find the cause of a violation."""
        path.write_bytes(msgspec.json.encode({**asdict(self), "log": log}, enc_hook=_plain))


def _plain(value: Any) -> Any:
    return str(value)
