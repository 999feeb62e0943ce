"""`orchid account`: create, list, show and delete service accounts.

`show` includes the permissions of an account: the roles that it has by name or by its groups.
"""

import argparse

from orchid.features.rights.commands import grants
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks, insist
from orchid.kernel.terminal.connection import CommandRefused, Json, ServerConnection, path
from orchid.kernel.terminal.objects import ListColumn, account_of, completed, show_list
from orchid.kernel.terminal.output import facts, name_of, print_for_programs, remark
from orchid.kernel.terminal.subcommands import add_subcommands, for_each, run_subcommand

COLUMNS = (
    ListColumn("NAMESPACE", lambda one: one["metadata"].get("namespace", "")),
    ListColumn("NAME", lambda one: one["metadata"]["name"]),
    ListColumn("AGE", lambda one: times.age(one["metadata"].get("creationTimestamp"))),
    ListColumn("UID", lambda one: one["metadata"].get("uid", ""), is_wide=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "create accounts", _new_arguments, _new),
            ("list", "list accounts", _list_arguments, _list),
            ("show", "show an account and its roles", _account_argument, _show),
            (
                "delete",
                "delete accounts and invalidate their tokens",
                asks(_accounts_argument),
                _delete,
            ),
        ),
    )


run = run_subcommand


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("accounts", metavar="NAMESPACE/NAME", nargs="+")


def _account_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("account", metavar="NAMESPACE/NAME"), "account")


def _accounts_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("accounts", metavar="NAMESPACE/NAME", nargs="+"), "account")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", "-n", default="", help="only those in it (default: all)")


def _new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    def make(given: str) -> tuple[str, Json]:
        namespace, name = account_of(given, server.access.namespace)
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        return f"created {namespace}/{name}", server.post(_url(namespace), body)

    return for_each(arguments, arguments.accounts, make)


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(arguments, server, _url(arguments.namespace), COLUMNS, empty="no accounts")


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    namespace, name = account_of(arguments.account, server.access.namespace)
    account = server.get(_url(namespace, name))
    if print_for_programs(arguments.output, account):
        return 0
    subject = grants.account(namespace, name)
    held = [grants.described(each) for each in grants.of_subject(server, subject)]
    facts(
        [
            ("Account", name_of(account)),
            ("User", grants.username(namespace, name)),
            ("UID", account["metadata"].get("uid", "")),
            ("Made", f"{times.age(account['metadata'].get('creationTimestamp'))} ago"),
            (
                "Secrets",
                [each.get("name", "") for each in account.get("secrets") or ()] or ["none"],
            ),
            ("Roles", held or ["none of its own"]),
        ]
    )
    return 0


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    insist(arguments, f"Delete {', '.join(arguments.accounts)}? Their tokens end at once.")

    def delete(given: str) -> tuple[str, Json]:
        namespace, name = account_of(given, server.access.namespace)
        deleted = server.delete(_url(namespace, name))
        _remark_roles(server, namespace, name)
        return f"deleted {namespace}/{name}", deleted

    return for_each(arguments, arguments.accounts, delete)


def _remark_roles(server: ServerConnection, namespace: str, name: str) -> None:
    """Bindings name an account, so the next account of this name has its roles."""
    try:
        bindings = list(grants.of_subject(server, grants.account(namespace, name)))
    except CommandRefused:  # the right to delete accounts is not the right to list bindings
        return
    for binding in bindings:
        place = binding["metadata"].get("namespace", "")
        scope = f" --namespace {place}" if place else ""
        remark(
            f"{namespace}/{name} still has the role {grants.described(binding)}, and so would the "
            f"next account of this name: orchid revoke-grant {binding['roleRef']['name']} "
            f"--account {namespace}/{name}{scope}"
        )


def _url(namespace: str, *parts: str) -> str:
    if not namespace:
        return path("api", "v1", "serviceaccounts")
    return path("api", "v1", "namespaces", namespace, "serviceaccounts", *parts)
