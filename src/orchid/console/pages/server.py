"""The health of the server, and the identity of the user."""

import re
from collections.abc import Mapping
from typing import Any, Final

from orchid.console import text
from orchid.console.api import Json
from orchid.console.page import ConsolePage, Visit
from orchid.console.pages import shared
from orchid.console.pages.overview import readiness

ENDS: Final = re.compile(
    r'^orchid_certificate_end_seconds\{certificate="([\w-]+)"\} (\d+)', re.MULTILINE
)
WELL: Final = 200
CREDENTIAL: Final = "/credential-id"
SERVER_LEASE_SECONDS: Final = 30


async def read_health(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(
        visit,
        ready=readiness(visit),
        version=visit.api.get("/version"),
        ends=_ends(visit),
        servers=_servers(visit),
    )


async def _ends(visit: Visit) -> list[Json]:
    """The certificates of the server itself, the first to expire on top; empty if not readable."""
    status, body = await visit.api.raw("/metrics")
    found = ENDS.findall(body.decode("utf-8", "replace")) if status == WELL else ()
    rows = [{"name": name, "end": text.from_seconds(int(end))} for name, end in found]
    return sorted(rows, key=lambda row: row["end"])


async def _servers(visit: Visit) -> list[Json]:
    """Leases of the running servers and leaders."""
    names = await visit.api.names()
    target = await visit.api.group("coordination", "v1", "namespaces", names.system_namespace)
    found, _ = await shared.everything(visit.api, f"{target}/leases")
    rows = []
    for one in found:
        spec = one.get("spec") or {}
        lasts = spec.get("leaseDurationSeconds") or SERVER_LEASE_SECONDS
        rows.append(
            {
                "name": shared.name_of(one),
                "holder": str(spec.get("holderIdentity") or ""),
                "renewed": spec.get("renewTime"),
                "alive": text.seconds_left(spec.get("renewTime")) > -float(lasts),
            }
        )
    return sorted(rows, key=lambda row: str(row["name"]))


async def read_you(visit: Visit) -> Mapping[str, Any]:
    extra = sorted((visit.user.get("extra") or {}).items())
    credential = [value for key, values in extra if key.endswith(CREDENTIAL) for value in values]
    others = [(key, values) for key, values in extra if not key.endswith(CREDENTIAL)]
    sessions = await visit.viewer.sessions() if visit.viewer.sessions else []
    return {"credential": credential, "extra": others, "sessions": sessions}


PAGES = (
    ConsolePage("/health", "health.html", read_health, section="health"),
    ConsolePage("/you", "you.html", read_you, section="you"),
)
