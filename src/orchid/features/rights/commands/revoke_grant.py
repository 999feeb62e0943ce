"""`orchid revoke-grant`: remove a role from users, groups and accounts, whichever client granted
it.
"""

import argparse

from orchid.features.rights.commands import grants
from orchid.features.rights.commands.grants import configure
from orchid.kernel.terminal.connection import Json, connect
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.terminal.subcommands import for_each

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    subjects = grants.subjects_of(arguments, server)
    where = grants.scope_of(arguments)

    def take(who: str) -> tuple[str, Json]:
        changed = grants.revoke(server, arguments.role, subjects[who], arguments.namespace)
        if not changed:
            raise Complaint(
                f"has no direct grant of {arguments.role} {where} (a group may have it)"
            )
        return f"took {arguments.role} from {who} {where}", {"subject": who, "bindings": changed}

    return for_each(arguments, subjects, take)
