"""What depends on the keys of a backup, if the database after it is lost.

Tokens and certificates were issued after the backup, and nothing records them. A key that was in
use must not be Retired while such a credential may be live: `status.dependents.unknownUntil` says
until when, as for an imported key.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from orchid.commands.records.revived import KEYS, token_lifetimes
from orchid.kernel.credentials.refusals import Refusal

AUTHORITIES: Final = "identity/certificateauthorities/"
UNKNOWN: Final = timedelta(days=365)  # Pods get tokens for a year


def keys_in_use(database: Path, now: datetime) -> dict[str, bytes]:
    """The keys of a backup that were in use, with `unknownUntil`, by store key."""
    from orchid.features.token_keys.kinds.signing_key import RETIRED
    from orchid.kernel.store.sqlite.restore import values_if_readable

    tokens, authorities = _token_lifetime(database), _durations(database)
    changed = {}
    for store_key, value in values_if_readable(database, KEYS).items():
        try:
            key = msgspec.json.decode(value, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        spec = key.get("spec", {})
        if spec.get("state") == RETIRED:
            continue
        authority = spec.get("authority", "")
        until = now + (authorities.get(authority, UNKNOWN) if authority else tokens)
        changed[store_key] = _with_unknown(key, until)
    return changed


def _with_unknown(key: dict[str, Any], until: datetime) -> bytes:
    """The stored value of a key, with `unknownUntil` not before a time; all else stays."""
    dependents = key.setdefault("status", {}).setdefault("dependents", {"live": 0, "holders": 0})
    text = f"{until:%Y-%m-%dT%H:%M:%SZ}"
    dependents["unknownUntil"] = max(dependents.get("unknownUntil") or "", text)
    return msgspec.json.encode(key)


def _token_lifetime(database: Path) -> timedelta:
    """The longest lifetime of tokens. It may be longer than in the backup, so at least a year."""
    from orchid.features.accounts.token_lifetimes import LONGEST
    from orchid.kernel.store.sqlite.restore import value_of

    longest = UNKNOWN
    for key in token_lifetimes():
        try:
            stored = msgspec.json.decode(value_of(database, key) or b"{}", type=dict[str, Any])
            seconds = int(stored.get("data", {}).get(LONGEST, 0))
            longest = max(longest, timedelta(seconds=seconds))
        except (msgspec.MsgspecError, ValueError, OverflowError):
            continue
    return longest


def _durations(database: Path) -> dict[str, timedelta]:
    """The longest lifetime of certificates of each authority."""
    from orchid.features.authorities.kinds import certificate_authority
    from orchid.kernel.store.sqlite.restore import values_if_readable
    from orchid.kernel.wire.naming import ORCH

    decoder = certificate_authority.declare(ORCH).decoder
    durations = {}
    for key, value in values_if_readable(database, AUTHORITIES).items():
        try:
            authority = decoder.stored(value)
            if not authority.is_platform:  # the flags of the server limit its certificates
                longest = certificate_authority.profile(authority).max_duration
                durations[key.removeprefix(AUTHORITIES)] = longest
        except (msgspec.MsgspecError, Refusal):
            continue
    return durations
