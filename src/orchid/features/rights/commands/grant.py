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


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    subjects = grants.subjects_of(chosen, server)
    where = grants.scope_of(chosen)
    is_missing = bool(chosen.namespace) and not _exists(server, chosen.namespace)

    def give(who: str) -> tuple[str, Json]:
        is_new, binding = grants.grant(server, chosen.role, subjects[who], chosen.namespace)
        done = "granted" if is_new else "unchanged:"
        return f"{done} {chosen.role} to {who} {where}", binding

    code = for_each(chosen, subjects, give)
    if is_missing and _exists(server, chosen.namespace):
        remark(f"there was no namespace {chosen.namespace}: it was created")
    return code


def _exists(server: ServerConnection, namespace: str) -> bool:
    try:
        server.get(path("api", "v1", "namespaces", namespace))
    except CommandRefused as refused:
        return refused.status != NOT_FOUND  # without the right to read it, nothing is known
    return True
