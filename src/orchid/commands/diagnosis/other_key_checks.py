"""Checks of all keys but the token keys: one line for each key that a server has or uses.

Sealing keys, keys of the ledger, authorities, the administrator's certificate, tokens that never
end, and the credentials of webhooks. Certificates of files are in file_checks.py, keys of outside
issuers in outside_checks.py.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.commands.diagnosis.key_checks import url_of
from orchid.features.ledger.key_files import ledger_key_files
from orchid.features.rights.settings import RightsSettings
from orchid.features.sealing.commands import sealing_key
from orchid.features.sealing.encryption import InvalidEncryption, key_names
from orchid.features.sealing.key_file import sealing_key_file
from orchid.features.sealing.settings import is_unsealed
from orchid.features.sign_in.settings import SignInSettings
from orchid.features.token_keys.settings import stores_token_keys
from orchid.kernel.credentials.files import read_private
from orchid.kernel.credentials.keys import read_private_key
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.outbound import kubeconfig
from orchid.kernel.outbound.kubeconfig import UnusableKubeconfig
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import NOT_FOUND, path
from orchid.kernel.terminal.findings import (
    Check,
    Finding,
    Installation,
    good,
    note,
    soon,
    wrong,
)
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteRefused, NoteSigner

SOON: Final = datetime.timedelta(days=30)
YEAR: Final = datetime.timedelta(days=365)
MOST_NAMED: Final = 5
_REFUSED: Final = re.compile(r"^orchid_encryption_file_refused ([0-9.]+)$", re.MULTILINE)


def sealing_keys(here: Installation) -> Iterator[Finding]:
    """Every value can be read with the file as it is, and the newest key is not too old."""
    file = sealing_key_file(here.settings)
    if is_unsealed(here.settings.given):
        return  # reported by the check of the encryption
    try:
        names = key_names(read_private(file))
    except Refusal:
        return  # the same
    except InvalidEncryption as problem:
        yield wrong(f"{file}: {problem}", "the next start would fail")
        return
    counts: dict[str, int] = {}
    if here.server is not None:
        for (name, _), number in sealing_key.state_of(here.server).counts.items():
            counts[name] = counts.get(name, 0) + number
        refused = _REFUSED.search(here.server.text("/metrics")[1])
        if refused and float(refused[1]):
            yield wrong(
                f"the server does not use {file} as it is now",
                "its log says why (store.encryption_file_refused)",
            )
    for name in dict.fromkeys(
        (*names, *(key_name for key_name, number in counts.items() if number))
    ):
        yield _sealing_key(name, counts, here, is_there=name in names or name == "identity")
    changed = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC)
    if here.now - changed > YEAR:
        advice = f"orchid key rotate sealing --file {file}"
        yield soon(f"{file} was last changed {changed:%Y-%m-%d}: over a year ago", advice)


def _sealing_key(
    name: str, counts: dict[str, int], here: Installation, *, is_there: bool
) -> Finding:
    if here.server is None:
        return good(f"the sealing key {name} is there")
    number = counts.get(name, 0)
    text = f"{number} values are sealed with {name}"
    if not is_there:
        return wrong(f"{text}, which {sealing_key_file(here.settings)} lacks", "put the key back")
    if name == "identity":
        return note(f"{number} values are in clear text")
    return good(text) if number else note(f"{text}: orchid key retire sealing/{name}")


def ledger_keys(here: Installation) -> Iterator[Finding]:
    """Every key of the ledger signs it."""
    checkpoint = b""
    if here.server is not None:
        checkpoint = here.server.data("/ledger/checkpoint", absent=NOT_FOUND)
    for file in ledger_key_files(here.settings):
        try:
            key = read_private_key(read_private(file), str(file))
        except Refusal:
            continue  # already reported
        if not isinstance(key, Ed25519PrivateKey):
            yield wrong(f"{file} is not an Ed25519 key: it cannot sign the ledger")
        elif not checkpoint or _has_signed(key, checkpoint):
            yield good(f"the ledger key {file} {'signs' if checkpoint else 'is there'}")
        elif len(ledger_key_files(here.settings)) > 1:
            yield note(f"{file} does not sign the ledger: replaced, or not announced yet")
        else:
            yield wrong(
                f"{file} has not signed the ledger: it has another key, and cannot continue it",
                "put back the key that signed it, from a copy; servers over one etcd share it",
            )


def _has_signed(key: Ed25519PrivateKey, checkpoint: bytes) -> bool:
    try:
        signer = NoteSigner(Checkpoint.claimed(checkpoint).origin, key)
    except NoteRefused:
        return False
    return signer.verifier.has_signed(checkpoint)


def authorities(here: Installation) -> Iterator[Finding]:
    """The certificate of every CertificateAuthority is valid for a while."""
    if here.server is None:
        return
    naming = here.server.naming
    url = path("apis", naming.identity, "v1beta1", "certificateauthorities")
    for authority in here.server.items(url):
        name = authority["metadata"]["name"]
        end = times.parse((authority.get("status") or {}).get("notAfter"))
        for condition in (authority.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Ready" and condition["status"] == "False":
                why = f"{condition['reason']}: {condition['message']}"
                yield wrong(f"the authority {name} is not ready: {why}", "see docs/rotation.md")
        if end is None:
            yield note(f"the authority {name} has no certificate yet")
        else:
            yield _expiry(f"the authority {name}", end, here, "see docs/rotation.md")


def administrator(here: Installation) -> Iterator[Finding]:
    """The administrator's certificate is renewed in time."""
    if here.files.kubeconfig.exists():
        advice = "a running server renews it; its log says why not (own_certificates.not_renewed)"
        yield from _client_certificate(here.files.kubeconfig, "the administrator", here, advice)


def webhooks(here: Installation) -> Iterator[Finding]:
    """The kubeconfigs of webhooks are usable, and their certificates valid for a while."""
    options = here.settings.given
    for what, file in (
        ("the token webhook", options.of(SignInSettings).authentication_token_webhook_config_file),
        ("the authorization webhook", options.of(RightsSettings).authorization_webhook_config_file),
    ):
        if file:
            yield from _client_certificate(Path(file), what, here, f"replace it in {file}")


def _client_certificate(
    file: Path, what: str, here: Installation, advice: str
) -> Iterator[Finding]:
    try:
        access = kubeconfig.read([file])
        chain = certificates.parse_blocks(access.certificate) if access.certificate else ()
    except (UnusableKubeconfig, Refusal) as problem:
        yield wrong(f"the kubeconfig of {what} cannot be used: {problem}")
        return
    if chain:
        yield _expiry(f"the certificate of {what}", chain[0].not_valid_after_utc, here, advice)
    else:
        yield good(f"the kubeconfig of {what} can be read; it has no certificate")


def tokens_in_secrets(here: Installation) -> Iterator[Finding]:
    """Tokens in Secrets never end; they depend on their key for ever."""
    if here.server is None or not stores_token_keys(here.settings.given):
        return
    keys: list[dict[str, Any]] = list(here.server.get(url_of(here.server)).get("items") or ())
    for key in keys:
        number = ((key.get("status") or {}).get("dependents") or {}).get("secrets", 0)
        if number:
            name = key["metadata"]["name"]
            yield note(f"{number} Secrets hold tokens of {name}, which never end")


def bootstrap_tokens(here: Installation) -> Iterator[Finding]:
    """Every bootstrap token expires."""
    if here.server is None:
        return
    naming = here.server.naming
    url = path("api", "v1", "namespaces", naming.system_namespace, "secrets")
    selected = {"fieldSelector": f"type={naming.bootstrap_token_type}"}
    secrets = list(here.server.items(url, selected))
    lasting = [
        secret["metadata"]["name"]
        for secret in secrets
        if "expiration" not in secret.get("data", {})
    ]
    if lasting:
        rest = f" and {len(lasting) - MOST_NAMED} more" if len(lasting) > MOST_NAMED else ""
        yield soon(
            f"bootstrap tokens without an expiration: {', '.join(lasting[:MOST_NAMED])}{rest}",
            "set `expiration` in their data, or delete them",
        )
    elif secrets:
        yield good(f"{len(secrets)} bootstrap tokens, and all expire")


def static_tokens(here: Installation) -> Iterator[Finding]:
    """Static tokens are changed by hand."""
    file = here.settings.given.of(SignInSettings).token_auth_file
    if not file:
        return
    try:
        lines = read_private(Path(file)).splitlines()
    except Refusal as refusal:
        yield wrong(f"the static tokens cannot be read: {refusal}")
        return
    number = sum(bool(line.strip()) for line in lines)
    yield note(f"{number} static tokens in {file} never end: change them by hand, and restart")


def _expiry(what: str, end: datetime.datetime, here: Installation, advice: str) -> Finding:
    if end <= here.now:
        return wrong(f"{what} ended {times.until(end)}", advice)
    text = f"{what} ends {times.until(end)}"
    return soon(text, advice) if end - here.now < SOON else good(text)


OTHER_KEY_CHECKS: Final[dict[str, Check]] = {
    "sealing keys": sealing_keys,
    "ledger keys": ledger_keys,
    "authorities": authorities,
    "administrator": administrator,
    "webhooks": webhooks,
    "tokens in secrets": tokens_in_secrets,
    "bootstrap tokens": bootstrap_tokens,
    "static tokens": static_tokens,
}
