"""`orchid grant`: give a role to users, groups and accounts, everywhere or in one namespace."""

import argparse

from orchid.commands.rights import grants
from orchid.commands.terminal.connection import Json, add_flags, connect
from orchid.commands.terminal.subcommands import for_each


def configure(parser: argparse.ArgumentParser) -> None:
    grants.add_arguments(parser)
    add_flags(parser)


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    subjects = grants.subjects_of(chosen, server)
    where = f"in {chosen.namespace}" if chosen.namespace else "everywhere"

    def give(who: str) -> tuple[str, Json]:
        is_new, binding = grants.grant(server, chosen.role, subjects[who], chosen.namespace)
        done = "granted" if is_new else "unchanged:"
        return f"{done} {chosen.role} to {who} {where}", binding

    return for_each(chosen, subjects, give)
