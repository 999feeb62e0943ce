"""Reading that several pages share."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from orchid.features.console import text
from orchid.features.console.api import Api, Json
from orchid.features.console.page import Visit

FIRST_PAGE: Final = 20  # objects; further pages are as large as PAGE_BYTES permits
PAGE: Final = 500
PAGE_BYTES: Final = 1 << 20  # decoding it holds the interpreter for some milliseconds
MOST_OBJECTS: Final = 2000  # of a list that the server cannot filter
MOST_BYTES: Final = 16 << 20
ROWS: Final = 100
SOON_DAYS: Final = 30
LIVE, REVOKED, ALL = "Live", "Revoked", "All"


async def everything(api: Api, target: str) -> tuple[list[Json], bool]:
    """The items of a list within limits, and whether there are more."""
    return await _within_limits(functools.partial(api.page, target), "items")


async def table_rows(api: Api, target: str) -> tuple[list[Json], bool]:
    """The rows of a list as a Table: cells by column, and the metadata; and whether there are
    more.
    """
    columns: list[str] = []

    async def read(query: Mapping[str, str]) -> tuple[Json, int]:
        page, size = await api.table(target, query)
        columns[:] = [str(each.get("name")) for each in page.get("columnDefinitions") or ()]
        return page, size

    rows, has_more = await _within_limits(read, "rows")
    return [
        {
            "metadata": (row.get("object") or {}).get("metadata") or {},
            "cells": dict(zip(columns, row.get("cells") or (), strict=False)),
        }
        for row in rows
    ], has_more


async def _within_limits(
    read: Callable[[Mapping[str, str]], Awaitable[tuple[Json, int]]], field: str
) -> tuple[list[Json], bool]:
    """Read pages of a list up to a number of objects and of bytes."""
    objects: list[Json] = []
    query, size = {"limit": str(FIRST_PAGE)}, 0
    while True:
        page, length = await read(query)
        objects += page.get(field) or ()
        size += length
        after = str(page.get("metadata", {}).get("continue") or "")
        if not after:
            return objects, False
        if len(objects) >= MOST_OBJECTS or size >= MOST_BYTES:
            return objects, True
        fitting = PAGE_BYTES * len(objects) // size
        query = {"limit": str(max(1, min(PAGE, fitting))), "continue": after}


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


def state_in_cell(text: str) -> str:
    """The state of a certificate request, from the column Condition of a Table."""
    words = text.split(",")
    for state in ("Denied", "Failed", "Issued", "Approved"):
        if state in words:
            return state
    return "Waiting"


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
