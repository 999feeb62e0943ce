"""`orchid role`: the roles that can be granted, and roles of your own.

    orchid role list
    orchid role show certificate-approver
    orchid role new web-approver --like certificate-approver --signer example.com/web
    orchid role new reader --allow 'get,list secrets' --namespace ci

`--like` copies the rules of another role. `--signer` limits a copy to some signers: of the verbs
approve, attest, revoke and sign, it has only those on these signers.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from orchid.features.rights.commands import grants
from orchid.features.rights.commands.can import group_of
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import Json, ServerConnection
from orchid.kernel.terminal.objects import ListColumn, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Complaint,
    name_of,
    print_for_programs,
    say,
    table,
)
from orchid.kernel.terminal.subcommands import add_subcommands, delete_each, run_subcommand

SYSTEM: Final = "system:"
OF_SIGNERS: Final = {"approve", "attest", "revoke", "sign"}
WORDS_OF_A_RULE: Final = (2, 3)


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "create a role", _new_arguments, _new),
            ("list", "list the roles that can be granted", _list_arguments, _list),
            ("show", "show what a role allows", _role_argument, _show),
            ("delete", "delete roles", asks(_roles_argument), _delete),
        ),
    )


run = run_subcommand


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role", metavar="NAME")
    like = parser.add_argument(
        "--like", action="append", default=[], metavar="ROLE", help="copy its rules; repeatable"
    )
    completed(like, "role")
    parser.add_argument(
        "--signer",
        action="append",
        default=[],
        help="limit them to this signer, as example.com/web or example.com/*; repeatable",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="'VERBS RESOURCE [NAMES]'",
        help="as 'get,list secrets', 'use approvalpolicies web' or 'get /metrics'; repeatable",
    )
    _namespace_flag(parser)


def _namespace_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", "-n", default="", help="of a namespace (default: of all)")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also those of the system")
    _namespace_flag(parser)


def _role_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("role", metavar="NAME"), "role")
    _namespace_flag(parser)


def _roles_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("names", metavar="NAME", nargs="+"), "role")
    _namespace_flag(parser)


def _new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    rules = [
        *(rule for role in arguments.like for rule in _copied(server, role, arguments.signer)),
        *(_allowed(server, text) for text in arguments.allow),
    ]
    if not rules:
        raise Complaint("what does it allow? give --like or --allow", USAGE)
    if arguments.signer and not any("signers" in rule.get("resources", ()) for rule in rules):
        raise Complaint("--signer: none of the copied roles has rights on signers", USAGE)
    body: Json = {
        "apiVersion": f"{server.naming.rbac}/{grants.VERSION}",
        "kind": "Role" if arguments.namespace else "ClusterRole",
        "metadata": {"name": arguments.role},
        "rules": rules,
    }
    created = server.post(grants.roles(server, arguments.namespace), body)
    if not print_for_programs(arguments.output, created):
        say(f"created {arguments.role}; grant it with: orchid grant {arguments.role} --user NAME")
    return 0


def _copied(server: ServerConnection, role: str, signers: Sequence[str]) -> list[Json]:
    """The rules of a role, limited to signers if there are any."""
    rules: list[Json] = server.get(grants.roles(server, "", role)).get("rules") or []
    if not signers:
        return rules
    limited = []
    for rule in rules:
        if OF_SIGNERS.isdisjoint(rule.get("verbs") or ()):
            limited.append(rule)
        elif "signers" in (rule.get("resources") or ()):
            limited.append({**rule, "resources": ["signers"], "resourceNames": list(signers)})
    return limited


def _allowed(server: ServerConnection, text: str) -> Json:
    """The rule of an --allow."""
    words = text.split()
    if len(words) not in WORDS_OF_A_RULE:
        raise Complaint(f"--allow: {text!r} is not like 'get,list secrets'", USAGE)
    verbs, resource, *names = words
    rule: Json = {"verbs": verbs.split(",")}
    if resource.startswith("/"):
        if names:
            raise Complaint(f"--allow: a path has no names: {text!r}", USAGE)
        return {**rule, "nonResourceURLs": [resource]}
    plural, slash, subresource = resource.partition("/")
    plural, _, group = plural.partition(".")
    rule |= {
        "apiGroups": [group or group_of(server, plural)],
        "resources": [f"{plural}{slash}{subresource}"],
    }
    return {**rule, "resourceNames": names[0].split(",")} if names else rule


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(
        arguments,
        server,
        grants.roles(server, arguments.namespace),
        COLUMNS,
        keep=lambda role: arguments.all or not name_of(role).startswith(SYSTEM),
        empty="no roles",
    )


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    role = server.get(grants.roles(server, arguments.namespace, arguments.role))
    if not print_for_programs(arguments.output, role):
        rows = map(_rule, role.get("rules") or ())
        table(("VERBS", "RESOURCES", "NAMES"), rows, empty="it allows nothing")
    return 0


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    def path_of(server: ServerConnection, name: str) -> str:
        return grants.roles(server, arguments.namespace, name)

    return delete_each(arguments, server, path_of)


def _rule(rule: Json) -> tuple[str, str, str]:
    groups = rule.get("apiGroups") or [""]
    resources = [
        f"{resource}.{group}" if group else resource
        for group in groups
        for resource in rule.get("resources") or ()
    ]
    return (
        ", ".join(rule.get("verbs") or ()),
        ", ".join([*resources, *(rule.get("nonResourceURLs") or ())]),
        ", ".join(rule.get("resourceNames") or ()) or "any",
    )


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("RULES", lambda one: len(one.get("rules") or ())),
    ListColumn("AGE", lambda one: times.age(one["metadata"].get("creationTimestamp"))),
)
