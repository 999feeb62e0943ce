"""A data directory that already holds many accounts and bindings.

Start with `seeded`. One account and one binding are created by a server over its API; what it
stored is the pattern of all others, which are written by the store's own code without a server.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from benchmarks import harness
from benchmarks.harness import NO_CONTROLLERS
from benchmarks.setting import Administrator, account
from orchid.kernel.store.interface import ABSENT, LATEST, MAX_CHANGES, Change, Record, Span
from orchid.kernel.store.sqlite import tables
from orchid.kernel.store.sqlite.file import DataFile

PATTERN = "pattern"  # the namespace and the name of what the others are made of
PER_NAMESPACE = 500
PER_BINDING = 10  # accounts for each binding
PER_TRANSACTION = 20_000
ACCOUNTS, BINDINGS = "core/serviceaccounts/", "rbac/rolebindings/"


@dataclass(frozen=True)
class Seeded:
    """The objects in a prepared data directory."""

    accounts: int
    bindings: int
    stored_bytes: int  # of all values

    def place(self, number: int) -> tuple[str, str]:
        """The namespace and the name of an account."""
        return f"team-{number // PER_NAMESPACE:04d}", f"acc-{number:07d}"

    def chosen(self, count: int, *, bound: bool = False) -> list[tuple[str, str]]:
        """So many places, evenly spread over all accounts, or over those that have a binding."""
        each = PER_BINDING if bound else 1
        step = max(1, self.accounts // each // count)
        return [self.place(number * step * each) for number in range(count)]

    @property
    def objects(self) -> int:
        return self.accounts + self.bindings


def seeded(data_dir: Path, accounts: int) -> Seeded:
    """Fill a new data directory with accounts, and a tenth as many bindings."""
    with (
        harness.serving(data_dir, *NO_CONTROLLERS) as server,
        closing(Administrator(server.url)) as administrator,
    ):
        for path, body in patterns():
            administrator.call("POST", path, body)
    made = Seeded(accounts, accounts // PER_BINDING, 0)
    file = DataFile(data_dir / "orchid.db")
    with closing(file):
        size = write(file.writing, copies(file.reading, made))
    return Seeded(made.accounts, made.bindings, size)


def patterns() -> Iterator[tuple[str, dict[str, Any]]]:
    """Where one object of each kind is created, and as what."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PATTERN}}
    yield "/api/v1/namespaces", namespace
    yield f"/api/v1/namespaces/{PATTERN}/serviceaccounts", account(PATTERN)
    subject = {"kind": "ServiceAccount", "name": PATTERN, "namespace": PATTERN}
    binding = {
        "apiVersion": "rbac.authorization.orch.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": PATTERN},
        "roleRef": {
            "apiGroup": "rbac.authorization.orch.io",
            "kind": "ClusterRole",
            "name": "view",
        },
        "subjects": [subject],
    }
    yield f"/apis/rbac.authorization.orch.io/v1/namespaces/{PATTERN}/rolebindings", binding


def copies(db: apsw.Connection, made: Seeded) -> Iterator[Change]:
    """Every object there is to be, as the server would have stored it."""
    namespace = stored(db, f"core/namespaces/{PATTERN}")
    for number in range(0, made.accounts, PER_NAMESPACE):
        name, _ = made.place(number)
        yield copy(namespace, name)
    pattern = stored(db, f"{ACCOUNTS}{PATTERN}/{PATTERN}")
    for number in range(made.accounts):
        yield copy(pattern, *made.place(number))
    pattern = stored(db, f"{BINDINGS}{PATTERN}/{PATTERN}")
    for number in range(0, made.bindings * PER_BINDING, PER_BINDING):
        yield copy(pattern, *made.place(number))


def stored(db: apsw.Connection, key: str) -> Record:
    found = tables.read(db, Span.key(key), LATEST, 0).records
    if not found:
        raise SystemExit(f"nothing is stored as {key}")
    return found[0]


def copy(pattern: Record, *place: str) -> Change:
    """The same object in another place, with a uid of its own."""
    kind = "/".join(pattern.key.split("/")[:2])
    body = json.loads(pattern.value)
    body["metadata"]["uid"] = str(uuid.uuid4())
    text = json.dumps(body, separators=(",", ":"))
    namespace, name = place[0], place[-1]
    text = text.replace(f'"namespace":"{PATTERN}"', f'"namespace":"{namespace}"')
    text = text.replace(f'"name":"{PATTERN}"', f'"name":"{name}"')
    return Change("/".join((kind, *place)), text.encode(), ABSENT)


def write(db: apsw.Connection, changes: Iterable[Change]) -> int:
    """Commit everything in large transactions; give the bytes of all values."""
    size, newest = 0, tables.extent(db).newest
    changes = iter(changes)
    while many := list(islice(changes, PER_TRANSACTION)):
        size += sum(len(change.value or b"") for change in many)
        commits = [many[at : at + MAX_CHANGES] for at in range(0, len(many), MAX_CHANGES)]
        newest = tables.apply(db, newest, commits).batch.revision
    while tables.sweep(db, newest):  # as if all of it had been written long ago
        pass
    return size
