"""`orchid grant`: give a role to users, groups and accounts, everywhere or in one namespace."""

import argparse

from orchid.features.rights.commands import grants
from orchid.features.rights.commands.grants import configure
from orchid.kernel.terminal.connection import (
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    connect,
    path,
)
from orchid.kernel.terminal.output import remark
from orchid.kernel.terminal.subcommands import for_each

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    subjects = grants.subjects_of(arguments, server)
    where = grants.scope_of(arguments)
    is_missing = bool(arguments.namespace) and not _exists(server, arguments.namespace)

    def give(who: str) -> tuple[str, Json]:
        is_new, binding = grants.grant(server, arguments.role, subjects[who], arguments.namespace)
        done = "granted" if is_new else "unchanged:"
        return f"{done} {arguments.role} to {who} {where}", binding

    code = for_each(arguments, subjects, give)
    if is_missing and _exists(server, arguments.namespace):
        remark(f"there was no namespace {arguments.namespace}: it was created")
    return code


def _exists(server: ServerConnection, namespace: str) -> bool:
    try:
        server.get(path("api", "v1", "namespaces", namespace))
    except CommandRefused as refused:
        return refused.status != NOT_FOUND  # without the right to read it, nothing is known
    return True
