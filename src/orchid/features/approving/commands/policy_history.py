"""`orchid policy test FILE --since 30d`: the result of a policy for past decisions.

Start with `tried`. Decisions are those of stored requests, and of certificates in the inventory
whose requests are gone. The server evaluates each, as for `orchid policy test`.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, path
from orchid.kernel.terminal.output import REFUSED, Cell, print_for_programs, say, table

APPROVED, DENIED = "Approved", "Denied"
WOULD_BE = {"Approve": "approved", "Deny": "denied", "Leave": "left"}
# Decisions that the policy would change; a denied request that is left is still not approved.
CHANGED = {(APPROVED, "Deny"), (APPROVED, "Leave"), (DENIED, "Approve")}
VERSION = "v1"

Review = Callable[[Json], Json]


class Decided(NamedTuple):
    """A past decision: its object, and how the server finds it."""

    name: str
    was: str
    source: Json


def tried(
    arguments: argparse.Namespace, server: ServerConnection, terms: Json, review: Review
) -> int:
    """Evaluate the policy for every decision, and show what it would have changed."""
    counts: Counter[tuple[str, str]] = Counter()
    changed: list[Json] = []
    for record in _decisions(server, times.now() - timedelta(seconds=arguments.since)):
        status = review({**record.source, "policy": terms})
        outcome = status["outcome"] if _selected(status) else ""
        counts[record.was, outcome] += 1
        if (record.was, outcome) in CHANGED:
            decision = {"name": record.name, "was": record.was, "outcome": outcome}
            changed.append({**decision, "message": status.get("message") or ""})
    if not print_for_programs(arguments.output, {"counts": _plain(counts), "changed": changed}):
        _show(counts, changed)
    return REFUSED if changed else 0


def _decisions(server: ServerConnection, since: datetime) -> Iterator[Decided]:
    uids = set()
    requests = path("apis", server.naming.certificates, "v1", "certificatesigningrequests")
    for request in server.items(requests):
        meta = request["metadata"]
        for condition in (request.get("status") or {}).get("conditions") or ():
            if condition["type"] in (APPROVED, DENIED):
                uids.add(meta["uid"])
                if _is_after(condition.get("lastUpdateTime"), since):
                    yield Decided(meta["name"], condition["type"], {"requestName": meta["name"]})
    issued = path("apis", server.naming.identity, VERSION, "issuedcertificates")
    for record in server.items(issued):
        meta, request = record["metadata"], record["spec"].get("request") or {}
        if request.get("uid") not in uids and _is_after(meta["creationTimestamp"], since):
            name = request.get("name") or meta["name"]
            yield Decided(name, APPROVED, {"certificateName": meta["name"]})


def _is_after(text: str | None, since: datetime) -> bool:
    moment = times.parse(text)
    return moment is not None and moment >= since


def _selected(status: Json) -> bool:
    return any(policy["selected"] for policy in status.get("policies") or ())


def _plain(counts: Counter[tuple[str, str]]) -> list[Json]:
    return [
        {"was": was, "outcome": outcome or "NotSelected", "count": count}
        for (was, outcome), count in sorted(counts.items())
    ]


def _show(counts: Counter[tuple[str, str]], changed: list[Json]) -> None:
    denied, left, won = (counts[change] for change in sorted(CHANGED))
    say(
        f"of {counts.total()} decisions: approved would be denied: {denied}, "
        f"approved would be left: {left}, denied would be approved: {won}"
    )
    rows: list[tuple[object, ...]] = [
        (was.lower(), WOULD_BE.get(outcome, "not selected"), count)
        for (was, outcome), count in sorted(counts.items())
    ]
    table(("WAS", "WOULD BE", "COUNT"), rows, empty="nothing was decided in that time")
    if changed:
        say("")
        rows = [
            (
                decision["name"],
                decision["was"].lower(),
                Cell(WOULD_BE[decision["outcome"]], "bad"),
                decision["message"],
            )
            for decision in changed
        ]
        table(("REQUEST", "WAS", "WOULD BE", "WHY"), rows, empty="")
