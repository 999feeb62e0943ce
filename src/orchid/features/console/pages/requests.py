"""Certificate requests: the list, and one request with the decision.

A decision applies to the version that the user saw: the form carries uid, resourceVersion and the
SHA-256 of the request. The write has that resourceVersion, so that the server refuses it if the
request has changed since.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from orchid.features.console import decoding, text
from orchid.features.console.api import CONFLICT, Json, Refused
from orchid.features.console.page import ConsolePage, Retry, Succeeded, Visit
from orchid.features.console.pages import shared
from orchid.features.console.pages.shared import (
    conditions_of,
    created,
    name_of,
    state_in_cell,
    state_of,
)
from orchid.kernel.wire.user import MASTERS

WAITING: Final = "Waiting"
STATES: Final = (WAITING, "Approved", "Issued", "Denied", "Failed")
FILTERS: Final = ("state", "signer", "requester")
# Sentences about an action, in the URL after it, and the states in which they are true.
NOTICES: Final = {"approved": ("Approved", "Issued"), "denied": ("Denied",)}
DECISIONS: Final = {"approve": "Approved", "deny": "Denied"}
REASON: Final = "DecidedByHand"
LONGEST_REASON: Final = 64
LONGEST_MESSAGE: Final = 1024
SHOWN: Final = 5
CHANGED: Final = "It changed since you looked. Read it again before you decide."


# -- the list ------------------------------------------------------------------------------


async def read_list(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, requests=_listed(visit))


async def _listed(visit: Visit) -> Json:
    requests, has_more = await shared.table_rows(visit.api, await visit.api.requests())
    rows = [_row(request) for request in requests]
    kept = [row for row in rows if _is_wanted(row, visit.query)]
    # Waiting requests first, the oldest on top; then the newest decisions.
    kept.sort(key=lambda row: str(row["created"]))
    ordered = [row for row in kept if row["state"] == WAITING]
    ordered += reversed([row for row in kept if row["state"] != WAITING])
    return {
        **shared.one_page(visit.query, ordered, has_more=has_more),
        "all": len(rows),
        "back": urlencode({key: visit.query[key] for key in FILTERS if visit.query.get(key)}),
        "states": STATES,
        "signers": sorted({row["signer"] for row in rows}),
    }


def _row(request: Json) -> Json:
    cells = request["cells"]
    return {
        "name": name_of(request),
        "created": created(request),
        "signer": str(cells.get("SignerName") or ""),
        "requester": str(cells.get("Requestor") or ""),
        "state": state_in_cell(str(cells.get("Condition") or "")),
    }


def _is_wanted(row: Json, query: Mapping[str, str]) -> bool:
    return all(
        not (wanted := query.get(name, "").strip()) or wanted == row[name] for name in FILTERS
    )


async def waiting(visit: Visit) -> Json:
    """The oldest waiting requests, and how many there are."""
    requests, has_more = await shared.table_rows(visit.api, await visit.api.requests())
    rows = [row for row in map(_row, requests) if row["state"] == WAITING]
    rows.sort(key=lambda row: str(row["created"]))
    return {"rows": rows[:SHOWN], "total": len(rows), "has_more": has_more}


# -- one request ---------------------------------------------------------------------------


async def read_one(visit: Visit) -> Mapping[str, Any]:
    name = visit.names["name"]
    request = await visit.api.get(await visit.api.requests(name))
    spec = request.get("spec") or {}
    data = decoding.bytes_of(spec.get("request"))
    issued = decoding.bytes_of((request.get("status") or {}).get("certificate"))
    parts = await shared.gather(
        visit, review=_review(visit, name), others=_others(visit, str(spec.get("username") or ""))
    )
    done = visit.query.get("done", "")
    return {
        "name": name,
        "state": state_of(request),
        "done": done if state_of(request) in NOTICES.get(done, ()) else "",
        "created": created(request),
        "conditions": conditions_of(request),
        "spec": spec,
        "decoded": decoding.decode_request(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "pem": data.decode("ascii", "replace"),
        "uid": str(request["metadata"].get("uid") or ""),
        "version": str(request["metadata"].get("resourceVersion") or ""),
        "certificate": decoding.decode_certificate(issued) if issued else None,
        "is_own": _is_own(spec, visit),
        "lifetime": _lifetime(spec.get("expirationSeconds")),
        "back": _back(visit),
        **parts,
    }


def _is_own(spec: Json, visit: Visit) -> bool:
    """Whether four eyes will refuse this user's approval; the server decides."""
    is_exempt = MASTERS in (visit.user.get("groups") or ())
    return spec.get("username") == visit.username and not is_exempt


async def _review(visit: Visit, name: str) -> Json:
    target = await visit.api.identity("approvalreviews")
    found: Json = (await visit.api.post(target, {"spec": {"requestName": name}}))["status"]
    seconds = (found.get("certificate") or {}).get("seconds")
    return {**found, "lifetime": _lifetime(seconds), "policies": found.get("policies") or []}


async def _others(visit: Visit, requester: str) -> Json:
    return await shared.search(
        visit.api, requesters=[requester], state=shared.LIVE, sort="end", limit=SHOWN
    )


def _lifetime(seconds: Any) -> str:
    return text.span(seconds) if isinstance(seconds, int) else "default of the signer"


def _back(visit: Visit) -> str:
    """The filter of the list, to return to it."""
    given = visit.form.get("back") or visit.query.get("back") or ""
    return urlencode(parse_qsl(given[:1000]))


# -- the decision --------------------------------------------------------------------------


async def decide(visit: Visit) -> Succeeded | Retry:
    verdict = DECISIONS.get(visit.form.get("decision", ""))
    reason = visit.form.get("reason", "").strip() or REASON
    message = visit.form.get("message", "").strip()
    if verdict is None:
        return Retry("Choose to approve or to deny.", 400)
    if verdict == "Denied" and not message:
        return Retry("To deny, write a message: the requester reads it.", 400)
    if len(message) > LONGEST_MESSAGE or len(reason) > LONGEST_REASON or " " in reason:
        return Retry("The reason is one word; the message has at most 1,024 characters.", 400)
    name = visit.names["name"]
    request = await visit.api.get(await visit.api.requests(name))
    if not _is_the_same(request, visit.form):
        return Retry(CHANGED)
    if conditions_of(request):
        return Retry(f"It has been decided already: {state_of(request).lower()}.")
    decision = {
        "type": verdict,
        "status": "True",
        "reason": reason,
        "message": message or "Approved in the console.",
    }
    status = {**(request.get("status") or {}), "conditions": [decision]}
    try:
        target = await visit.api.requests(name, "approval")
        written = await visit.api.put(target, {**request, "status": status})
    except Refused as refused:
        return Retry(CHANGED if refused.status == CONFLICT else refused.message, refused.status)
    target = visit.link("requests", name, back=_back(visit))
    return Succeeded(target, "denied" if state_of(written) == "Denied" else "approved")


def _is_the_same(request: Json, form: Mapping[str, str]) -> bool:
    """Whether the stored request is the one that the form was shown with."""
    meta = request.get("metadata") or {}
    data = decoding.bytes_of((request.get("spec") or {}).get("request"))
    seen = (form.get("uid"), form.get("version"), form.get("sha256"))
    return seen == (
        meta.get("uid"),
        meta.get("resourceVersion"),
        hashlib.sha256(data).hexdigest(),
    )


LIVE: Final = ("certificatesigningrequests",)
PAGES = (
    ConsolePage("/requests", "requests.html", read_list, section="requests", live=LIVE),
    ConsolePage(
        "/requests/{name}", "request.html", read_one, section="requests", live=LIVE, act=decide
    ),
)
