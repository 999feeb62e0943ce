"""`orchid revoke-grant`: take a role from users, groups and accounts, whoever granted it."""

import argparse

from orchid.commands.rights import grants
from orchid.commands.terminal.connection import Json, add_flags, connect
from orchid.commands.terminal.output import Complaint
from orchid.commands.terminal.subcommands import for_each


def configure(parser: argparse.ArgumentParser) -> None:
    grants.add_arguments(parser)
    add_flags(parser)


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    subjects = grants.subjects_of(chosen, server)
    where = f"in {chosen.namespace}" if chosen.namespace else "everywhere"

    def take(who: str) -> tuple[str, Json]:
        changed = grants.revoke(server, chosen.role, subjects[who], chosen.namespace)
        if not changed:
            raise Complaint(f"does not have {chosen.role} {where} by its own name")
        return f"took {chosen.role} from {who} {where}", {"subject": who, "bindings": changed}

    return for_each(chosen, subjects, take)
