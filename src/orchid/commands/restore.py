"""`orchid restore`: put a backup in the place of the embedded store.

Refused while a server has the store open. What was there is kept aside, and clients that remember
a later time are told to list anew: see store/sqlite/restore.py.
"""

import argparse
import time
from pathlib import Path

from orchid.commands.backup import DATABASE, ENCRYPTION, add_data_dir, beside
from orchid.commands.terminal.output import USAGE, Complaint, say


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a copy made by orchid backup")
    add_data_dir(parser)


def run(chosen: argparse.Namespace) -> int:
    from orchid.store.first_revision import first_revision
    from orchid.store.interface import AlreadyInUse, StoreError
    from orchid.store.sqlite import restore as sqlite_restore

    if not chosen.file.is_file():
        raise Complaint(f"there is no file {chosen.file}", USAGE)
    directory: Path = chosen.data_dir
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    revoked = _revoked(directory)  # before anything is changed
    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    try:
        restored = sqlite_restore.restore(
            chosen.file, directory / DATABASE, first=first_revision(now), stamp=stamp
        )
    except AlreadyInUse as problem:
        raise Complaint(f"{problem}; stop the server first") from None
    except StoreError as problem:
        raise Complaint(str(problem)) from None
    _restore_key(beside(chosen.file), directory / ENCRYPTION)
    contents = restored.contents
    say(f"restored {contents.records} objects; the next revision is {contents.newest + 1}")
    if restored.aside is not None:
        say(f"what was there is now {restored.aside}")
    _tell_revocations(directory, revoked)
    return 0


def _revoked(directory: Path) -> list[str]:
    """The keys of all revocations that the server has noted beside its database."""
    from orchid.credentials import kept_revocations

    try:
        return list(kept_revocations.read(directory / kept_revocations.FILE))
    except kept_revocations.FileTooLarge as problem:
        raise Complaint(str(problem)) from None


def _tell_revocations(directory: Path, revoked: list[str]) -> None:
    """Say which revocations the copy does not know; the server puts them back when it starts."""
    from orchid.store.sqlite import restore as sqlite_restore

    made_since = sqlite_restore.missing_in(directory / DATABASE, revoked)
    if made_since:
        names = ", ".join(key.rpartition("/")[2] for key in made_since)
        say(f"revocations made since, which the server keeps: {names}")


def _restore_key(copied: Path, target: Path) -> None:
    """Bring the key along, if it lies beside the copy and none is in place."""
    from orchid.credentials.files import read_private, write_private
    from orchid.credentials.refusals import Refusal

    if not copied.exists() or target.exists():
        return
    try:
        write_private(target, read_private(copied))
    except (Refusal, OSError) as problem:
        raise Complaint(f"the objects are restored, but not their key: {problem}") from None
    say(f"restored {target.name}")
