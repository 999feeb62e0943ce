"""`orchid backup`: copy the embedded store to a file while the server runs.

The copy is of one moment, is checked before it gets its name, and only its owner can read it, for
it holds secrets. It holds the objects alone: keys, certificates and settings are files that any
tool can copy. The key that seals the secrets stays out, too, so that a copy alone gives nothing
away; --with-encryption-key writes it beside the copy. Like `restore` and `migrate`, this works on
files on the machine of the server, not through the API.
"""

import argparse
from pathlib import Path

from orchid.commands.terminal.output import USAGE, Complaint, remark, say

DATABASE = "orchid.db"
ENCRYPTION = "encryption.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="where to write the copy")
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


def run(chosen: argparse.Namespace) -> int:
    from orchid.store.interface import StoreError
    from orchid.store.sqlite import file as sqlite_file
    from orchid.store.sqlite import restore as sqlite_restore

    source = chosen.data_dir / DATABASE
    if not source.is_file():
        raise Complaint(f"there is no {source}; say where it is with --data-dir", USAGE)
    if chosen.file.is_dir():
        raise Complaint(f"{chosen.file} is a directory; name a file in it", USAGE)
    try:
        sqlite_file.copy(source, chosen.file)
        contents = sqlite_restore.inspect(chosen.file)
    except (StoreError, ValueError) as problem:
        raise Complaint(str(problem)) from None
    say(f"wrote {chosen.file}: {contents.records} objects at revision {contents.newest}")
    if chosen.with_encryption_key:
        _copy_key(chosen.data_dir / ENCRYPTION, beside(chosen.file))
    remark(
        f"keys and certificates are not in it: keep copies of the other files in {chosen.data_dir}"
    )
    return 0


def beside(backup: Path) -> Path:
    """Where the key of a copy is, if it was asked for."""
    return backup.with_name(f"{backup.name}.{ENCRYPTION}")


def _copy_key(source: Path, target: Path) -> None:
    from orchid.credentials.files import read_private, write_private
    from orchid.credentials.refusals import Refusal

    try:
        write_private(target, read_private(source))
    except (Refusal, OSError) as problem:
        raise Complaint(str(problem)) from None
    say(f"wrote {target}: whoever has both can read the secrets")
