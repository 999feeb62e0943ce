"""Credentials that a restore makes valid again: found, reported, and revoked on request.

An account that was deleted after the backup exists again after the restore, with the same uid, so
that its old tokens are accepted until they expire. The same applies to tokens in Secrets, tokens
bound to Pods, and permissions of bindings. `compare` finds them by comparing the backup with the
previous database; without a readable one nothing is found. `revoke` adds revocations to the file
beside the database, which the server stores at its next start.
"""

import uuid
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from orchid.commands.records.stored_data import DROPPED, REVIVED, is_other_decision
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import remark, say

ACCOUNTS: Final = "core/serviceaccounts/"
ISSUED: Final = "identity/issuedcertificates/"
KEYS: Final = "identity/signingkeys/"
REVOKED: Final = "identity/credentialrevocations/"
MOST_NAMED: Final = 20


class Revived(msgspec.Struct, frozen=True):
    """Comparison of a backup with the previous database."""

    accounts: list[str]  # of the backup, as namespace/name
    deleted: dict[str, list[str]] | None  # after the backup, by prefix; None if unknown
    issued: list[str]  # serial numbers of certificates issued after the backup
    changed: dict[str, list[str]] = msgspec.field(default_factory=dict)  # after the backup
    lost_keys: list[str] = msgspec.field(default_factory=list)  # created after the backup

    @property
    def deleted_accounts(self) -> list[str]:
        return (self.deleted or {}).get(ACCOUNTS, [])


def compare(backup: Path, in_place: Path) -> Revived:
    """Find objects of the backup that the previous database lacks; raises StoreUnusable."""
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    then = sqlite_restore.uids(backup, [*REVIVED, ISSUED])
    now = sqlite_restore.uids_if_readable(in_place, [*REVIVED, ISSUED])
    accounts = [key.removeprefix(ACCOUNTS) for key in then if key.startswith(ACCOUNTS)]
    if now is None:
        return Revived(accounts, None, [])
    deleted: dict[str, list[str]] = {}
    for key, uid in then.items():
        prefix = next(prefix for prefix in [*REVIVED, ISSUED] if key.startswith(prefix))
        if prefix != ISSUED and (key not in now or now[key] != uid):
            deleted.setdefault(prefix, []).append(key.removeprefix(prefix))
    new = [key for key in now if key not in then]
    return Revived(
        accounts,
        deleted,
        [key.removeprefix(ISSUED) for key in new if key.startswith(ISSUED)],
        _changed(backup, in_place, {key for key in then if then[key] == now.get(key)}),
        [key.removeprefix(KEYS) for key in new if key.startswith(KEYS)],
    )


def _changed(backup: Path, in_place: Path, same: set[str]) -> dict[str, list[str]]:
    """Objects that decide otherwise about credentials since the backup, by prefix.

    Whether a sealed one does is not visible: it may even be another one of the same name.
    """
    from orchid.kernel.store.sqlite.restore import values_if_readable

    changed: dict[str, list[str]] = {}
    for prefix in REVIVED:
        then = values_if_readable(backup, prefix)
        now = values_if_readable(in_place, prefix)
        names = [
            key.removeprefix(prefix)
            for key in then
            if key in same and then[key] != now[key] and is_other_decision(then[key], now[key])
        ]
        if names:
            changed[prefix] = names
    return changed


def dropped(database: Path) -> list[str]:
    """The keys of a backup that are not restored."""
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    sessions = sqlite_restore.uids(database, DROPPED)
    return [*token_lifetimes(), *published_editions(database), *sessions]


def uid_of(data: bytes) -> bytes:
    """The uid of a stored object; empty if it is encrypted."""
    try:
        return msgspec.json.decode(data, type=_Identified).metadata.uid.encode()
    except msgspec.MsgspecError:
        return b""


def lacking(revoked: dict[str, bytes], database: Path) -> list[str]:
    """The names of revocations that a database does not have."""
    from orchid.kernel.store.sqlite import restore as sqlite_restore

    uids = sqlite_restore.uids(database, [REVOKED])
    keys = [key for key, data in revoked.items() if uids.get(key) not in (b"", uid_of(data))]
    return [key.rpartition("/")[2] for key in keys]


class _Meta(msgspec.Struct):
    uid: str


class _Identified(msgspec.Struct):
    metadata: _Meta


def token_lifetimes() -> list[str]:
    """The keys of the longest lifetime of tokens, in both namings
    (features/accounts/token_lifetimes.py).

    It may be outdated in the backup. Without it, the expiry of existing accounts' tokens is
    unknown.
    """
    from orchid.kernel.wire.naming import KUBERNETES, ORCH

    return [
        f"core/configmaps/{naming.system_namespace}/token-lifetimes"
        for naming in (ORCH, KUBERNETES)
    ]


def published_editions(database: Path) -> list[str]:
    """The keys of the editions of published bundles in a backup, in both namings.

    Clients may have received later ones. Without them, the server stores each bundle under a new
    sequence (features/trust_bundles/controllers/publish_bundles.py).
    """
    from orchid.features.trust_bundles.stored_edition import EDITIONS, is_edition
    from orchid.kernel.store.sqlite import restore as sqlite_restore
    from orchid.kernel.wire.naming import KUBERNETES, ORCH

    prefixes = [
        f"core/configmaps/{naming.system_namespace}/{EDITIONS}" for naming in (ORCH, KUBERNETES)
    ]
    keys = sqlite_restore.uids(database, prefixes)
    return [key for key in keys if is_edition(key.rpartition("/")[2])]


def ledger_entries(key: str, value: bytes) -> list[tuple[str, bytes]]:
    """The ledger entry of a kept certificate: the restore rolls the ledger back."""
    from orchid.features.certificates.kinds import issued_certificate
    from orchid.kernel.engine.ledger import store_keys
    from orchid.kernel.wire.naming import ORCH

    if not key.startswith(ISSUED):
        return []
    try:
        record = issued_certificate.declare(ORCH).decoder.stored(value)
    except msgspec.MsgspecError:
        return []
    now, fact = times.now(), issued_certificate.restored(record)
    changes = store_keys.pending([fact], record.metadata.uid, now)
    return [(change.key, change.value) for change in changes if change.value is not None]


def report(revived: Revived, *, revokes: bool, is_done: bool) -> None:
    """Report credentials that are valid again, and what is unknown.

    `revokes`: tokens are revoked by this restore; `is_done`: it is not a dry run.
    """
    if revived.deleted is None:
        tokens = (
            "Tokens of all accounts in the backup are valid until they expire; "
            "--revoke-tokens all revokes them. "
        )
        remark(
            "which credentials were deleted after the backup is not known: there is no readable "
            f"database in place. {'' if revokes else tokens}Policies, roles, ACME accounts and "
            "keys are as in the backup. Certificates issued after the backup are valid, but not "
            "in the inventory"
        )
        return
    if revived.deleted:
        say("deleted after the backup, and valid again:")
        for prefix, names in sorted(revived.deleted.items()):
            say(f"  {REVIVED[prefix]}: {_some(names)}")
    if revived.changed:
        say("changed after the backup, and as before again:")
        for prefix, names in sorted(revived.changed.items()):
            say(f"  {REVIVED[prefix]}: {_some(names)}")
    if revived.lost_keys:
        say(
            "keys created after the backup, whose signatures are refused: "
            f"{_some(revived.lost_keys)}"
        )
    if revived.deleted_accounts and not revokes:
        # After the restore there is nothing left to compare with: the flag would revoke nothing.
        flag = "" if is_done else "--revoke-tokens deleted, or, "
        remark(
            f"revoke tokens of these accounts: {flag}when the server runs, "
            "orchid revoke account/NAMESPACE/NAME"
        )
    if revived.issued:
        say(f"certificates issued after the backup, kept in the inventory: {_some(revived.issued)}")


def revoke(file: Path, accounts: Iterable[str], now: datetime) -> None:
    """Make the server revoke every token of some accounts that was issued until now."""
    from orchid.features.revocation.kinds import credential_revocation as revocations
    from orchid.features.revoking import revocation_file
    from orchid.kernel.wire.codec.documents import encode
    from orchid.kernel.wire.meta import ObjectMeta
    from orchid.kernel.wire.naming import ORCH
    from orchid.kernel.wire.revoked_credentials import RevokedAccount

    kind, moment = revocations.declare(ORCH), now.replace(microsecond=0)
    lines, stamp = [], f"{moment:%Y%m%dt%H%M%Sz}"
    for number, account in enumerate(accounts, start=1):
        namespace, _, name = account.partition("/")
        target = RevokedAccount(namespace=namespace, name=name, issued_before=moment)
        revocation = revocations.CredentialRevocation(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=ObjectMeta(
                name=f"restore-{stamp}-{number}",
                uid=str(uuid.uuid4()),
                creation_timestamp=moment,
                generation=1,
            ),
            spec=revocations.CredentialRevocationSpec(
                account=target, reason="superseded", message="a backup was restored"
            ),
        )
        lines.append(revocation_file.line(kind.key("", revocation.name), encode(revocation)))
    revocation_file.append(file, lines)
    say(f"the server will revoke the tokens of {len(lines)} accounts when it starts")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + rest
