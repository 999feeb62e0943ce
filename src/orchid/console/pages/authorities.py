"""Certificate authorities: lifetime, issuing terms, keys and live certificates."""

from orchid.console import decoding
from orchid.console.api import Json
from orchid.console.pages import shared


def authority_row(one: Json) -> Json:
    spec, status = one.get("spec") or {}, one.get("status") or {}
    certificate = decoding.decode_certificate(str(status.get("certificate") or "").encode())
    begins = certificate.not_before if certificate else None
    ends = status.get("notAfter") or (certificate.not_after if certificate else None)
    return {
        "name": shared.name_of(one),
        "signer": str(spec.get("signerName") or ""),
        "ready": shared.is_true(one, "Ready"),
        "reason": shared.condition(one, "Ready").get("message") or "",
        "life": shared.life_of(begins, ends),
        "certificate": certificate,
        "keys": list(status.get("keys") or ()),
        "issues": spec.get("issues") or {},
    }
