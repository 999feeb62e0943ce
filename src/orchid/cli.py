"""The command line: a table of commands, each a module of `orchid.commands`.

A command's module is imported only when that command is typed, so that `orchid --help` answers at
once. `configure` adds its flags to a parser, `run` does the work and gives the exit code:

    0  done        1  the server, or the work, said no        2  it was typed wrongly

A failure that was foreseen is one line on standard error, never a traceback.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from orchid.version import __version__
from orchid.wire.naming import REFERENCE

INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


class Command(NamedTuple):
    """A command, and the module that does its work."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("serve", "start the server", "orchid.commands.serve"),
    Command("init", "make keys and certificates, start nothing", "orchid.commands.init"),
    Command("controllers", "run the controllers by themselves", "orchid.commands.controllers"),
    Command("status", "show whether the server is well, and who you are", "orchid.commands.status"),
    Command("doctor", "say what is wrong with an installation", "orchid.commands.doctor"),
    Command("whoami", "show as whom the server knows you", "orchid.commands.whoami"),
    Command("account", "make, list and delete accounts", "orchid.commands.account"),
    Command("token", "get a token of an account, or look into one", "orchid.commands.token"),
    Command("csr", "request, decide and fetch certificates", "orchid.commands.csr"),
    Command("policy", "say by rule who gets a certificate, and why", "orchid.commands.policy"),
    Command("issued", "list the certificates that are out there", "orchid.commands.issued"),
    Command("revoke", "take a certificate or a token back", "orchid.commands.revoke"),
    Command("ca", "make, list and delete certificate authorities", "orchid.commands.ca"),
    Command("bundle", "list, show and set trust bundles", "orchid.commands.bundle"),
    Command("ledger", "check and prove what was issued and decided", "orchid.commands.ledger"),
    Command("kubeconfig", "write a kubeconfig for a workload", "orchid.commands.kubeconfig"),
    Command("backup", "copy the embedded store while it runs", "orchid.commands.backup"),
    Command("restore", "put a copy back in place", "orchid.commands.restore"),
    Command("migrate", "move all objects between SQLite and etcd", "orchid.commands.migrate"),
    Command("rewrite", "seal what is stored with the newest key", "orchid.commands.rewrite"),
    Command("completion", "print a script that completes commands", "orchid.commands.completion"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    parser = build(typed[:1])
    chosen = parser.parse_args(typed)
    if not hasattr(chosen, "run"):
        parser.print_help()
        return 0
    return _run(chosen)


def build(wanted: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser, with the flags of the commands that are wanted; None means of all."""
    parser = argparse.ArgumentParser(
        prog="orchid",
        description=f"The identity plane of {REFERENCE} without {REFERENCE}.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"orchid {__version__}")
    places = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        place = places.add_parser(
            command.name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a flag added later must not change what was typed before
        )
        if wanted is None or command.name in wanted:
            module: Any = importlib.import_module(command.module)
            module.configure(place)
            place.set_defaults(run=module.run)
            if command.name == "completion":
                place.set_defaults(everything=build)
    return parser


def _run(chosen: argparse.Namespace) -> int:
    from orchid.commands.terminal.output import Complaint

    try:
        code: int = chosen.run(chosen)
        sys.stdout.flush()
    except Complaint as complaint:
        print(f"orchid: {complaint}", file=sys.stderr)
        return complaint.code
    except BrokenPipeError:
        # Whoever read our output has had enough; Python would complain once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
