"""Checks of the SigningKeys of a running server: one line for each key."""

import datetime
from collections.abc import Iterator
from typing import Any, Final

from orchid.commands.diagnosis.findings import Finding, Installation, good, note, soon, wrong
from orchid.commands.terminal import times
from orchid.commands.terminal.connection import ServerConnection, path

ACTIVE: Final = "Active"
OVERDUE: Final = 1.5  # periods


def url_of(server: ServerConnection) -> str:
    return path("apis", server.names.identity, "v1beta1", "signingkeys")


def stored_keys(here: Installation) -> Iterator[Finding]:
    """A successor exists, no private key is lost, and the signer is not overdue."""
    if here.server is None:
        return
    found: list[dict[str, Any]] = list(here.server.get(url_of(here.server)).get("items") or ())
    of_tokens = [key for key in found if not key["spec"].get("authority")]
    for key in found:
        if key["spec"].get("authority") or here.settings.stores_token_keys:
            yield _finding(key, here)
    if not here.settings.stores_token_keys:
        return
    states = [key["spec"]["state"] for key in of_tokens]
    if ACTIVE not in states:
        yield wrong("no token key is Active", "see docs/rotation.md")
    if "Published" not in states:
        yield soon("no successor is Published", "do controllers run? see docs/rotation.md")


def _finding(key: dict[str, Any], here: Installation) -> Finding:
    name, state = key["metadata"]["name"], key["spec"]["state"]
    status = key.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    text = f"{name} is {state}"
    since = times.parse((status.get("times") or {}).get(state.lower()))
    if since is not None:
        text += f" since {since:%Y-%m-%d}"
    if (conditions.get("Ready") or {}).get("reason") == "KeyLost":
        return wrong(f"{text}, but its private key is lost", conditions["Ready"]["message"])
    is_of_tokens = not key["spec"].get("authority")
    if is_of_tokens and state == ACTIVE and _is_overdue(since, here):
        successor = "activate its successor: orchid key rotate"
        return soon(f"{text}, longer than {OVERDUE} periods", successor)
    blocked = (conditions.get("Retirable") or {}).get("message", "")
    if state == "Verifying" and blocked:
        return note(f"{text}: {blocked}")
    return good(text)


def _is_overdue(since: datetime.datetime | None, here: Installation) -> bool:
    period = here.settings.token_key_rotation
    return bool(period and since and (here.now - since).total_seconds() > OVERDUE * period)
