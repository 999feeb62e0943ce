"""The health of the server, and the identity of the user."""

import re
from collections.abc import Mapping
from typing import Any, Final

from orchid.features.console import text
from orchid.features.console.api import Json, Refused
from orchid.features.console.page import ConsolePage, Visit
from orchid.features.console.pages import shared
from orchid.features.console.pages.overview import readiness
from orchid.features.console.pages.revocations import lease_is_live

ENDS: Final = re.compile(
    r'^orchid_certificate_end_seconds\{certificate="([\w-]+)"\} (\d+)', re.MULTILINE
)
LEDGER: Final = re.compile(r"^orchid_ledger_(\w+) ([\d.e+-]+)$", re.MULTILINE)
LONGEST_WAIT: Final = 60.0
# Kinds with a condition Ready, and their pages. A page makes at most eight calls.
CHECKED: Final = {
    "certificateauthorities": "authorities",
    "approvalpolicies": "policies",
    "publishedbundles": "bundles",
}
WELL: Final = 200
CREDENTIAL: Final = "/credential-id"


async def read_health(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(
        visit,
        ready=readiness(visit),
        version=visit.api.get("/version"),
        metrics=_metrics(visit),
        servers=_servers(visit),
        problems=_problems(visit),
    )


async def _metrics(visit: Visit) -> Json:
    """The certificates of the server itself, the first to expire on top, and its ledger."""
    status, body = await visit.api.raw("/metrics")
    if status != WELL:
        raise Refused(status, "You may not read the metrics of the server.", {"kind": "metrics"})
    page = body.decode("utf-8", "replace")
    rows = [{"name": name, "end": text.from_seconds(int(end))} for name, end in ENDS.findall(page)]
    ledger = {name: float(value) for name, value in LEDGER.findall(page)}
    problem = ""
    if ledger.get("rolled_back"):
        problem = (
            "The ledger is not the one that the server signed last: rolled back, or rewritten."
        )
    elif ledger.get("oldest_pending_seconds", 0.0) > LONGEST_WAIT:
        problem = "Entries have waited for more than a minute to get into the ledger."
    return {"ends": sorted(rows, key=lambda row: str(row["end"])), "ledger": problem}


async def _problems(visit: Visit) -> list[Json]:
    """Objects whose condition Ready is False, as `orchid doctor` finds them on the server."""
    rows = []
    for plural, page in CHECKED.items():
        resources, _ = await shared.everything(visit.api, await visit.api.identity(plural))
        for resource in resources:
            ready = shared.condition(resource, "Ready")
            if ready.get("status") == "False":
                name = shared.name_of(resource)
                target = visit.link(page, name) if page != "bundles" else visit.link(page)
                why = str(ready.get("message") or ready.get("reason") or "")
                rows.append({"kind": plural, "name": name, "target": target, "why": why})
    return rows


async def _servers(visit: Visit) -> list[Json]:
    """Leases of the running servers and leaders."""
    naming = await visit.api.naming()
    target = await visit.api.group("coordination", "v1", "namespaces", naming.system_namespace)
    leases, _ = await shared.everything(visit.api, f"{target}/leases")
    rows = []
    for lease in leases:
        spec = lease.get("spec") or {}
        rows.append(
            {
                "name": shared.name_of(lease),
                "holder": str(spec.get("holderIdentity") or ""),
                "renewed": spec.get("renewTime"),
                "alive": lease_is_live(lease),
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
    ConsolePage("/health", "health.html", read_health, section="health", every=10),
    ConsolePage("/you", "you.html", read_you, section="you"),
)
