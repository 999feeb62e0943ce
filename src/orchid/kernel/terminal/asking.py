"""Confirmation: what ends something for good asks on a terminal, and needs `--yes` elsewhere.

That is a deletion, a revocation, or the end of a key; a command that another command can undo does
not ask. Such a subcommand wraps its arguments in `asks` and calls `insist` before its first change.
"""

import argparse
import sys
from collections.abc import Callable

from orchid.kernel.terminal.output import USAGE, Complaint

LONGEST_ANSWER = 64  # characters

Arguments = Callable[[argparse.ArgumentParser], None]


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")


def asks(arguments: Arguments) -> Arguments:
    """The arguments of a subcommand, and --yes."""

    def add(parser: argparse.ArgumentParser) -> None:
        arguments(parser)
        add_yes(parser)

    return add


def insist(arguments: argparse.Namespace, question: str) -> None:
    """Return only if the user means it."""
    if arguments.yes:
        return
    meant = confirmed(question)
    if meant is None:
        raise Complaint("nothing was changed; on a terminal it asks, elsewhere add --yes", USAGE)
    if not meant:
        raise Complaint("nothing was changed")


def confirmed(question: str) -> bool | None:
    """Whether the person at the terminal confirms; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline(LONGEST_ANSWER).strip().lower() in ("y", "yes")
