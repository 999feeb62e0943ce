"""Responses about certificate requests: their parts, and the wait for a certificate."""

import base64
import binascii
from typing import Any, Final

from orchid.commands.certificates import policy_reason
from orchid.commands.certificates.request_flags import url
from orchid.commands.terminal import times
from orchid.commands.terminal.connection import Json, ServerConnection
from orchid.commands.terminal.output import Complaint, remark
from orchid.commands.terminal.polling import polls

PATIENCE: Final = 6  # attempts, about two seconds: then a person wants to know why


def wait_for(server: ServerConnection, name: str, seconds: float) -> Json:
    """Wait until a request has its certificate; a refusal ends the wait."""
    found: Json = {}
    for attempt, _ in enumerate(polls(seconds)):
        found = server.get(url(server, name))
        if status_of(found).get("certificate"):
            return found
        for condition in conditions_of(found):
            if condition.get("type") in ("Denied", "Failed"):
                title, reason = condition_row(condition)
                raise Complaint(f"{name} was {title.lower()}: {reason or 'no reason is given'}")
        if attempt == PATIENCE and not conditions_of(found):
            why = policy_reason.reason(server, found)
            remark(
                f"{name} waits for a decision" + (f": no policy approves it ({why})" if why else "")
            )
    why = "" if conditions_of(found) else policy_reason.reason(server, found)
    raise Complaint(_overdue(found, name, seconds, why))


def _overdue(found: Json, name: str, seconds: float, why: str) -> str:
    waited = f"{name} has no certificate after {times.span(seconds)}"
    if not conditions_of(found):
        decided = f"no policy approves it ({why})" if why else "nobody has decided"
        return f"{waited}: {decided}; an approver approves it with: orchid csr approve {name}"
    signer = found["spec"].get("signerName", "")
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
