"""Checks of the SigningKeys of a running server: one line for each key."""

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from orchid.features.token_keys.settings import TokenKeySettings, stores_token_keys
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import ServerConnection, path
from orchid.kernel.terminal.findings import Finding, Installation, good, note, soon, wrong
from orchid.kernel.terminal.older_servers import older_servers

ACTIVE, RETIRED, FILE = "Active", "Retired", "File"
OVERDUE: Final = 1.5  # periods
STOP_IT: Final = "stop it, and start the current version; see docs/rotation.md"


def url_of(server: ServerConnection) -> str:
    return path("apis", server.naming.identity, "v1beta1", "signingkeys")


def stored_keys(here: Installation) -> Iterator[Finding]:
    """A successor exists, no private key is lost, and the signer is not overdue."""
    if here.server is None:
        return
    stored: list[dict[str, Any]] = list(here.server.get(url_of(here.server)).get("items") or ())
    yield from _older_servers(here, here.server, stored)
    yield from _public_only(here, stored)
    of_tokens = [key for key in stored if not key["spec"].get("authority")]
    for key in stored:
        if key["spec"].get("authority") or stores_token_keys(here.settings.given):
            yield _finding(key, here)
    if not stores_token_keys(here.settings.given):
        return
    states = [key["spec"]["state"] for key in of_tokens]
    if ACTIVE not in states:
        yield wrong("no token key is Active", "see docs/rotation.md")
    if "Published" not in states:
        yield soon("no successor is Published", "do controllers run? see docs/rotation.md")


def _older_servers(
    here: Installation, server: ServerConnection, stored: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Servers of a version that does not know keys of authorities, and what one has done."""
    if any(key["spec"].get("authority") and not _is_file(key) for key in stored):
        for name in older_servers(server, here.now):
            text = f"{name} is a server of an earlier version"
            yield wrong(f"{text}; it may take keys of authorities for token keys", STOP_IT)
    for key in stored:
        name = key["metadata"]["name"]
        is_of_tokens = not key["spec"].get("authority") and not key["spec"].get("cluster")
        if is_of_tokens and not name.startswith("tokens-"):
            text = f"{name} lost its authority: a server of an earlier version wrote it"
            yield wrong(text, "restore it from a backup")


def _public_only(here: Installation, stored: list[dict[str, Any]]) -> Iterator[Finding]:
    """Public keys that verify tokens of Orchid's accounts, and are in no key file of the server."""
    in_files = _ids_in_files(here)
    for key in stored:
        name, spec = key["metadata"]["name"], key["spec"]
        if not spec.get("publicKey") or spec.get("cluster") or spec.get("authority"):
            continue
        if _is_file(key) or spec["state"] == RETIRED:
            continue
        if (key.get("status") or {}).get("keyID") not in in_files:
            text = f"{name} is a public key of no cluster: it verifies tokens of every account"
            advice = (
                f"if it is no earlier key of this server: orchid revoke key/{name}; a holder of "
                "its private key can issue tokens"
            )
            yield wrong(text, advice)


def _ids_in_files(here: Installation) -> set[str]:
    """Ids of the keys in --service-account-key-file, as far as they can be read."""
    ids: set[str] = set()
    for file in here.settings.given.of(TokenKeySettings).service_account_key_file:
        with contextlib.suppress(OSError, Refusal):
            ids.update(key.kid for key in keys.load_verification_keys(Path(file)))
    return ids


def _finding(key: dict[str, Any], here: Installation) -> Finding:
    name, state = key["metadata"]["name"], key["spec"]["state"]
    status = key.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    if _is_file(key):
        return good(f"{name} is in the files of a server")
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


def _is_file(key: dict[str, Any]) -> bool:
    """Whether an object only shows a key of files."""
    return (key.get("status") or {}).get("source") == FILE


def _is_overdue(since: datetime.datetime | None, here: Installation) -> bool:
    period = here.settings.given.of(TokenKeySettings).token_key_rotation.seconds
    return bool(period and since and (here.now - since).total_seconds() > OVERDUE * period)
