"""The inventory: search, export, and the history of one certificate."""

import asyncio
import csv
import io
from collections.abc import Mapping
from typing import Any, Final

from orchid.features.console import decoding, text
from orchid.features.console.api import Json, Refused
from orchid.features.console.page import ConsolePage, Download, Visit
from orchid.features.console.pages import ledger, shared
from orchid.features.console.pages.revocations import revocation_row
from orchid.features.console.web.messages import WebResponse

STATES: Final = ("Live", "Revoked", "Expired", "All")
SORTS: Final = {
    "end": "first to expire",
    "issued": "last issued",
    "subject": "subject",
    "signer": "signer",
    "requester": "requester",
}
WITHIN: Final = {"7d": "7 days", "30d": "30 days", "90d": "90 days"}
FILTERS: Final = ("q", "state", "signer", "requester", "approver", "within", "sort")
EXPORT_PAGE: Final = 1_000
MOST_EXPORTED: Final = 100_000
MOST_PEM: Final = 1_000  # each is read by itself
PEM_AT_ONCE: Final = 8
CSV_COLUMNS: Final = (
    "serialNumber", "signerName", "subject", "names", "requester", "request", "approver", "policy",
    "notBefore", "notAfter", "revoked", "reason", "keyAlgorithm", "sha256",
)  # fmt: skip


def spec_of(query: Mapping[str, str]) -> Json:
    """The conditions of a search, from the URL of the page."""
    state = query.get("state", "")
    days = query.get("within", "")
    return {
        "text": query.get("q", "").strip(),
        "signerNames": _listed(query.get("signer")),
        "requesters": _listed(query.get("requester")),
        "approvers": _listed(query.get("approver")),
        "endsWithin": f"{int(days[:-1]) * 24}h" if days in WITHIN else "",
        "omitReplaced": days in WITHIN,
        "state": state if state in STATES else shared.LIVE,
        "sort": query.get("sort") if query.get("sort") in SORTS else "end",
    }


def _listed(value: str | None) -> list[str]:
    return [value.strip()] if value and value.strip() else []


async def read_list(visit: Visit) -> Mapping[str, Any]:
    spec = {**spec_of(visit.query), "limit": shared.ROWS, "after": visit.query.get("after", "")}
    parts = await shared.gather(
        visit, found=shared.search(visit.api, **spec), signers=_signers(visit)
    )
    kept = {name: visit.query[name] for name in FILTERS if visit.query.get(name)}
    page = parts["found"].value or {}
    return {
        **parts,
        "kept": kept,
        "next": visit.link("issued", **kept, after=str(page.get("next") or "")),
        "export": visit.link("issued.csv", **kept),
        "export_pem": visit.link("issued.pem", **kept),
        "most_pem": MOST_PEM,
        "states": STATES,
        "sorts": SORTS,
        "withins": WITHIN,
    }


async def _signers(visit: Visit) -> list[str]:
    """The signers of authorities; others can be typed."""
    target = await visit.api.identity("certificateauthorities")
    found, _ = await shared.everything(visit.api, target)
    return sorted({str((one.get("spec") or {}).get("signerName") or "") for one in found})


async def read_one(visit: Visit) -> Mapping[str, Any]:
    name = visit.names["name"]
    record = await visit.api.get(await visit.api.identity("issuedcertificates", name))
    spec = record.get("spec") or {}
    revoked = (record.get("status") or {}).get("revoked") or {}
    state = {**spec, "revoked": revoked.get("time"), "reason": revoked.get("reason")}
    parts = await shared.gather(visit, revocations=_concerning(visit, spec))
    return {
        "name": name,
        "spec": spec,
        "state": text.certificate_state(state),
        "revoked": revoked,
        "approver": spec.get("approver") or {},
        "request": spec.get("request") or {},
        "requester": spec.get("requester") or {},
        "life": shared.life_of(spec.get("notBefore"), spec.get("notAfter")),
        "certificate": decoding.decode_certificate(decoding.bytes_of(spec.get("certificate"))),
        "is_ours": not spec.get("cluster"),
        **parts,
    }


async def _concerning(visit: Visit, spec: Json) -> list[Json]:
    """Revocations that name the certificate."""
    target = await visit.api.identity("credentialrevocations")
    revocations, _ = await shared.everything(visit.api, target)
    named = {spec.get("serialNumber"), spec.get("sha256")} - {None, ""}
    rows = (revocation_row(revocation) for revocation in revocations)
    return [row for row in rows if row["kind"] == "certificate" and row["target"] in named]


# -- downloads -----------------------------------------------------------------------------


async def fetch_csv(visit: Visit) -> WebResponse:
    """All found certificates as CSV; a cell is never a formula."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(CSV_COLUMNS)
    spec = {**spec_of(visit.query), "limit": EXPORT_PAGE}
    for _ in range(MOST_EXPORTED // EXPORT_PAGE):
        page = await shared.search(visit.api, **spec)
        await asyncio.to_thread(writer.writerows, map(_csv_row, page.get("items") or ()))
        if not page.get("next"):
            break
        spec["after"] = page["next"]
    return _file("certificates.csv", "text/csv; charset=utf-8", output.getvalue().encode())


def _csv_row(item: Json) -> list[str]:
    return [
        text.cell(" ".join(item.get("names") or ()) if name == "names" else item.get(name))
        for name in CSV_COLUMNS
    ]


async def fetch_pems(visit: Visit) -> WebResponse:
    """All found certificates as PEM."""
    page = await shared.search(visit.api, **{**spec_of(visit.query), "limit": MOST_PEM})
    items = page.get("items") or []
    if page.get("next"):
        text_ = f"More than {MOST_PEM} certificates match. Search for fewer, or use: orchid issued"
        raise Refused(400, text_)
    names = [str(item.get("name") or "") for item in items]
    blocks: list[str] = []
    for first in range(0, len(names), PEM_AT_ONCE):
        pems = (_pem(visit, name) for name in names[first : first + PEM_AT_ONCE])
        blocks += await asyncio.gather(*pems)
    return _file("certificates.pem", "application/x-pem-file", "".join(blocks).encode())


async def _pem(visit: Visit, name: str) -> str:
    """A certificate of the inventory; empty if its record has been deleted meanwhile."""
    target = await visit.api.identity("issuedcertificates", name)
    record = await visit.found(visit.api.get(target)) or {}
    data = decoding.bytes_of((record.get("spec") or {}).get("certificate"))
    certificate = decoding.decode_certificate(data)
    return certificate.pem if certificate else ""


async def fetch_pem(visit: Visit) -> WebResponse:
    data = await _pem(visit, visit.names["name"])
    return _file("certificate.pem", "application/x-pem-file", data.encode())


async def fetch_proof(visit: Visit) -> WebResponse:
    """A proof that the certificate is in the ledger."""
    data = await ledger.proof_of(visit.api, visit.names["name"])
    return _file("certificate.tlog-proof", "text/plain; charset=utf-8", data)


def _file(name: str, media: str, data: bytes) -> WebResponse:
    headers = (("Content-Disposition", f'attachment; filename="{name}"'),)
    return WebResponse(200, data, headers, media)


LIVE: Final = ("credentialrevocations",)
PAGES = (
    ConsolePage(
        "/issued", "issued.html", read_list, section="issued", live=("issuedcertificates",)
    ),
    ConsolePage("/issued/{name}", "certificate.html", read_one, section="issued", live=LIVE),
    Download("/issued.csv", fetch_csv),
    Download("/issued.pem", fetch_pems),
    Download("/issued/{name}/pem", fetch_pem),
    Download("/issued/{name}/proof", fetch_proof),
)
