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


def run(chosen: argparse.Namespace) -> int:
    server = connect(chosen)
    subjects = grants.subjects_of(chosen, server)
    where = grants.scope_of(chosen)

    def take(who: str) -> tuple[str, Json]:
        changed = grants.revoke(server, chosen.role, subjects[who], chosen.namespace)
        if not changed:
            raise Complaint(f"has no direct grant of {chosen.role} {where} (a group may have it)")
        return f"took {chosen.role} from {who} {where}", {"subject": who, "bindings": changed}

    return for_each(chosen, subjects, take)
