"""`orchid backup`: copy the objects, or everything that a restore needs, while the server runs.

`orchid backup FILE` copies the objects: a consistent copy, checked before it gets its name,
readable by its owner only, because it holds secrets. The key that encrypts the secrets is not in
it; --with-encryption-key writes it beside the copy. `orchid backup --all DIR` copies every file of
the data directory that a restore needs, with private keys; `--keys OTHER` puts those into another
directory. Like `restore` and `migrate`, this works on files of the server's machine, not through
the API.
"""

import argparse
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.terminal.output import USAGE, Complaint, remark, say

ENCRYPTION: Final = "encryption.yaml"
REVOCATIONS: Final = "revocations.jsonl"
CHECKPOINT: Final = "ledger.checkpoint"
PRIVATE: Final = (
    "ca.key",
    "serving.key",
    "token-signing.key",
    "ledger.key",
    ENCRYPTION,
    "admin.kubeconfig",
)
PUBLIC: Final = ("ca.crt", "serving.crt")
LARGEST_FILE: Final = 1 << 30
WIDTH: Final = 100
UNBROKEN: Final = "\u00a0"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", type=Path, metavar="TARGET", help="file to write; with --all a directory"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        dest="everything",
        help="write everything that a restore needs into the directory TARGET: objects, keys, "
        "certificates, revocations and the last checkpoint of the ledger",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="with --all: write the private keys into this directory instead",
    )
    parser.add_argument(
        "--with-encryption-key",
        action="store_true",
        help=f"also copy {ENCRYPTION}, without which the secrets in the copy cannot be read",
    )
    add_data_dir(parser)


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("orchid-data"),
        metavar="DIR",
        help="the server's data directory (default: orchid-data)",
    )


def run(arguments: argparse.Namespace) -> int:
    if not (arguments.data_dir / DATABASE).is_file():
        raise Complaint(
            f"there is no {arguments.data_dir / DATABASE}; say where it is with --data-dir", USAGE
        )
    if arguments.keys and not arguments.everything:
        raise Complaint("--keys needs --all: a copy of the objects has no keys", USAGE)
    _refuse_newer_format(arguments.data_dir / DATABASE)
    refuse_moved(arguments.data_dir / DATABASE)
    if arguments.everything:
        _copy_everything(arguments.data_dir, arguments.target, arguments.keys or arguments.target)
        return 0
    if arguments.target.is_dir():
        raise Complaint(
            f"{arguments.target} is a directory; name a file in it, or add --all", USAGE
        )
    _copy_database(arguments.data_dir / DATABASE, arguments.target)
    if arguments.with_encryption_key:
        copy_private(arguments.data_dir / ENCRYPTION, beside(arguments.target))
        say("a person who has both can read the secrets")
    missing = ", ".join((*PRIVATE, *PUBLIC, REVOCATIONS, CHECKPOINT))
    remark(
        f"a restore also needs these files of {arguments.data_dir}, which are not in it: {missing}"
    )
    remark("orchid backup --all DIR saves everything")
    return 0


def refuse_moved(database: Path) -> None:
    """Refuse a database whose objects were moved to another store."""
    from orchid.kernel.store.migrate import MOVED, moved_text
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    mark = sqlite_restore.values_if_readable(database, MOVED).get(MOVED)
    if mark is not None:
        raise Complaint(f"{database}: {moved_text(mark)}", USAGE)


def beside(backup: Path) -> Path:
    """The path of a copy's key, if it was requested."""
    return backup.with_name(f"{backup.name}.{ENCRYPTION}")


def copy_private(source: Path, target: Path) -> None:
    """Copy a file that others must not read; the copy has mode 0600."""
    from orchid.kernel.credentials.files import read_private, write_private
    from orchid.kernel.credentials.refusals import Refusal

    try:
        write_private(target, read_private(source, LARGEST_FILE))
    except Refusal as problem:
        raise Complaint(str(problem)) from None
    except OSError as problem:
        raise Complaint(f"cannot copy {source} to {target}: {problem.strerror}") from None
    say(f"wrote {target}")


def _refuse_newer_format(database: Path) -> None:
    """Refuse a database of a later version before anything is written."""
    from orchid.kernel.store.interface import StoreError
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    try:
        sqlite_restore.require_known_format(database)
    except StoreError as problem:
        raise Complaint(str(problem)) from None


def _copy_database(source: Path, target: Path) -> None:
    from orchid.kernel.store.interface import StoreError
    from orchid.kernel.store.sqlite import file as sqlite_file
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    try:
        sqlite_file.copy(source, target)
        contents = sqlite_restore.inspect(target)
    except (StoreError, ValueError) as problem:
        raise Complaint(str(problem)) from None
    say(f"wrote {target}: {contents.records} objects at revision {contents.newest}")
    say_counts(contents.counts)


def say_counts(counts: Mapping[str, int]) -> None:
    """Report the number of objects of each kind, and of other records by their prefix."""
    kinds = sorted(counts, key=lambda prefix: (prefix.startswith("~"), prefix.split("/")[-2]))
    names = [re.sub(r"^~(.*)", r"\1 records", prefix.split("/")[-2]) for prefix in kinds]
    words = [f"{counts[prefix]} {name}" for prefix, name in zip(kinds, names, strict=True)]
    words = [each.replace(" ", UNBROKEN) for each in words]
    lines = textwrap.fill(", ".join(words), WIDTH, initial_indent="  ", subsequent_indent="  ")
    say(lines.replace(UNBROKEN, " "))


def _copy_everything(source: Path, target: Path, keys: Path) -> None:
    """The checkpoint first and the revocations last: neither may lack what the objects have."""
    for directory in {target, keys}:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise Complaint(f"{directory}: {problem.strerror}", USAGE) from None
        if any(directory.iterdir()):
            raise Complaint(f"{directory} is not empty: name a new directory", USAGE)
    absent = []
    for names, folder in (((CHECKPOINT,), target), (PUBLIC, target), (PRIVATE, keys)):
        for name in names:
            if (source / name).is_file():
                _copy_file(source / name, folder / name)
            else:
                absent.append(name)
    _copy_database(source / DATABASE, target / DATABASE)
    if (source / REVOCATIONS).is_file():
        _copy_file(source / REVOCATIONS, target / REVOCATIONS)
    else:
        absent.append(REVOCATIONS)
    if absent:
        remark(f"not in {source}, and so not saved: {', '.join(absent)}")
    remark("files elsewhere that the server's flags name are not in it; nor is the audit log")


def _copy_file(source: Path, target: Path) -> None:
    from orchid.kernel.credentials.files import read_bounded, write_private
    from orchid.kernel.credentials.refusals import Refusal

    try:
        write_private(target, read_bounded(source, LARGEST_FILE))
    except Refusal as problem:
        raise Complaint(str(problem)) from None
    except OSError as problem:
        raise Complaint(f"cannot copy {source} to {target}: {problem.strerror}") from None
    say(f"wrote {target}")
