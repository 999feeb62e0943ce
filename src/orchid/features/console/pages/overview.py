"""The start page: what needs a decision, what expires, what was revoked, and readiness."""

from collections.abc import Mapping
from typing import Any, Final

from orchid.features.console.api import Json
from orchid.features.console.page import ConsolePage, Visit
from orchid.features.console.pages import shared
from orchid.features.console.pages.authorities import authority_row
from orchid.features.console.pages.requests import waiting
from orchid.features.console.pages.revocations import revocation_row

SHOWN: Final = 5
WELL: Final = 200


async def read(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(
        visit,
        waiting=waiting(visit),
        expiring=expiring(visit),
        authorities=late_authorities(visit),
        revocations=latest_revocations(visit),
        ready=readiness(visit),
    )


async def expiring(visit: Visit) -> Json:
    return await shared.search(
        visit.api,
        endsWithin=f"{shared.SOON_DAYS * 24}h",
        omitReplaced=True,
        state=shared.LIVE,
        sort="end",
        limit=SHOWN,
    )


async def late_authorities(visit: Visit) -> list[Json]:
    """Authorities in the last third of their life, or not ready."""
    target = await visit.api.identity("certificateauthorities")
    authorities, _ = await shared.everything(visit.api, target)
    rows = map(authority_row, authorities)
    return [row for row in rows if row["life"]["late"] or not row["ready"]]


async def latest_revocations(visit: Visit) -> Json:
    """The newest revocations of those that were read, and whether these were all."""
    target = await visit.api.identity("credentialrevocations")
    revocations, has_more = await shared.everything(visit.api, target)
    revocations.sort(key=shared.created, reverse=True)
    return {
        "rows": [revocation_row(revocation) for revocation in revocations[:SHOWN]],
        "has_more": has_more,
    }


async def readiness(visit: Visit) -> Json:
    """Whether the server is ready, and its checks."""
    status, body = await visit.api.raw("/readyz?verbose")
    lines = body.decode("utf-8", "replace").splitlines()
    checks = [
        {"name": line[3:].split(" ")[0], "passed": line.startswith("[+]")}
        for line in lines
        if line.startswith(("[+]", "[-]"))
    ]
    failing = [each["name"] for each in checks if not each["passed"]]
    return {"ready": status == WELL, "checks": checks, "failing": failing, "status": status}


LIVE: Final = ("certificatesigningrequests", "credentialrevocations")
PAGES = (ConsolePage("/", "overview.html", read, section="", live=LIVE, every=60),)
