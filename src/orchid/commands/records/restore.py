"""`orchid restore`: replace the embedded store by a backup.

Refused while a server has the store open. The previous database is renamed, and clients with a
later revision have to list again: see kernel/store/sqlite/restore.py. A restore makes credentials
valid that were deleted after the backup; records of certificates that were issued after it are
kept, because those are still valid. The command reports them, as far as the previous database shows
them, and can revoke their tokens (commands/records/revived.py).
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from orchid.commands.records import revived
from orchid.commands.records.backup import (
    CHECKPOINT,
    ENCRYPTION,
    LARGEST_FILE,
    PRIVATE,
    PUBLIC,
    REVOCATIONS,
    add_data_dir,
    beside,
    refuse_moved,
    say_counts,
)
from orchid.commands.records.stored_data import KEPT_PREFIXES, NEWER
from orchid.commands.records.unknown_dependents import keys_in_use
from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import USAGE, Complaint, remark, say

if TYPE_CHECKING:  # a module for this would be loaded by each start of the command
    from orchid.kernel.store.sqlite.restore import Restored

ALL, DELETED = "all", "deleted"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="a file written by orchid backup, or a directory written by orchid backup --all",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="the directory with the private keys, if they were saved apart",
    )
    parser.add_argument(
        "--revoke-tokens",
        choices=(DELETED, ALL),
        metavar="WHICH",
        help="revoke every token issued until now: `deleted`, of the accounts that were deleted "
        "after the backup; `all`, of every account in the backup",
    )
    parser.add_argument(
        "--accept-ledger",
        action="store_true",
        help="let the server sign the ledger of the backup, although it had a longer one",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only report what the restore would bring back"
    )
    add_data_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    from orchid.kernel.store.interface import StoreError
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    database = arguments.source / DATABASE if arguments.source.is_dir() else arguments.source
    if not database.is_file():
        raise Complaint(f"there is no file {database}", USAGE)
    directory: Path = arguments.data_dir
    refuse_moved(directory / DATABASE)
    revoked = _revoked(directory)  # before anything is changed
    unnoted = _unnoted(directory, revoked)
    try:
        sqlite_restore.require_known_format(database)
        changes = revived.compare(database, directory / DATABASE)
        if arguments.revoke_tokens == DELETED and changes.deleted is None:
            raise Complaint(
                "which accounts were deleted after the backup is not known here: "
                "there is no database in place to compare with; use --revoke-tokens all",
                USAGE,
            )
        if arguments.dry_run:
            contents = sqlite_restore.inspect(database)
            say(f"nothing is restored: the backup is whole and has {contents.records} objects")
        else:
            _restore(arguments, database, directory, unnoted, changes)
    except StoreError as problem:
        raise Complaint(str(problem)) from None
    revived.report(changes, revokes=bool(arguments.revoke_tokens), is_done=not arguments.dry_run)
    if revoked is not None or unnoted:
        _report_revocations({**unnoted, **(revoked or {})}, database)
    if revoked is None:
        remark(
            f"revocations created after the backup are not known: there was no {REVOCATIONS} in "
            f"{directory}. What they revoked works again: find them in the audit log, and revoke "
            "it again"
        )
    _report_ledger(directory, database, accepts=arguments.accept_ledger and not arguments.dry_run)
    if arguments.revoke_tokens and not arguments.dry_run:
        which = changes.accounts if arguments.revoke_tokens == ALL else changes.deleted_accounts
        revived.revoke(directory / REVOCATIONS, which, times.now())
    return 0


def _restore(
    arguments: argparse.Namespace,
    database: Path,
    directory: Path,
    unnoted: dict[str, bytes],
    changes: revived.Revived,
) -> None:
    from orchid.features.revoking import revocation_file
    from orchid.kernel.store.first_revision import first_revision
    from orchid.kernel.store.interface import AlreadyInUse
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    now, drops = times.now(), revived.dropped(database)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    try:
        restored = sqlite_restore.restore(
            database,
            directory / DATABASE,
            first=first_revision(now.timestamp()),
            stamp=stamp,
            keeps=KEPT_PREFIXES,
            newer=NEWER,
            entries_of=revived.ledger_entries,
            drops=drops,
            values={} if changes.deleted is not None else keys_in_use(database, now),
        )
    except AlreadyInUse as problem:
        raise Complaint(f"{problem}; stop the server first") from None
    _restore_file(beside(database), directory / ENCRYPTION)
    if arguments.source.is_dir():
        for name in (CHECKPOINT, REVOCATIONS, *PUBLIC, *PRIVATE):
            _restore_file(arguments.source / name, directory / name)
    for name in PRIVATE if arguments.keys else ():
        _restore_file(arguments.keys / name, directory / name)
    if unnoted:
        lines = [revocation_file.line(key, data) for key, data in unnoted.items()]
        revocation_file.append(directory / REVOCATIONS, lines)
    _report_contents(restored, len(drops) - len(sqlite_restore.missing_in(database, drops)))


def _report_contents(restored: "Restored", omitted: int) -> None:
    contents = restored.contents
    say(f"restored {contents.records} objects; the next revision is {contents.newest + 1}")
    say_counts(contents.counts)
    if omitted:
        say(f"not restored: {omitted} records that clients or the server have newer ones of")
    if restored.kept:
        say(f"kept from the replaced database: {restored.kept} records that are still valid")
    if restored.aside is not None:
        say(f"what was there is now {restored.aside}")


def _revoked(directory: Path) -> dict[str, bytes] | None:
    """All revocations in the file beside the database, by key; None: no file."""
    from orchid.features.revoking import revocation_file

    path = directory / REVOCATIONS
    if not path.exists():
        return None
    try:
        revoked, unreadable = revocation_file.read_counted(path)
    except (revocation_file.FileTooLarge, OSError) as problem:
        raise Complaint(str(problem)) from None
    if unreadable:
        remark(
            f"{path}: {unreadable} lines cannot be read; what they revoked may work again. "
            "If you have a copy of the file, put it there and restore again"
        )
    return revoked


def _unnoted(directory: Path, revoked: dict[str, bytes] | None) -> dict[str, bytes]:
    """Revocations of the previous database that the file lacks: the disk was full, or a crash."""
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    stored = sqlite_restore.values_if_readable(directory / DATABASE, revived.REVOKED)
    noted = revoked or {}
    return {k: v for k, v in stored.items() if k not in noted and revived.uid_of(v)}


def _report_revocations(revoked: dict[str, bytes], database: Path) -> None:
    """Report the revocations that the backup lacks; the server stores them when it starts."""
    made_since = revived.lacking(revoked, database)
    if made_since:
        say(f"revocations created since, which the server keeps: {', '.join(made_since)}")


def _report_ledger(directory: Path, database: Path, *, accepts: bool) -> None:
    """Report that the ledger goes back; the server then signs nothing until that is accepted."""
    from orchid.features.ledger.status import accept, read_kept
    from orchid.kernel.engine.ledger import store_keys
    from orchid.kernel.store.sqlite import restore as sqlite_restore
    from orchid.kernel.tlog.checkpoints import Checkpoint

    kept = read_kept(directory / CHECKPOINT)
    note = sqlite_restore.value_of(database, store_keys.HEAD)
    size = Checkpoint.claimed(note).size if note else 0
    if kept is None or kept.size <= size:
        return
    text = (
        f"the ledger goes back from {kept.size} to {size} entries: inform all who keep checkpoints"
    )
    if accepts:
        accept(directory / CHECKPOINT, times.now())
        say(f"{text}. Accepted")
        return
    remark(
        f"{text}. The server signs it again when you have run: "
        f"orchid ledger accept --data-dir {directory}"
    )


def _restore_file(source: Path, target: Path) -> None:
    """Restore a file of the backup, unless it exists: that one is newer."""
    from orchid.kernel.credentials.files import read_private, write_private
    from orchid.kernel.credentials.refusals import Refusal

    if not source.exists() or target.exists():
        return
    try:
        write_private(target, read_private(source, LARGEST_FILE))
    except (Refusal, OSError) as problem:
        raise Complaint(f"the objects are restored, but not {target.name}: {problem}") from None
    say(f"restored {target.name}")
