"""`orchid migrate`: move all objects from the embedded store to etcd, or back.

    orchid migrate --from orchid-data --to-etcd https://a:2379,https://b:2379
    orchid migrate --from-etcd https://a:2379 --to orchid-data

Encrypted values stay encrypted: the servers of the target need the same keys, and the command says
so. No server may run on either side meanwhile, and the target must be empty. The source gets a
mark, with which no server starts; `--undo` removes it. kernel/store/migrate.py describes what is
moved and how it is verified.
"""

import argparse
import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from orchid.commands.records import revived
from orchid.commands.records.backup import ENCRYPTION
from orchid.kernel.store.sqlite.file import DATABASE
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import USAGE, Complaint, say
from orchid.kernel.terminal.progress import Bar
from orchid.kernel.wire.naming import SEALED_VALUE

if TYPE_CHECKING:
    from orchid.kernel.store.interface import Store
    from orchid.kernel.store.migrate import Migrated, Progress


def configure(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from", dest="source", type=Path, metavar="DIR", help="data directory")
    source.add_argument("--from-etcd", metavar="URL,URL", help="etcd endpoints")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to", dest="target", type=Path, metavar="DIR", help="data directory")
    target.add_argument("--to-etcd", metavar="URL,URL", help="etcd endpoints")
    parser.add_argument(
        "--undo",
        action="store_true",
        help="move nothing: let a source that was moved be used again",
    )
    parser.add_argument(
        "--etcd-prefix", default="/orchid", help="where in etcd (default: /orchid)", metavar="PATH"
    )
    parser.add_argument("--etcd-cafile", type=Path, metavar="FILE", help="authority of etcd")
    parser.add_argument("--etcd-certfile", type=Path, metavar="FILE", help="our certificate")
    parser.add_argument("--etcd-keyfile", type=Path, metavar="FILE", help="its key")


def run(arguments: argparse.Namespace) -> int:
    if arguments.undo:
        return _undo(arguments)
    if bool(arguments.source) == bool(arguments.target) or bool(arguments.from_etcd) == bool(
        arguments.to_etcd
    ):
        raise Complaint("one side must be a data directory and the other etcd", USAGE)
    if arguments.source:
        _require_database(arguments.source)
        _refuse_unstored(arguments.source)
    if arguments.target:
        arguments.target.mkdir(mode=0o700, parents=True, exist_ok=True)
    from orchid.kernel.store.interface import StoreError

    try:
        done = asyncio.run(_migrate(arguments))
    except StoreError as problem:
        raise Complaint(str(problem)) from None
    say(f"moved {done.records} objects (SHA-256 {done.digest}); begins at revision {done.target}")
    if done.sealed:
        say(f"sealed are {done.sealed} of them: {_with_their_key(arguments.source)}")
    say(f"a server does not start with {_name_of(arguments, arguments.source)} any more")
    return 0


def _undo(arguments: argparse.Namespace) -> int:
    """Let the source be served again."""
    if arguments.target or arguments.to_etcd:
        raise Complaint("--undo moves nothing: name only the source", USAGE)
    if arguments.source:
        _require_database(arguments.source)
    from orchid.kernel.store.interface import StoreError

    try:
        was_moved = asyncio.run(_unmark(arguments))
    except StoreError as problem:
        raise Complaint(str(problem)) from None
    name = _name_of(arguments, arguments.source)
    if not was_moved:
        raise Complaint(f"{name} was not moved")
    say(f"a server starts with {name} again; what ended since the move is valid again there")
    return 0


async def _unmark(arguments: argparse.Namespace) -> bool:
    from orchid.kernel.store.migrate import unmark

    store = await (_embedded(arguments.source) if arguments.source else _etcd(arguments))
    try:
        return await unmark(store)
    finally:
        await store.close()


def _require_database(source: Path) -> None:
    if not (source / DATABASE).is_file():
        raise Complaint(f"there is no {source / DATABASE}", USAGE)


def _name_of(arguments: argparse.Namespace, directory: Path | None) -> str:
    """The name of one side: the database in a directory, or etcd."""
    if directory is not None:
        return str((directory / DATABASE).resolve())
    urls = (arguments.from_etcd or arguments.to_etcd).split(",")
    plain = ",".join(re.sub(r"//[^/]*@", "//", url) for url in urls)
    return f"etcd at {plain} with the prefix {arguments.etcd_prefix}"


def _refuse_unstored(source: Path) -> None:
    """Refuse if revocations are only in the file beside the database, as after a restore."""
    from orchid.features.revoking import revocation_file
    from orchid.kernel.store.interface import StoreError

    try:
        revoked = revocation_file.read(source / revocation_file.FILE)
        names = revived.lacking(revoked, source / DATABASE) if revoked else []
    except (revocation_file.FileTooLarge, StoreError, OSError) as problem:
        raise Complaint(str(problem)) from None
    if names:
        raise Complaint(
            f"{source / revocation_file.FILE} has revocations that the database lacks: "
            f"{', '.join(names[:10])}. Start the server on {source} once, so that it stores them"
        )


def _with_their_key(source: Path | None) -> str:
    """The flags of a server that can decrypt the values."""
    own = source / ENCRYPTION if source else None
    if own is not None and own.is_file():
        return f"start every server with --encryption-provider-config {own}"
    return "start the server with the same --encryption-provider-config as before"


async def _migrate(arguments: argparse.Namespace) -> "Migrated":
    from orchid.kernel.store.migrate import mark_moved, migrate

    async with AsyncExitStack() as opened:
        embedded = await _embedded(arguments.source or arguments.target)
        opened.push_async_callback(embedded.close)
        etcd = await _etcd(arguments)
        opened.push_async_callback(etcd.close)
        source, target = (embedded, etcd) if arguments.source else (etcd, embedded)
        with Bar() as bar:

            def report(progress: "Progress") -> None:
                bar.show(progress.step, progress.done, progress.total)

            done = await migrate(source, target, SEALED_VALUE, report=report)
        if not done.records:  # no server has used it: a mistyped prefix
            raise Complaint(f"{_name_of(arguments, arguments.source)} has no objects")
        where = _name_of(arguments, arguments.target)
        await mark_moved(source, f"{where}, {times.now():%Y-%m-%dT%H:%M:%SZ}")
        return done


async def _embedded(directory: Path) -> "Store":
    from orchid.kernel.store.first_revision import first_revision
    from orchid.kernel.store.sqlite.store import SQLiteStore

    return await SQLiteStore.open(
        directory / DATABASE, first=first_revision(times.now().timestamp())
    )


async def _etcd(arguments: argparse.Namespace) -> "Store":
    try:
        from orchid.kernel.store.etcd.store import EtcdStore
    except ImportError:
        raise Complaint(
            "etcd needs two more packages: pip install 'orchid-identity[etcd]'", USAGE
        ) from None
    if arguments.etcd_keyfile:
        _refuse_exposed(arguments.etcd_keyfile)
    return await EtcdStore.open(
        (arguments.from_etcd or arguments.to_etcd).split(","),
        prefix=arguments.etcd_prefix,
        ca=arguments.etcd_cafile,
        certificate=arguments.etcd_certfile,
        key=arguments.etcd_keyfile,
    )


def _refuse_exposed(key: Path) -> None:
    from orchid.kernel.credentials.files import read_private
    from orchid.kernel.credentials.refusals import Refusal

    try:
        read_private(key)
    except Refusal as refusal:
        raise Complaint(f"--etcd-keyfile: {refusal}", USAGE) from None
