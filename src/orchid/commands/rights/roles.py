"""`orchid roles`: the roles that can be granted, and their rules."""

import argparse

from orchid.commands.rights import grants
from orchid.commands.terminal import times
from orchid.commands.terminal.connection import Json, add_flags, connect
from orchid.commands.terminal.objects import LIST_FORMS, ListColumn, add_watch, completed, show_list
from orchid.commands.terminal.output import name_of, print_for_programs, say_csv, table

OWN = "system:"


def configure(parser: argparse.ArgumentParser) -> None:
    role = parser.add_argument(
        "role", metavar="ROLE", nargs="?", default="", help="show the rules of this role"
    )
    completed(role, "role")
    parser.add_argument("--all", action="store_true", help="also those of the system")
    parser.add_argument("--namespace", "-n", default="", help="only those of a namespace")
    add_watch(parser)
    add_flags(parser, forms=LIST_FORMS)


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    if chosen.role:
        found = server.get(grants.roles(server, chosen.namespace, chosen.role))
        titles, rows = ("VERBS", "RESOURCES", "NAMES"), map(_rule, found.get("rules") or ())
        if chosen.output == "csv":
            say_csv([title.lower() for title in titles], rows)
        elif not print_for_programs(chosen.output, found):
            table(titles, rows, empty="it allows nothing")
        return 0
    return show_list(
        chosen,
        server,
        grants.roles(server, chosen.namespace),
        COLUMNS,
        keep=lambda one: chosen.all or not name_of(one).startswith(OWN),
        empty="no roles",
    )


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
