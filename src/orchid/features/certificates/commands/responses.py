"""Responses about certificate requests: their parts, and the wait for a certificate."""

import base64
import binascii
from itertools import count
from typing import Any, Final

from orchid.features.certificates.commands import policy_reason
from orchid.features.certificates.commands.request_flags import url
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, retried
from orchid.kernel.terminal.output import Complaint, remark

PATIENCE: Final = 6  # attempts, about two seconds: then a person wants to know why


def wait_for(server: ServerConnection, name: str, seconds: float) -> Json:
    """Wait until a request has its certificate; a refusal ends the wait."""
    request: Json = {}
    attempts = count()

    def certified() -> Json | None:
        nonlocal request
        request = server.get(url(server, name))
        if status_of(request).get("certificate"):
            return request
        for condition in conditions_of(request):
            if condition.get("type") in ("Denied", "Failed"):
                title, reason = condition_row(condition)
                raise Complaint(f"{name} was {title.lower()}: {reason or 'no reason is given'}")
        if next(attempts) == PATIENCE and not conditions_of(request):
            why = policy_reason.reason(server, request)
            remark(
                f"{name} waits for a decision" + (f": no policy approves it ({why})" if why else "")
            )
        return None

    if retried(certified, seconds) is None:
        why = "" if conditions_of(request) else policy_reason.reason(server, request)
        raise Complaint(_overdue(request, name, seconds, why))
    return request


def _overdue(request: Json, name: str, seconds: float, why: str) -> str:
    waited = f"{name} has no certificate after {times.span(seconds)}"
    if not conditions_of(request):
        decided = f"no policy approves it ({why})" if why else "nobody has decided"
        return f"{waited}: {decided}; an approver approves it with: orchid csr approve {name}"
    signer = request["spec"].get("signerName", "")
    return f"{waited}: it is approved, but the signer {signer} has not signed; does it run?"


def status_of(request: Json) -> Json:
    found: Json = request.get("status") or {}
    return found


def conditions_of(request: Json) -> list[Json]:
    return list(status_of(request).get("conditions") or ())


def condition_row(condition: Json) -> tuple[str, str]:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return condition.get("type", ""), ": ".join(part for part in (reason, message) if part)


def bytes_of(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "")
    except (binascii.Error, TypeError, ValueError):
        return b""


def certificate_of(request: Json) -> bytes:
    """The PEM of a request's certificate."""
    return bytes_of(status_of(request).get("certificate"))
