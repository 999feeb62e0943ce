"""Stores as earlier commits left them, in tests/data/upgrades: a directory for each, by its time.

    data.tar.xz       the data directory of a server with the embedded store
    etcd.jsonl        what a server wrote to etcd: a key and a value per line, in order
    population.json   the objects and credentials in both (population.py)

record.py makes them; a recording never changes.
"""

import base64
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from orchid.kernel.store.etcd.client import EtcdClient, TLSFiles
from orchid.kernel.store.etcd.keys import Keyspace
from orchid.kernel.store.etcd.messages import TXN, PutRequest, RequestOp, TxnRequest
from tests.upgrades.population import REQUESTS, Population

PLACE = Path(__file__).parent.parent / "data" / "upgrades"
PACKED = "data.tar.xz"
# Each server continues these with a value that it has read: they cannot be replayed.
COUNTED = ("~", "coordination/leases/orch-system/")

Write = tuple[str, bytes]


class Recording(msgspec.Struct, frozen=True):
    """One directory of tests/data/upgrades."""

    path: Path

    @property
    def commit(self) -> str:
        return self.path.name.rpartition("-")[2]

    def population(self, store: str) -> Population:
        """The objects that must be there; without requests, which end an hour after a decision."""
        found = json.loads((self.path / "population.json").read_text())
        made = msgspec.convert(found[store], Population)
        made.objects = {
            path: one for path, one in made.objects.items() if not path.startswith(REQUESTS)
        }
        return made

    def copy_data(self, target: Path) -> Path:
        """A data directory for a server."""
        target.mkdir(mode=0o700)
        with tarfile.open(self.path / PACKED) as files:
            files.extractall(target, filter="data")
        return target

    def writes(self) -> list[Write]:
        """All keys and values that the server left in etcd, in the order of its writes."""
        lines = (self.path / "etcd.jsonl").read_text().splitlines()
        return [_key_and_value(json.loads(each)) for each in lines]

    def before_and_during(self) -> tuple[list[Write], list[Write]]:
        """The same in two parts: the store before `fill`, and the objects that it made.

        Records that every server continues from what it has read belong to the first.
        """
        begun = json.loads((self.path / "population.json").read_text())["begun"]
        before, during = self.writes()[:begun], self.writes()[begun:]
        counted = [each for each in during if each[0].startswith(COUNTED)]
        return before + counted, [each for each in during if each not in counted]


def recordings() -> list[Recording]:
    """All recordings, the oldest first."""
    return [Recording(path) for path in sorted(PLACE.iterdir()) if path.is_dir()]


async def put(url: str, writes: Iterable[Write]) -> None:
    """Write to etcd as a server does, with the mark of every commit."""
    client, keys = EtcdClient([url], TLSFiles(), timeout=10), Keyspace("/orchid")
    try:
        for number, (key, value) in enumerate(writes):
            changes = [
                PutRequest(key=keys.outer(key), value=value),
                PutRequest(key=keys.mark, value=f"replay-{number}".encode()),
            ]
            operations = [RequestOp(request_put=change) for change in changes]
            await client.call(TXN, TxnRequest(success=operations))
    finally:
        await client.close()


def line(key: str, value: bytes) -> str:
    """One line of etcd.jsonl: text as it is, anything else in base64."""
    try:
        found: dict[str, Any] = {"key": key, "value": value.decode()}
    except UnicodeDecodeError:
        found = {"key": key, "base64": base64.b64encode(value).decode()}
    return json.dumps(found, ensure_ascii=False)


def _key_and_value(found: dict[str, str]) -> Write:
    if "base64" in found:
        return found["key"], base64.b64decode(found["base64"])
    return found["key"], found["value"].encode()
