"""Fill a store with 100,000 revocations or records of certificates.

`fill` writes objects straight into the embedded store of a data directory whose server is stopped,
as if the server had stored them: through the API it would take many minutes.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from orchid.features.certificates.kinds import issued_certificate
from orchid.features.certificates.kinds.issued_certificate import (
    Approval,
    CertificateKey,
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedCertificateStatus,
    IssuedFor,
    Requester,
    Revoked,
)
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, MAX_CHANGES, Change
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedAccount, RevokedCertificate, RevokedToken

AT_ONCE: Final = MAX_CHANGES
BYTES_OF_A_CERTIFICATE: Final = 600  # of a client's, with a P-256 key
NOW: Final = datetime.now(UTC).replace(microsecond=0)
END: Final = NOW + timedelta(days=365)


def fill(data_dir: Path, changes: Iterable[Change]) -> None:
    """Write objects into the store of a server that is stopped."""
    asyncio.run(_fill(data_dir, list(changes)))


async def _fill(data_dir: Path, changes: list[Change]) -> None:
    store = await SQLiteStore.open(data_dir / "orchid.db")
    try:
        for at in range(0, len(changes), AT_ONCE):
            await store.commit(changes[at : at + AT_ONCE])
        # They were made over months: hardly any of it is history that watches may ask for.
        await store.compact(await store.revision())
    finally:
        await store.close()


def revocations(count: int) -> Iterator[Change]:
    """Revocations of certificates, tokens and accounts in turn, none of which anybody has."""
    kind = credential_revocation.declare(ORCH)
    for number in range(count):
        name = f"bench-{number}"
        revocation = CredentialRevocation(
            metadata=_meta(name),
            spec=_revoked(number),
            status=CredentialRevocationStatus(expires=END),
        )
        yield Change(kind.key("", name), stored_form(revocation), ABSENT)


def _revoked(number: int) -> CredentialRevocationSpec:
    text = _digest(f"revoked-{number}")
    turn = number % 3
    if turn == 0:
        return CredentialRevocationSpec(certificate=RevokedCertificate(sha256=text))
    namespace, name = "bench", f"gone-{number}"
    if turn == 1:
        token = RevokedToken(jti=text[:36], namespace=namespace, name=name)
        return CredentialRevocationSpec(token=token)
    account = RevokedAccount(namespace=namespace, name=name, issued_before=NOW)
    return CredentialRevocationSpec(account=account)


def records(count: int, authority_key: str = "", *, revoked: bool = False) -> Iterator[Change]:
    """Certificates in the inventory, as the client signer issues them; all revoked, or none."""
    kind = issued_certificate.declare(ORCH)
    status = IssuedCertificateStatus(revoked=Revoked(time=NOW, reason="superseded"))
    for number in range(count):
        name = f"{(1 << 120) + number:x}"
        record = IssuedCertificate(
            metadata=_meta(name),
            spec=_issued(number, name, authority_key),
            status=status if revoked else IssuedCertificateStatus(),
        )
        yield Change(kind.key("", name), stored_form(record), ABSENT)


def _issued(number: int, serial: str, authority_key: str) -> IssuedCertificateSpec:
    return IssuedCertificateSpec(
        signer_name=ORCH.client_signer,
        serial_number=serial,
        sha256=_digest(serial),
        subject=f"CN=user-{number},O=bench",
        usages=("digital signature", "client auth"),
        key=CertificateKey(algorithm="ECDSA-P256", sha256=_digest(f"key-{number}")),
        authority_key=authority_key or _digest("authority")[:40],
        not_before=NOW,
        not_after=END,
        request=IssuedFor(name=f"bench-{number}", uid=_uid(f"request-{number}")),
        requester=Requester(username=f"user-{number}", groups=("system:authenticated",)),
        approval=Approval(reason="ApprovalPolicy", message="policy bench, revision 1"),
        certificate=hashlib.shake_256(serial.encode()).digest(BYTES_OF_A_CERTIFICATE),
    )


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, uid=_uid(name), creation_timestamp=NOW)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _uid(text: str) -> str:
    found = _digest(text)
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:32]}"
