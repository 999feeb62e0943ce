"""Revocations: who revoked what, why, and whether every server applies it."""

from typing import Final

from orchid.console.api import Json
from orchid.console.pages import shared

HOLD: Final = "certificateHold"


def target_of(one: Json) -> tuple[str, str]:
    """The kind of the revoked credential, and its name."""
    spec = one.get("spec") or {}
    if found := spec.get("certificate"):
        return "certificate", str(found.get("serialNumber") or found.get("sha256") or "")
    if found := spec.get("token"):
        return "token", str(found.get("jti") or "")
    if found := spec.get("account"):
        return "account", f"{found.get('namespace', '')}/{found.get('name', '')}"
    if found := spec.get("key"):
        return "key", str(found.get("name") or "")
    if found := spec.get("user"):
        return "user", str(found.get("username") or "")
    return "authority", str((spec.get("authority") or {}).get("signerName") or "")


def revocation_row(one: Json) -> Json:
    kind, target = target_of(one)
    spec, status = one.get("spec") or {}, one.get("status") or {}
    reason = str(spec.get("reason") or "unspecified")
    return {
        "name": shared.name_of(one),
        "created": shared.created(one),
        "kind": kind,
        "target": target,
        "reason": reason,
        "message": str(spec.get("message") or ""),
        "effective": shared.is_true(one, "Effective"),
        "expires": status.get("expires"),
        "cluster": str(spec.get("cluster") or ""),
        "can_lift": reason == HOLD or kind == "user" or ("cluster" in spec and kind == "account"),
    }
