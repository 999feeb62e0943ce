"""Reading that several pages share."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from orchid.console import text
from orchid.console.api import Api, Json
from orchid.console.page import Visit

PAGE: Final = 500
MOST_PAGES: Final = 4  # of a list that the server cannot filter
ROWS: Final = 100
SOON_DAYS: Final = 30
LIVE, REVOKED, ALL = "Live", "Revoked", "All"


async def everything(api: Api, target: str) -> tuple[list[Json], bool]:
    """The items of a list within limits, and whether there are more."""
    found: list[Json] = []
    query = {"limit": str(PAGE)}
    for _ in range(MOST_PAGES):
        page = await api.get(target, query)
        found += page.get("items") or ()
        after = str(page.get("metadata", {}).get("continue") or "")
        if not after:
            return found, False
        query["continue"] = after
    return found, True


async def search(api: Api, **spec: Any) -> Json:
    """The status of a CertificateSearch."""
    target = await api.identity("certificatesearches")
    found: Json = (await api.post(target, {"spec": spec})).get("status") or {}
    return found


def conditions_of(one: Json) -> list[Json]:
    return list((one.get("status") or {}).get("conditions") or ())


def condition(one: Json, type_: str) -> Json:
    """A condition of an object; empty if it has none of the type."""
    return next((each for each in conditions_of(one) if each.get("type") == type_), {})


def is_true(one: Json, type_: str) -> bool:
    return condition(one, type_).get("status") == "True"


def state_of(request: Json) -> str:
    """The state of a certificate request."""
    types = {each.get("type") for each in conditions_of(request)}
    if "Denied" in types:
        return "Denied"
    if "Failed" in types:
        return "Failed"
    if (request.get("status") or {}).get("certificate"):
        return "Issued"
    return "Approved" if "Approved" in types else "Waiting"


def created(one: Json) -> str:
    return str(one.get("metadata", {}).get("creationTimestamp") or "")


def name_of(one: Json) -> str:
    return str(one.get("metadata", {}).get("name") or "")


def one_page(query: Mapping[str, str], rows: list[Json], *, has_more: bool) -> Json:
    """The rows of one page of a table, and its position; `has_more`: not all rows were read."""
    first = position(query, len(rows))
    return {
        "rows": rows[first : first + ROWS],
        "total": len(rows),
        "first": first,
        "has_more": has_more,
    }


def position(query: Mapping[str, str], total: int) -> int:
    """The first row of a page, from the URL."""
    given = query.get("from", "")
    first = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 0  # noqa: PLR2004 - digits
    return min(first, max(0, total - 1)) // ROWS * ROWS


def life_of(not_before: Any, not_after: Any) -> Json:
    """The used part of a lifetime, for a meter."""
    begin, end = text.parse_time(not_before), text.parse_time(not_after)
    if begin is None or end is None or end <= begin:
        return {"used": 0, "ends": not_after, "late": False, "ended": False}
    used = (text.now() - begin) / (end - begin)
    return {
        "used": round(100 * min(1.0, max(0.0, used))),
        "ends": not_after,
        "late": used >= 2 / 3,
        "ended": used >= 1,
    }


async def gather(visit: Visit, **readings: Any) -> dict[str, Any]:
    """All readings at the same time, each as a PagePart."""
    parts = await asyncio.gather(*(visit.part(reading) for reading in readings.values()))
    return dict(zip(readings, parts, strict=True))
