"""Live servers of a version that does not know keys of authorities, by their Leases."""

import datetime
from typing import Final

from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import ServerConnection, path

LIVE: Final = datetime.timedelta(minutes=1)  # without renewal, after which a server is not live


def older_servers(server: ServerConnection, now: datetime.datetime) -> list[str]:
    """The names of the Leases of servers that report no key of their serving certificate."""
    naming = server.naming
    home = path("namespaces", naming.system_namespace)
    leases = server.items(path("apis", naming.coordination, "v1") + home + "/leases")
    older = []
    for lease in leases:
        name = lease["metadata"]["name"]
        marks = lease["metadata"].get("annotations") or {}
        renewed = times.parse((lease.get("spec") or {}).get("renewTime"))
        is_live = renewed is not None and abs(now - renewed) < LIVE
        is_server = name.startswith(f"{naming.component}-server-")
        if is_server and is_live and not marks.get(f"{naming.identity}/serves"):
            older.append(name)
    return older
