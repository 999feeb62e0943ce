"""Record what the program of a commit stores: python -m tests.upgrades.record COMMIT

Starts a server of that commit on a data directory, and one on etcd, fills both, and writes what
they have stored to a new directory of tests/data/upgrades. To be run for every release.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import Span
from tests.e2e.https import Https
from tests.e2e.serving import running_server, sealing_flags
from tests.unit.kernel.store import etcd_process
from tests.upgrades import old_code
from tests.upgrades.population import FLAGS, SIGNING, Population, fill
from tests.upgrades.recording import PACKED, PLACE, line

LEFT_OUT = (".log", "-lock", "-wal", "-shm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    target = PLACE / f"{old_code.time_of(commit)}-{commit}"
    if target.exists():
        sys.exit(f"{target} exists: a recording never changes")
    with tempfile.TemporaryDirectory() as home, old_code.source_of(commit) as environment:
        data = Path(home) / "data"
        on_a_file = _on_a_file(data, environment)
        begun, on_etcd = _on_etcd(Path(home), data, environment)
        target.mkdir(parents=True)
        with tarfile.open(target / PACKED, "w:xz") as packed:
            for file in sorted(data.iterdir()):
                if not file.name.endswith(LEFT_OUT):
                    packed.add(file, file.name)
        shutil.copyfile(Path(home) / "etcd.jsonl", target / "etcd.jsonl")
        found = {"sqlite": on_a_file, "etcd": on_etcd, "begun": begun}
        text = json.dumps(msgspec.to_builtins(found), indent=1)
        (target / "population.json").write_text(text + "\n")
    sys.stdout.write(f"wrote {target}\n")


def _on_a_file(data: Path, environment: dict[str, str]) -> Population:
    with (
        running_server(data, *FLAGS, *SIGNING, env=environment) as server,
        Https(server.port) as https,
    ):
        return fill(https)


def _on_etcd(home: Path, data: Path, environment: dict[str, str]) -> tuple[int, Population]:
    """The same keys and certificates, with the objects in etcd; how many the start alone wrote."""
    shutil.copytree(data, home / "etcd", ignore=shutil.ignore_patterns("orchid.db*"))
    sealed = sealing_flags(home / "etcd")
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        url = cluster.urls[0]
        flags = (*FLAGS, *SIGNING, *sealed, "--etcd-servers", url)
        with (
            running_server(home / "etcd", *flags, env=environment) as server,
            Https(server.port) as https,
        ):
            begun = asyncio.run(_contents(url))
            made = fill(https)
        ended = asyncio.run(_contents(url))
    changed = [record for key, record in ended.items() if begun.get(key) != record]
    same = [record for key, record in ended.items() if begun.get(key) == record]
    ordered = [*sorted(same, key=_revision), *sorted(changed, key=_revision)]
    lines = [line(record.key, record.value) for record in ordered]
    (home / "etcd.jsonl").write_text("\n".join(lines) + "\n")
    return len(same), made


def _revision(record: Any) -> int:
    return int(record.revision)


async def _contents(url: str) -> dict[str, Any]:
    store = await EtcdStore.open([url])
    try:
        page = await store.read(Span.all())
        return {record.key: record for record in page.records}
    finally:
        await store.close()


if __name__ == "__main__":
    main()
