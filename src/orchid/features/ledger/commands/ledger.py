"""`orchid ledger`: read and verify the ledger, and create proofs.

    checkpoint   print the signed head, to store it: a later `verify --since` compares with it
    verify       read everything, and report the first entry that does not match
    entries      print the entries, one JSON object per line
    prove        write a file that proves an entry to be in the ledger
    check        check such a file, without a server
    export       write the whole ledger as files, which other programs can check too
    accept       let a server sign a ledger that was rolled back, after a restore
    tokens       show the number of tokens of each key and account, and their expiry

Reads from the server, from a stopped server's data directory (--data-dir) or from an export
(--from).
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orchid.features.ledger.commands.ledger_logs import (
    DirectoryLog,
    OpenedLog,
    add_source,
    begins_with,
    opened_log,
    verifier_of,
)
from orchid.features.ledger.signing_keys import keys_named
from orchid.kernel.engine.ledger.entries import CERTIFICATE_ISSUED
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import add_yes, insist
from orchid.kernel.terminal.connection import FORMS, add_flags, connect
from orchid.kernel.terminal.output import (
    USAGE,
    Complaint,
    facts,
    print_for_programs,
    printable,
    remark,
    say,
    table,
)
from orchid.kernel.tlog import audit
from orchid.kernel.tlog.audit import LogRefused
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused, NoteVerifier
from orchid.kernel.tlog.proof_file import ProofFile
from orchid.kernel.tlog.proofs import ProofRefused
from orchid.kernel.tlog.tiles import FULL, tiles_of

Act = Callable[[argparse.Namespace, OpenedLog], Awaitable[None]]

ALL = "(all accounts)"  # of tokens that are counted without their accounts


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    rows: tuple[tuple[str, str, Act], ...] = (
        ("checkpoint", "print the signed head of the ledger", _checkpoint),
        ("verify", "read everything and check it", _verify),
        ("entries", "print the entries, one to a line", _entries),
        ("prove", "write a proof that an entry is in the ledger", _prove),
        ("export", "write the whole ledger as files", _export),
        ("tokens", "show the number of tokens of each key and account", _tokens),
    )
    added = {}
    for name, words, act in rows:
        added[name] = action = _action(actions, name, words)
        add_source(action)
        add_flags(action, forms=FORMS if name in ("checkpoint", "verify", "tokens") else ())
        action.set_defaults(act=act)
    added["verify"].add_argument(
        "--since", type=Path, metavar="FILE", help="an earlier checkpoint: it must match too"
    )
    added["prove"].add_argument(
        "serial", nargs="?", metavar="SERIAL", help="the certificate's serial number, in hex"
    )
    added["prove"].add_argument("--index", type=int, metavar="N", help="any entry, by its index")
    added["prove"].add_argument("--to", type=Path, metavar="FILE", help="where to write the proof")
    added["export"].add_argument("directory", type=Path, metavar="DIR", help="where to write")
    accept = _action(actions, "accept", "let a server sign a ledger that was rolled back")
    accept.add_argument(
        "--data-dir",
        type=Path,
        default=Path("orchid-data"),
        metavar="DIR",
        help="the server's data directory (default: orchid-data)",
    )
    add_yes(accept)
    accept.set_defaults(act=None, whole=_accept)
    check = _action(actions, "check", "check a proof, without a server")
    check.add_argument("file", type=Path, metavar="FILE", help="a .tlog-proof")
    check.add_argument("--key", required=True, metavar="KEY", help="the verifier key, or its file")
    check.set_defaults(act=None, whole=_check)


def _action(actions: Any, name: str, words: str) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(
        name, help=words, description=f"{words.capitalize()}.", allow_abbrev=False
    )
    return action


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.act is None:
            arguments.whole(arguments)
        else:
            asyncio.run(_run(arguments))
    except (LogRefused, ProofRefused, NoteRefused) as refusal:
        raise Complaint(str(refusal)) from None
    return 0


async def _run(arguments: argparse.Namespace) -> None:
    async with opened_log(arguments) as log:
        await arguments.act(arguments, log)


async def _checkpoint(arguments: argparse.Namespace, log: OpenedLog) -> None:
    head = await audit.opened(log.source, log.verifier)
    note = await log.source.checkpoint() or b""
    if print_for_programs(arguments.output, _shown(head) | {"note": note.decode()}):
        return
    say(note.decode().rstrip("\n"))


async def _verify(arguments: argparse.Namespace, log: OpenedLog) -> None:
    kept = _read(arguments.since) if arguments.since else None
    named: list[NoteVerifier] = []
    head = await audit.audit(
        log.source, log.verifier, lambda entry: named.extend(keys_named(entry))
    )
    since = None
    if kept is not None:
        since = _opened_kept(arguments.since, kept, head.origin, [*log.trusted, *named])
        await audit.require_growth(log.source, since, head)
    if print_for_programs(arguments.output, _shown(head) | {"key": log.verifier.vkey}):
        return
    facts(
        [
            ("Ledger", head.origin),
            ("Entries", f"{head.size}, all verified"),
            ("Root", head.root.hex()),
            ("Signed by", log.verifier.vkey),
            *([("Since", f"the {since.size} entries of then are unchanged")] if since else []),
        ]
    )


def _opened_kept(path: Path, note: bytes, origin: str, verifiers: list[NoteVerifier]) -> Checkpoint:
    """The checkpoint in a file, signed by a key that was given, or that the ledger names."""
    keys = {candidate.vkey: candidate for candidate in verifiers if candidate.name == origin}
    try:
        Checkpoint.claimed(note)
        for verifier in keys.values():
            if verifier.has_signed(note):
                return Checkpoint.opened(note, verifier)
    except NoteRefused as refusal:
        raise Complaint(f"{path}: {refusal}") from None
    raise Complaint(
        f"{path}: no key of this ledger has signed this checkpoint ({', '.join(sorted(keys))}); "
        "the ledger itself is good. If its key was replaced, add the earlier one with --key"
    )


async def _entries(arguments: argparse.Namespace, log: OpenedLog) -> None:
    head = await audit.opened(log.source, log.verifier)
    async for entry in audit.entries(log.source, head.size):
        say(printable(entry.decode(errors="replace")))


async def _prove(arguments: argparse.Namespace, log: OpenedLog) -> None:
    if (arguments.serial is None) == (arguments.index is None):
        raise Complaint("say which entry: a serial number, or --index", USAGE)
    note = await log.source.checkpoint() or b""
    head = Checkpoint.opened(note, log.verifier)
    index = arguments.index
    if index is None:
        index = await _index_of(log, head.size, serial_of(arguments.serial))
    if not 0 <= index < head.size:
        raise Complaint(f"the ledger has {head.size} entries, and no entry {index}")
    entry = await audit.entry_at(log.source, index, head.size)
    proof = ProofFile(entry, index, await audit.inclusion_proof(log.source, index, head.size), note)
    proof.opened(log.verifier)  # an invalid proof is not written
    path = arguments.to or Path(f"{arguments.serial or index}.tlog-proof")
    _write(path, proof.encode())
    say(f"wrote {path}: entry {index} of {head.size}")
    remark(f"anybody can check it: orchid ledger check {path} --key {log.verifier.vkey}")


def serial_of(text: str) -> str:
    """A serial number in the form of entries."""
    digits = text.replace(":", "").lower().removeprefix("0x").lstrip("0")
    if not digits or set(digits) - set("0123456789abcdef"):
        raise Complaint(f"{text!r} is no serial number in hex", USAGE)
    return digits


async def _index_of(log: OpenedLog, size: int, serial: str) -> int:
    """The index of the entry about a certificate; the newest bundles are read first."""
    for tile in reversed(audit.bundles_of(size)):
        entries = await audit.bundle_entries(log.source, tile)
        for offset, entry in enumerate(entries):
            content = _content(entry)
            entry_serial = str(content.get("serial", "")).lstrip("0")
            if content.get("type") == CERTIFICATE_ISSUED and entry_serial == serial:
                return tile.index * FULL + offset
    raise Complaint(f"the ledger has no certificate with the serial number {serial}")


def _check(arguments: argparse.Namespace) -> None:
    proof = ProofFile.parse(_read(arguments.file))
    head = proof.opened(verifier_of(arguments.key))
    say(printable(proof.entry.decode(errors="replace")))
    remark(f"it is entry {proof.index} of the {head.size} in {head.origin}")


def _accept(arguments: argparse.Namespace) -> None:
    """Rename the stored checkpoint, which no longer matches the log in the store."""
    from orchid.features.ledger.status import FILE, accept, read_kept

    path = arguments.data_dir / FILE
    checkpoint = read_kept(path)
    if checkpoint is None:
        raise Complaint(
            f"there is no checkpoint in {path}: the server knows no other ledger", USAGE
        )
    _refuse_needless(arguments.data_dir, checkpoint)
    say(
        f"the server has seen {checkpoint.size} entries of {checkpoint.origin}, "
        f"root {checkpoint.root.hex()}"
    )
    remark(
        "entries after those of the ledger in its store are lost; inform all who keep checkpoints"
    )
    insist(arguments, "Accept the ledger in the store as it is?")
    try:
        aside = accept(path, times.now())
    except OSError as problem:
        raise Complaint(f"{path}: {problem.strerror}") from None
    say(f"accepted; the checkpoint is now {aside}")


def _refuse_needless(directory: Path, checkpoint: Checkpoint) -> None:
    """Refuse if nothing was rolled back: the checkpoint is still needed to detect that."""
    if begins_with(directory, checkpoint):
        raise Complaint(
            f"nothing was rolled back: the ledger in the store begins with the {checkpoint.size} "
            "entries that the server has seen. Nothing was changed"
        )


async def _export(arguments: argparse.Namespace, log: OpenedLog) -> None:
    head = await audit.audit(log.source, log.verifier)
    note = await log.source.checkpoint() or b""
    written = DirectoryLog(arguments.directory)
    tiles = [*audit.bundles_of(head.size), *tiles_of(head.size)]
    for tile in tiles:
        written.write(tile.path, await log.source.tile(tile) or b"")
    written.write("checkpoint", note)
    written.write("key", f"{log.verifier.vkey}\n".encode())
    say(f"wrote {head.size} entries in {len(tiles)} files to {arguments.directory}")


async def _tokens(arguments: argparse.Namespace, log: OpenedLog) -> None:
    head = await audit.opened(log.source, log.verifier)
    now = times.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    counts: Counter[tuple[str, str]] = Counter()
    ends: dict[tuple[str, str], str] = {}
    async for entry in audit.entries(log.source, head.size):
        content = _content(entry)
        for account, end, count in content.get("tokens", ()):
            if end > now:
                which = (content["key"], account)
                counts[which] += count
                ends[which] = max(ends.get(which, ""), end)
    names = _account_names(arguments)
    rows = [
        {
            "key": key,
            "account": names.get(uid, uid) or ALL,
            "tokens": count,
            "until": ends[key, uid],
        }
        for (key, uid), count in sorted(counts.items())
    ]
    if print_for_programs(arguments.output, rows):
        return
    table(
        ("KEY", "ACCOUNT", "TOKENS", "UNTIL"),
        [tuple(row.values()) for row in rows],
        empty="no token that was counted is still good",
    )


def _account_names(arguments: argparse.Namespace) -> dict[str, str]:
    """Names of accounts by uid; without a server, uids are shown."""
    if arguments.data_dir or arguments.exported:
        return {}
    accounts = connect(arguments).items("/api/v1/serviceaccounts")
    metas = (each["metadata"] for each in accounts)
    return {meta["uid"]: f"{meta['namespace']}/{meta['name']}" for meta in metas}


def _content(entry: bytes) -> dict[str, Any]:
    try:
        content = json.loads(entry)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _shown(head: Checkpoint) -> dict[str, Any]:
    return {"origin": head.origin, "size": head.size, "root": head.root.hex()}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1 << 21)
    except OSError as problem:
        raise Complaint(f"{path}: {problem.strerror}", USAGE) from None


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as problem:
        raise Complaint(f"{path}: {problem.strerror}", USAGE) from None
