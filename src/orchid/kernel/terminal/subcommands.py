"""Commands with subcommands: `orchid csr new`, `orchid csr list`, and so on.

A command lists its subcommands as rows; each gets the connection to the server. `for_each` is for
subcommands with several names, `delete_each` for those that delete objects.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from orchid.kernel.terminal.asking import insist
from orchid.kernel.terminal.connection import FORMS, Json, ServerConnection, add_flags, connect
from orchid.kernel.terminal.objects import LIST_FORMS, SHOW_FORMS, add_watch
from orchid.kernel.terminal.output import (
    REFUSED,
    Complaint,
    print_for_programs,
    printable,
    say,
)

Arguments = Callable[[argparse.ArgumentParser], None]
Act = Callable[[argparse.Namespace, ServerConnection], int]
FORMS_OF = {"list": LIST_FORMS, "show": SHOW_FORMS}


class Subcommand(NamedTuple):
    """A name, its help, its arguments, and its function."""

    name: str
    help: str
    arguments: Arguments
    act: Act


def add_subcommands(
    parser: argparse.ArgumentParser,
    rows: Iterable[tuple[str, str, Arguments, Act]],
    *,
    elsewhere: Collection[str] = (),
) -> None:
    """Add the subcommands of a command; `list` gets flags to watch, and to print names alone.

    `elsewhere`: those whose --kubeconfig is that of another server.
    """
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, words, arguments, act in rows:
        subparser = actions.add_parser(
            name, help=words, description=f"{words.capitalize()}.", allow_abbrev=False
        )
        arguments(subparser)
        if name == "list":
            add_watch(subparser)
        add_flags(
            subparser,
            forms=FORMS_OF.get(name, FORMS),
            kubeconfig="--orchid-kubeconfig" if name in elsewhere else "--kubeconfig",
        )
        subparser.set_defaults(act=act)


def run_subcommand(arguments: argparse.Namespace) -> int:
    """Run the selected subcommand, with the server of the flags."""
    act: Act = arguments.act
    return act(arguments, connect(arguments))


def for_each(
    arguments: argparse.Namespace, names: Iterable[str], work: Callable[[str], tuple[str, Json]]
) -> int:
    """Call `work` for each name and print the result; a failure does not stop the others."""
    answers, failed = [], False
    for name in names:
        try:
            done, answer = work(name)
        except Complaint as complaint:
            print(f"orchid: {name}: {complaint}", file=sys.stderr, flush=True)
            failed = True
            continue
        answers.append(answer)
        if arguments.output == "text":
            say(done)
    print_for_programs(arguments.output, answers)
    return REFUSED if failed else 0


def delete_each(
    arguments: argparse.Namespace,
    server: ServerConnection,
    path_of: Callable[[ServerConnection, str], str],
) -> int:
    """Delete the named objects after a confirmation; `path_of` returns the path of each."""
    insist(arguments, f"Delete {', '.join(map(printable, arguments.names))}?")
    return for_each(
        arguments,
        arguments.names,
        lambda name: (f"deleted {name}", server.delete(path_of(server, name))),
    )
