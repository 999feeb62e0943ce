"""`orchid grant`: give a role to users, groups and accounts, everywhere or in one namespace."""

import argparse

from orchid.commands.rights import grants
from orchid.commands.rights.grants import configure
from orchid.commands.terminal.connection import Json, connect
from orchid.commands.terminal.subcommands import for_each

__all__ = ["configure", "run"]


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    subjects = grants.subjects_of(chosen, server)
    where = grants.scope_of(chosen)

    def give(who: str) -> tuple[str, Json]:
        is_new, binding = grants.grant(server, chosen.role, subjects[who], chosen.namespace)
        done = "granted" if is_new else "unchanged:"
        return f"{done} {chosen.role} to {who} {where}", binding

    return for_each(chosen, subjects, give)
