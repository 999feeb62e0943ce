"""`orchid account`: make, list and remove service accounts, for those without another client."""

import argparse

from orchid.commands.terminal import times
from orchid.commands.terminal.connection import ServerConnection, path
from orchid.commands.terminal.output import say, say_json, table
from orchid.commands.terminal.subcommands import add_subcommands, run_subcommand
from orchid.commands.token import account_of


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "make an account", _account_argument, _new),
            ("list", "list accounts", _list_arguments, _list),
            ("delete", "delete an account; its tokens end with it", _account_argument, _delete),
        ),
    )


run = run_subcommand


def _account_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="NAMESPACE/NAME")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="", help="only those in it (default: all)")


def _new(chosen: argparse.Namespace, server: ServerConnection) -> int:
    namespace, name = account_of(chosen.account, server.access.namespace)
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    answer = server.post(_place(namespace), body)
    if chosen.output == "json":
        say_json(answer)
    else:
        say(f"made {namespace}/{name}")
    return 0


def _list(chosen: argparse.Namespace, server: ServerConnection) -> int:
    found = list(server.items(_place(chosen.namespace)))
    if chosen.output == "json":
        say_json(found)
        return 0
    table(
        ("NAMESPACE", "NAME", "AGE"),
        [
            (
                each["metadata"].get("namespace", ""),
                each["metadata"]["name"],
                times.age(each["metadata"].get("creationTimestamp")),
            )
            for each in found
        ],
        empty="no accounts",
    )
    return 0


def _delete(chosen: argparse.Namespace, server: ServerConnection) -> int:
    namespace, name = account_of(chosen.account, server.access.namespace)
    answer = server.delete(_place(namespace, name))
    if chosen.output == "json":
        say_json(answer)
    else:
        say(f"deleted {namespace}/{name}")
    return 0


def _place(namespace: str, *parts: str) -> str:
    if not namespace:
        return path("api", "v1", "serviceaccounts")
    return path("api", "v1", "namespaces", namespace, "serviceaccounts", *parts)
