"""Commands with actions below them: `orchid csr new`, `orchid csr list`, and so on.

A command lists its actions as rows; each is told the server it speaks to.
"""

import argparse
from collections.abc import Callable, Iterable

from orchid.commands.terminal.connection import ServerConnection, add_flags, connect

Arguments = Callable[[argparse.ArgumentParser], None]
Act = Callable[[argparse.Namespace, ServerConnection], int]


def add_subcommands(
    parser: argparse.ArgumentParser, rows: Iterable[tuple[str, str, Arguments, Act]]
) -> None:
    """Give a command its actions: a name, what it does in a few words, its arguments, the work."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, words, arguments, act in rows:
        place = actions.add_parser(
            name, help=words, description=f"{words.capitalize()}.", allow_abbrev=False
        )
        arguments(place)
        add_flags(place)
        place.set_defaults(act=act)


def run_subcommand(chosen: argparse.Namespace) -> int:
    """Do the action that was chosen, with the server that the flags lead to."""
    act: Act = chosen.act
    return act(chosen, connect(chosen))
