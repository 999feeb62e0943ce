"""The command line: a table of commands, each a module of `orchid.commands`.

A command's module is imported only for that command, so that `orchid --help` is fast. `configure`
adds its flags to a parser, `run` does the work and returns the exit code:

    0  success    1  refused or failed    2  usage error

An expected failure is one line on standard error, never a traceback.
"""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from orchid.kernel.base.version import __version__
from orchid.kernel.terminal.parser_tree import subparsers
from orchid.kernel.wire.naming import REFERENCE

INVALID_CHOICE = re.compile(r"argument [^:]+: invalid choice: '([^']*)' \(choose from (.*)\)")
INTERRUPTED = 130  # 128 and the number of SIGINT, as in shells
USAGE_ERROR = 2
LONGEST_USAGE = 12  # lines above an error; `orchid serve` has 60
DEFAULT_COLUMNS = 80
READ_ON = """orchid COMMAND --help describes each, as does orchid help COMMAND.
Manual pages of an installed Orchid: man orchid-csr, man orchid-csr-new."""


class Command(NamedTuple):
    """A command, and its module."""

    name: str
    help: str
    module: str


GROUPS = {
    "Server": (
        Command("serve", "start the server", "orchid.commands.server.serve"),
        Command(
            "init", "create keys and certificates, start nothing", "orchid.commands.server.init"
        ),
        Command(
            "controllers",
            "run the controllers without a server",
            "orchid.commands.server.controllers",
        ),
        Command(
            "config", "show every setting and where it came from", "orchid.commands.server.config"
        ),
        Command("doctor", "find problems of an installation", "orchid.commands.server.doctor"),
        Command(
            "status",
            "show the health of the server, and your user",
            "orchid.commands.server.status",
        ),
    ),
    "Accounts and tokens": (
        Command(
            "account",
            "create, list, show and delete accounts",
            "orchid.features.accounts.commands.account",
        ),
        Command(
            "token",
            "get a token of an account, or decode one",
            "orchid.features.accounts.commands.token",
        ),
        Command(
            "key",
            "list, rotate and retire keys that sign",
            "orchid.features.token_keys.commands.key",
        ),
        Command(
            "whoami",
            "show your user as the server sees it",
            "orchid.features.sign_in.commands.whoami",
        ),
    ),
    "Certificates": (
        Command(
            "csr",
            "request, decide, fetch and renew certificates",
            "orchid.features.certificates.commands.csr",
        ),
        Command(
            "policy",
            "approve certificates by rule, and explain decisions",
            "orchid.features.approving.commands.policy",
        ),
        Command(
            "issued",
            "list the issued certificates",
            "orchid.features.certificates.commands.issued",
        ),
        Command(
            "revoke", "revoke a certificate or a token", "orchid.features.revoking.commands.revoke"
        ),
        Command(
            "revocations",
            "list revocations and their reasons",
            "orchid.features.revoking.commands.revocations",
        ),
        Command(
            "ca",
            "create, list and delete certificate authorities",
            "orchid.features.authorities.commands.ca",
        ),
        Command(
            "acme",
            "let ACME clients get certificates",
            "orchid.features.acme.commands.acme",
        ),
        Command(
            "bundle",
            "list, show, set and publish trust bundles",
            "orchid.features.trust_bundles.commands.bundle",
        ),
    ),
    "Hosts": (
        Command(
            "host",
            "let hosts join, place accounts on them, revoke them",
            "orchid.features.hosts.commands.host",
        ),
        Command(
            "agent",
            "keep the credentials of this host fresh in files",
            "orchid.features.hosts.commands.agent",
        ),
    ),
    "Clusters": (
        Command(
            "cluster",
            f"revoke credentials in {REFERENCE} clusters that you run",
            "orchid.features.clusters.commands.cluster",
        ),
    ),
    "Rights": (
        Command(
            "role", "create, list, show and delete roles", "orchid.features.rights.commands.role"
        ),
        Command(
            "grant",
            "give a role to users, groups and accounts",
            "orchid.features.rights.commands.grant",
        ),
        Command(
            "revoke-grant", "take a role away again", "orchid.features.rights.commands.revoke_grant"
        ),
        Command("can", "check a permission", "orchid.features.rights.commands.can"),
    ),
    "Clients": (
        Command(
            "console", "open the console in a browser", "orchid.features.console.commands.console"
        ),
        Command(
            "kubeconfig",
            "write a kubeconfig for a workload",
            "orchid.features.certificates.commands.kubeconfig",
        ),
        Command(
            "credential",
            "provide a credential that renews itself",
            "orchid.commands.clients.credential",
        ),
        Command(
            "completion",
            "print a script that completes commands",
            "orchid.commands.clients.completion",
        ),
    ),
    "Store and record": (
        Command(
            "backup", "copy the embedded store while it runs", "orchid.commands.records.backup"
        ),
        Command("restore", "restore a backup", "orchid.commands.records.restore"),
        Command(
            "migrate", "move all objects between SQLite and etcd", "orchid.commands.records.migrate"
        ),
        Command(
            "rewrite",
            "encrypt stored objects with the newest key",
            "orchid.commands.records.rewrite",
        ),
        Command(
            "ledger",
            "verify and prove issued credentials and decisions",
            "orchid.features.ledger.commands.ledger",
        ),
    ),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    typed = _usual(list(sys.argv[1:] if arguments is None else arguments))
    parser = build(typed[:1])
    if (
        typed[:1]
        and typed[0].startswith("-")
        and any(command.name in typed for command in COMMANDS)
    ):
        parser.error(f"flags come after the command: orchid COMMAND {typed[0]}")
    parsed = parser.parse_args(typed)
    if not hasattr(parsed, "run"):
        parser.print_help()
        return 0
    return _run(parsed)


def _usual(typed: list[str]) -> list[str]:
    """`orchid help csr new` and `orchid version`, which other programs have, as flags."""
    if typed[:1] == ["help"]:
        return [*typed[1:], "--help"]
    return ["--version"] if typed == ["version"] else typed


def build(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser, with the flags of the wanted commands; None means all."""
    parser = Parser(
        prog="orchid",
        description=f"The identity plane of {REFERENCE} without {REFERENCE}.",
        epilog=_overview(),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"orchid {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", help="see below")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=HelpFormatter,
            allow_abbrev=False,  # a new flag must not change the meaning of an abbreviation
        )
        if words is None or command.name in words:
            module: Any = importlib.import_module(command.module)
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
            if command.name == "completion":
                subparser.set_defaults(everything=build)
    return parser


def _overview() -> str:
    """All commands, in their groups."""
    width = max(len(command.name) for command in COMMANDS)
    parts = []
    for title, commands in GROUPS.items():
        lines = [f"  {command.name:<{width}}  {command.help}" for command in commands]
        parts.append("\n".join((f"{title.lower()}:", *lines)))
    return "\n\n".join((*parts, READ_ON))


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal.

    The library creates a formatter for every flag, shown or not, and would import archive modules
    to get the width.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """The width of the terminal; COLUMNS overrides it, and the default is 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


class Parser(argparse.ArgumentParser):
    """A parser that suggests a correction for a mistyped word."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser = self._deepest(args if args is not None else sys.argv[1:])
            unknown = parser.without_late_word(parsed, unknown)
        if unknown:
            hint = _meant(unknown[0], parser.options())
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        mistyped = INVALID_CHOICE.match(message)
        if mistyped:
            word, listed = mistyped.groups()
            choices = re.findall(r"'([^']+)'", listed)
            hint = _meant(word, choices)
            message = f"unknown value {word!r}{hint or ';'} choose from {', '.join(choices)}"
        usage = self.format_usage()
        if usage.count("\n") > LONGEST_USAGE:
            usage = f"usage: {self.prog} [FLAG]..., see {self.prog} --help\n"
        self.exit(USAGE_ERROR, f"{usage}{self.prog}: error: {message}\n")

    def _deepest(self, words: Sequence[str]) -> "Parser":
        """The parser of the command and subcommand in the arguments."""
        commands = subparsers(self)
        for subparser, word in enumerate(words):
            subcommand = commands.get(word)
            if isinstance(subcommand, Parser):
                return subcommand._deepest(words[subparser + 1 :])
        return self

    def without_late_word(self, parsed: argparse.Namespace, unknown: list[str]) -> list[str]:
        """Assign a word that follows a flag to its optional argument.

        argparse before Python 3.12.8 treats an optional argument as missing when a flag precedes
        it, as in `orchid token show --verify TOKEN`.
        """
        word, *others = unknown
        for action in self._actions:
            is_optional = action.nargs == "?" and not action.option_strings
            is_late = is_optional and getattr(parsed, action.dest) == action.default
            if is_late and not word.startswith("--"):
                setattr(parsed, action.dest, word)
                return others
        return unknown

    def options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]


def _meant(word: str, options: Sequence[str]) -> str:
    """A suggestion for a mistyped word."""
    import difflib

    close = difflib.get_close_matches(word.partition("=")[0], options, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _run(arguments: argparse.Namespace) -> int:
    from orchid.kernel.terminal.output import Complaint, discard_output

    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except Complaint as complaint:
        print(f"orchid: {complaint}", file=sys.stderr)
        return complaint.code
    except BrokenPipeError:
        discard_output()  # the reader has closed the pipe
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
