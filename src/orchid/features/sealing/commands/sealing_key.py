"""Sealing keys: how `orchid key` shows, adds and removes the keys that encrypt stored values.

The keys are in a file on each server (--encryption-provider-config); these functions change one
file. The servers reload it and seal with the first key that all of them can open, the leader writes
all values again, and a server rejects a file without a key that is still needed. Counts are the
metric orchid_sealed_values; the keys of each server are in its Lease.
"""

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, connect, path, retried
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Complaint,
    print_for_programs,
    remark,
    say,
    table,
)

DEFAULT_FILE: Final = Path("orchid-data/encryption.yaml")
SERVER_LASTS: Final = 60.0  # seconds without renewal, after which a server is not shown
_SAMPLE: Final = re.compile(
    r'^orchid_sealed_values\{resource="([^"]*)",key="((?:[^"\\]|\\.)*)"\} (\S+)$', re.MULTILINE
)


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        type=Path,
        default=DEFAULT_FILE,
        metavar="FILE",
        help=f"for sealing keys: the server's file of keys (default: {DEFAULT_FILE})",
    )


class SealingState(NamedTuple):
    """Sealing keys as the servers report them."""

    counts: Counter[tuple[str, str]]  # values by key and resource
    opens: dict[str, set[str]]  # the names of the keys that each live server has
    seals: dict[str, set[str]]  # the names of those that it seals with

    def needing(self, key: str) -> list[str]:
        """Why a key is still needed; empty if it is not."""
        reasons = [
            f"{count} values of {resource} are sealed with it"
            for (name, resource), count in sorted(self.counts.items())
            if name == key and count
        ]
        return reasons + [
            f"{server} seals with it" for server, keys in self.seals.items() if key in keys
        ]


def state_of(server: ServerConnection) -> SealingState:
    _, text = server.text("/metrics")
    counts = Counter[tuple[str, str]]()
    for resource, key, value in _SAMPLE.findall(text):
        counts[re.sub(r"\\(.)", r"\1", key), resource] += int(float(value))
    leases = [lease for lease in server.items(_leases(server)) if _is_live_server(lease, server)]
    return SealingState(
        counts,
        {
            lease["metadata"]["name"]: _keys(lease, f"{server.naming.identity}/opens")
            for lease in leases
        },
        {
            lease["metadata"]["name"]: _keys(lease, f"{server.naming.identity}/seals")
            for lease in leases
        },
    )


def show(arguments: argparse.Namespace) -> int:
    """Print each key: its values, how many servers have it, and whether they seal with it."""
    state = state_of(connect(arguments))
    names = {key for key, _ in state.counts} | {
        key for keys in state.opens.values() for key in keys
    }
    shown = [_facts(state, name) for name in sorted(names)]
    if not print_for_programs(arguments.output, shown):
        rows = [
            (
                entry["name"],
                ", ".join(f"{count} {what}" for what, count in entry["values"].items()) or "0",
                f"{entry['servers']} of {len(state.opens)}",
                f"{entry['seals']} of {len(state.opens)}",
            )
            for entry in shown
        ]
        table(("KEY", "VALUES", "SERVERS HAVE IT", "SERVERS SEAL WITH IT"), rows, empty="no keys")
    return 0


def _facts(state: SealingState, name: str) -> Json:
    values = {what: n for (key, what), n in sorted(state.counts.items()) if key == name and n}
    return {
        "name": name,
        "values": values,
        "servers": sum(name in keys for keys in state.opens.values()),
        "seals": sum(name in keys for keys in state.seals.values()),
    }


def rotate(arguments: argparse.Namespace) -> int:
    """Add a key to the file; with --wait until every value is sealed with it."""
    from orchid.features.sealing.encryption import InvalidEncryption, with_new_key

    server = connect(arguments) if arguments.wait else None
    try:
        name, text = with_new_key(_read(arguments.file))
    except InvalidEncryption as problem:
        raise Complaint(f"{arguments.file}: {problem}", USAGE) from None
    _write(arguments.file, text)
    say(f"added {name} to {arguments.file}")
    remark("next: copy the file to the other servers of the same etcd, if there are any. They")
    remark("reload it, and write all values again: orchid key show sealing")
    if server is not None:
        _wait(server, arguments.wait, name)
        say(f"all values are sealed with {name}")
    return 0


def _wait(server: ServerConnection, seconds: float, name: str) -> None:
    others: set[str] = set()

    def is_over() -> bool | None:
        nonlocal others
        state = state_of(server)
        others = {key for (key, _), count in state.counts.items() if count and key != name}
        others |= {key for keys in state.seals.values() for key in keys if key != name}
        return None if others else True

    if not retried(is_over, seconds):
        raise Complaint(f"not yet: {', '.join(sorted(others))} still needed", REFUSED)


def retire(arguments: argparse.Namespace, name: str) -> int:
    """Remove a key from the file, unless values are sealed with it."""
    from orchid.features.sealing.encryption import InvalidEncryption, without_key

    before = _read(arguments.file)
    try:
        text = without_key(before, name)
    except InvalidEncryption as problem:
        raise Complaint(f"{arguments.file}: {problem}", USAGE) from None
    server = connect(arguments)
    reasons: list[str] = []

    def is_unneeded() -> bool | None:
        nonlocal reasons
        reasons = state_of(server).needing(name)
        return None if reasons else True

    if not retried(is_unneeded, arguments.wait):
        raise Complaint(f"{name} is needed: {'; '.join(reasons)}", REFUSED)
    kept = arguments.file.with_name(f"{arguments.file.name}.{quote(name, safe='')}")
    _write(kept, before)
    _write(arguments.file, text)
    now = f"{times.now():%Y-%m-%dT%H:%M:%SZ}"
    say(f"removed {name} from {arguments.file}")
    remark(f"backups written before {now} need it: {kept} has it; delete it with the last of them")
    remark("next: remove it from the files of the other servers of the same etcd")
    return 0


def _read(file: Path) -> bytes:
    from orchid.kernel.credentials.files import read_private
    from orchid.kernel.credentials.refusals import Refusal

    try:
        return read_private(file)
    except Refusal as refusal:
        raise Complaint(f"{refusal}; name it with --file", USAGE) from None


def _write(file: Path, text: bytes) -> None:
    from orchid.kernel.credentials.files import write_private

    try:
        write_private(file, text)
    except OSError as error:
        raise Complaint(f"cannot write {file}: {error.strerror}") from None


def _leases(server: ServerConnection) -> str:
    naming = server.naming
    home = naming.system_namespace
    return path("apis", naming.coordination, "v1", "namespaces", home, "leases")


def _is_live_server(lease: Json, server: ServerConnection) -> bool:
    if f"{server.naming.identity}/server" not in (lease["metadata"].get("labels") or {}):
        return False
    renewed = times.parse((lease.get("spec") or {}).get("renewTime"))
    return renewed is not None and (times.now() - renewed).total_seconds() < SERVER_LASTS


def _keys(lease: Json, annotation: str) -> set[str]:
    """The names of the keys in an annotation, of all resources."""
    listed = (lease["metadata"].get("annotations") or {}).get(annotation, "")
    ids = (one.rpartition("/")[2] for one in listed.split(",") if one)
    return {unquote(one.rpartition("-")[0]) or one for one in ids}
