"""Certificate authorities and trust bundles: lifetimes, terms, keys, revocation lists."""

import asyncio
import datetime
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from cryptography import x509

from orchid.features.console import decoding
from orchid.features.console.api import Json
from orchid.features.console.page import ConsolePage, Visit
from orchid.features.console.pages import shared
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.revocation_list import read_list as read_crl

MOST_LISTS: Final = 3  # revocation lists that a page reads
WELL: Final = 200


def authority_row(authority: Json) -> Json:
    spec, status = authority.get("spec") or {}, authority.get("status") or {}
    certificate = decoding.decode_certificate(str(status.get("certificate") or "").encode())
    begins = certificate.not_before if certificate else None
    ends = status.get("notAfter") or (certificate.not_after if certificate else None)
    return {
        "name": shared.name_of(authority),
        "signer": ", ".join(_signers(spec)),
        "signers": _signers(spec),
        "ready": shared.is_true(authority, "Ready"),
        "reason": shared.condition(authority, "Ready").get("message") or "",
        "life": shared.life_of(begins, ends),
        "certificate": certificate,
        "signing_keys": list(status.get("keys") or ()),
        "issues": spec.get("issues") or {},
    }


def _signers(spec: Json) -> list[str]:
    """The signer of an authority, or those of the platform."""
    return [str(one) for one in spec.get("signerNames") or (spec.get("signerName") or "",)]


async def read_list(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, found=_listed(visit))


async def _listed(visit: Visit) -> list[Json]:
    target = await visit.api.identity("certificateauthorities")
    found, _ = await shared.everything(visit.api, target)
    rows = [authority_row(one) for one in found]
    return sorted(rows, key=lambda row: str(row["life"]["ends"] or ""))


async def read_one(visit: Visit) -> Mapping[str, Any]:
    name = visit.names["name"]
    authority = await visit.api.get(await visit.api.identity("certificateauthorities", name))
    row = authority_row(authority)
    parts = await shared.gather(
        visit,
        counted=shared.search(visit.api, signerNames=row["signers"], state=shared.LIVE, limit=5),
        lists=_revocation_lists(visit, row["signing_keys"]),
    )
    return {"row": row, "conditions": shared.conditions_of(authority), "name": name, **parts}


async def _revocation_lists(visit: Visit, keys: list[Json]) -> list[Json]:
    """Age and number of entries of each published revocation list."""
    names = [str(key.get("revocationList") or "") for key in keys][:MOST_LISTS]
    return list(await asyncio.gather(*(_revocation_list(visit, name) for name in names if name)))


async def fetched_list(
    visit: Visit, name: str
) -> tuple[str, x509.CertificateRevocationList | None]:
    """The file name of a revocation list, and the list; None if it cannot be read."""
    file = name if name.endswith(".crl") else f"{name}.crl"
    status, data = await visit.api.raw(f"/crl/{quote(file, safe='')}")
    try:
        return file, read_crl(data) if status == WELL else None
    except Refusal:
        return file, None


async def _revocation_list(visit: Visit, name: str) -> Json:
    file, revocation_list = await fetched_list(visit, name)
    if revocation_list is None:
        return {"name": file, "problem": "it cannot be read"}
    return {
        "name": file,
        "updated": _text(revocation_list.last_update_utc),
        "next": _text(revocation_list.next_update_utc),
        "entries": len(revocation_list),
        "problem": "",
    }


def _text(moment: datetime.datetime | None) -> str:
    return moment.isoformat() if moment else ""


# -- bundles -------------------------------------------------------------------------------


async def read_bundles(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, bundles=_bundles(visit), published=_published(visit))


async def _bundles(visit: Visit) -> list[Json]:
    target = await visit.api.group("certificates", "v1beta1", "clustertrustbundles")
    bundles, _ = await shared.everything(visit.api, target)
    return [
        {
            "name": shared.name_of(bundle),
            "signer": str((bundle.get("spec") or {}).get("signerName") or ""),
            "roots": [
                {"subject": root.subject, "life": shared.life_of(root.not_before, root.not_after)}
                for root in decoding.anchors_of(str(bundle["spec"].get("trustBundle") or ""))
            ],
        }
        for bundle in bundles
    ]


async def _published(visit: Visit) -> list[Json]:
    target = await visit.api.identity("publishedbundles")
    bundles, _ = await shared.everything(visit.api, target)
    rows = []
    for bundle in bundles:
        status = bundle.get("status") or {}
        consumers = status.get("consumers") or {}
        edition = (status.get("editions") or [{}])[0]
        rows.append(
            {
                "name": shared.name_of(bundle),
                "ready": shared.is_true(bundle, "Ready"),
                "sequence": edition.get("sequence", ""),
                "current": consumers.get("current", 0),
                "behind": consumers.get("behind", 0),
            }
        )
    return rows


PAGES = (
    ConsolePage("/authorities", "authorities.html", read_list, section="authorities"),
    ConsolePage("/authorities/{name}", "authority.html", read_one, section="authorities", every=10),
    ConsolePage("/bundles", "bundles.html", read_bundles, section="bundles"),
)
