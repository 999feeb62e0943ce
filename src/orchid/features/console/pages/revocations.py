"""Revocations: what was revoked, why, whether every server applies it; and lifting a hold."""

from collections.abc import Mapping
from typing import Any, Final

from orchid.features.console import text
from orchid.features.console.api import CONFLICT, NOT_FOUND, Json, Refused
from orchid.features.console.page import ConsolePage, Retry, Succeeded, Visit
from orchid.features.console.pages import shared
from orchid.features.console.pages.authorities import MOST_LISTS, fetched_list

HOLD: Final = "certificateHold"
SHOWN: Final = ("all", "holds", "pending")
NOTICES: Final = ("revoked", "known")  # sentences about an action, in the URL after it
PLATFORM: Final = "cluster"  # the authority of the platform signers
LEASE_SECONDS: Final = 30
MOST_DIGITS: Final = 20


def target_of(revocation: Json) -> tuple[str, str]:
    """The kind of the revoked credential, and its name."""
    spec = revocation.get("spec") or {}
    if target := spec.get("certificate"):
        return "certificate", str(target.get("serialNumber") or target.get("sha256") or "")
    if target := spec.get("token"):
        return "token", str(target.get("jti") or "")
    if target := spec.get("account"):
        return "account", f"{target.get('namespace', '')}/{target.get('name', '')}"
    if target := spec.get("key"):
        return "key", str(target.get("name") or "")
    if target := spec.get("user"):
        return "user", str(target.get("username") or "")
    return "authority", str((spec.get("authority") or {}).get("signerName") or "")


def revocation_row(revocation: Json) -> Json:
    kind, target = target_of(revocation)
    spec, status = revocation.get("spec") or {}, revocation.get("status") or {}
    reason = str(spec.get("reason") or "unspecified")
    return {
        "name": shared.name_of(revocation),
        "created": shared.created(revocation),
        "kind": kind,
        "target": target,
        "reason": reason,
        "message": str(spec.get("message") or ""),
        "effective": shared.is_true(revocation, "Effective"),
        "expires": status.get("expires"),
        "author": str(status.get("author") or ""),
        "cluster": str(spec.get("cluster") or ""),
        "can_lift": reason == HOLD or kind == "user" or ("cluster" in spec and kind == "account"),
    }


async def read_list(visit: Visit) -> Mapping[str, Any]:
    return {
        **await shared.gather(visit, found=_listed(visit)),
        "shown": SHOWN,
        "done": _done(visit, (*NOTICES, "lifted")),
    }


def _done(visit: Visit, notices: tuple[str, ...]) -> str:
    given = visit.query.get("done", "")
    return given if given in notices else ""


async def _listed(visit: Visit) -> Json:
    target = await visit.api.identity("credentialrevocations")
    revocations, has_more = await shared.everything(visit.api, target)
    revocations.sort(key=shared.created, reverse=True)
    rows = [revocation_row(revocation) for revocation in revocations]
    view = visit.query.get("show", "")
    if view == "holds":
        rows = [row for row in rows if row["can_lift"]]
    elif view == "pending":
        rows = [row for row in rows if not row["effective"]]
    return shared.one_page(visit.query, rows, has_more=has_more)


async def read_one(visit: Visit) -> Mapping[str, Any]:
    name = visit.names["name"]
    revocation = await visit.api.get(await visit.api.identity("credentialrevocations", name))
    row = revocation_row(revocation)
    spec = revocation.get("spec") or {}
    named: Json = next((spec[kind] for kind in spec if isinstance(spec[kind], dict)), {})
    return {
        "name": name,
        "row": row,
        "done": _done(visit, NOTICES),
        "named": named,
        "uid": str(revocation["metadata"].get("uid") or ""),
        "condition": shared.condition(revocation, "Effective"),
        **await shared.gather(
            visit,
            servers=_servers(visit, revocation, is_effective=row["effective"]),
            lists=_lists(visit, named) if row["kind"] == "certificate" else _none(),
        ),
    }


async def _none() -> list[Json]:
    return []


async def _servers(visit: Visit, revocation: Json, *, is_effective: bool) -> list[Json]:
    """The running servers, and whether each has applied the revocation, by their Leases."""
    naming = await visit.api.naming()
    target = await visit.api.group("coordination", "v1", "namespaces", naming.system_namespace)
    leases, _ = await shared.everything(visit.api, f"{target}/leases")
    version = _number(revocation["metadata"].get("resourceVersion"))
    rows = []
    for lease in leases:
        applied = (lease["metadata"].get("annotations") or {}).get(f"{naming.identity}/applied")
        if applied is None or not lease_is_live(lease):
            continue
        # The condition was written after every server had applied the revocation.
        is_applied = is_effective or _number(applied) >= version > 0
        rows.append({"name": shared.name_of(lease), "applied": is_applied})
    return sorted(rows, key=lambda row: str(row["name"]))


def lease_is_live(lease: Json) -> bool:
    spec = lease.get("spec") or {}
    lasts = spec.get("leaseDurationSeconds") or LEASE_SECONDS
    return text.seconds_left(spec.get("renewTime")) > -float(lasts)


def _number(value: Any) -> int:
    given = str(value or "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < MOST_DIGITS else 0


async def _lists(visit: Visit, named: Json) -> list[Json]:
    """The revocation lists of the signer, and whether each has the certificate."""
    try:
        serial = int(str(named.get("serialNumber") or ""), 16)
    except ValueError:
        return []
    target = await visit.api.identity("certificateauthorities")
    authorities, _ = await shared.everything(visit.api, target)
    signer = named.get("signerName")
    own = [
        authority
        for authority in authorities
        if (authority.get("spec") or {}).get("signerName") == signer
    ]
    keys = [
        str(key.get("revocationList") or "")
        for authority in own
        or [authority for authority in authorities if shared.name_of(authority) == PLATFORM]
        for key in (authority.get("status") or {}).get("keys") or ()
    ]
    rows = []
    for name in filter(None, keys[:MOST_LISTS]):
        file, revocation_list = await fetched_list(visit, name)
        entry = (
            revocation_list.get_revoked_certificate_by_serial_number(serial)
            if revocation_list
            else None
        )
        updated = revocation_list.last_update_utc.isoformat() if revocation_list else ""
        rows.append({"name": file, "updated": updated, "has": entry is not None})
    return [row for row in rows if row["has"]] or rows[:1]


async def lift(visit: Visit) -> Succeeded | Retry:
    """Delete a revocation that can be lifted, if it is the one that was shown."""
    name = visit.names["name"]
    target = await visit.api.identity("credentialrevocations", name)
    revocation = await visit.api.get(target)
    if not revocation_row(revocation)["can_lift"]:
        return Retry("This revocation is final. Only a hold can be lifted.", CONFLICT)
    if visit.form.get("sure") != "yes":
        return Retry("Confirm that the credential is to be accepted again.", 400)
    options = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": visit.form.get("uid", "")},
    }
    try:
        await visit.api.delete(target, options)
    except Refused as refused:
        if refused.status not in (CONFLICT, NOT_FOUND):
            raise
        return Retry("It changed since you looked.", CONFLICT)
    return Succeeded(visit.link("revocations"), "lifted")


LIVE: Final = ("credentialrevocations",)
PAGES = (
    ConsolePage("/revocations", "revocations.html", read_list, section="revocations", live=LIVE),
    ConsolePage(
        "/revocations/{name}",
        "revocation.html",
        read_one,
        section="revocations",
        live=LIVE,
        act=lift,
    ),
)
