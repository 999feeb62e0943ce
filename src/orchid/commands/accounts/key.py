"""`orchid key`: the keys of tokens.

`list` shows the published keys that verify tokens; `new` creates one in a file that only its owner
can read. docs/operations.md, Rotation, describes how to replace a key.
"""

import argparse
import shlex
from pathlib import Path

from orchid.commands.terminal.connection import Json, ServerConnection, add_flags, connect
from orchid.commands.terminal.output import USAGE, Complaint, print_for_programs, remark, say, table

PUBLISHED = "/openid/v1/jwks"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    words = "list the keys that verify tokens"
    listing = actions.add_parser("list", help=words, description=f"{words.capitalize()}.")
    add_flags(listing)
    listing.set_defaults(act=_list)
    words = "create a key that signs tokens; needs no server"
    making = actions.add_parser("new", help=words, description=f"{words.capitalize()}.")
    making.add_argument("file", type=Path, metavar="FILE", help="the new file; never overwritten")
    making.set_defaults(act=_new)


def run(chosen: argparse.Namespace) -> int:
    code: int = chosen.act(chosen)
    return code


def _list(chosen: argparse.Namespace) -> int:
    found = published(connect(chosen))
    if not print_for_programs(chosen.output, found):
        rows = [(each.get("kid", ""), each.get("alg", ""), each.get("kty", "")) for each in found]
        table(("KEY", "ALGORITHM", "TYPE"), rows, empty="no keys are published")
    return 0


def published(server: ServerConnection) -> list[Json]:
    """The public keys, as JSON Web Keys."""
    return list(server.get(PUBLISHED).get("keys") or ())


def _new(chosen: argparse.Namespace) -> int:
    from orchid.credentials import keys
    from orchid.credentials.files import write_private

    if chosen.file.exists():
        raise Complaint(f"{chosen.file} is already there", USAGE)
    key = keys.generate()
    try:
        write_private(chosen.file, key.pem().reveal().encode())
    except OSError as error:
        raise Complaint(f"cannot write {chosen.file}: {error.strerror}") from None
    say(f"made {chosen.file}: {key.kid}")
    name = shlex.quote(str(chosen.file))
    remark(
        f"next: on every server, --service-account-key-file {name} beside the old one; when all "
        f"publish it (orchid key list), --service-account-signing-key-file {name}"
    )
    return 0
