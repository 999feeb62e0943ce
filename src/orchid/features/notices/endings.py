"""Certificates, authorities, keys and credentials that end soon.

An ending is announced when it is due: within the set time before its end, and in the last third of
its life. `due` of a new object lies in the future, so that the time of the last search is all that
has to be stored. Certificates that live shorter than the set time are left to those who renew them,
and so are certificates that have a successor: the same signer, requester, subject and names.
"""

import hashlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from cryptography import x509

from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.notices.notice import Notice, NoticeKey, plain, plain_all
from orchid.features.notices.sources import Source, T
from orchid.features.token_keys.kinds.signing_key import ACTIVE, RETIRED, SigningKey
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.runtime.context import Signer
from orchid.kernel.wire.authority_status import CertificateAuthorityStatus
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import timestamp

Validity = tuple[datetime, datetime]  # from, until
PLATFORM: Final = "platform/"  # before the name of an authority that is a file, and no object
LAST_PART: Final = 1 / 3  # of a life


class DueEnding(NamedTuple):
    """An ending to announce. Without its object: there may be very many."""

    when: datetime
    source: Source[Any]
    key: NoticeKey
    identity: bytes  # of a certificate, as its successor has it
    begin: datetime


class Ending(Source[T]):
    """Objects of a kind that have an end."""

    def __init__(self, naming: Naming, before: timedelta) -> None:
        super().__init__(naming)
        self._before = before

    @abstractmethod
    def validity(self, found: T) -> Validity | None:
        """None if it has no end, or its end needs no notice."""

    @abstractmethod
    def described(self, found: T) -> tuple[str, dict[str, Any]]:
        """What ends, for the sentence, and the fields."""

    def all(self, client: Client) -> AsyncIterator[T]:
        return client.scan(ListSelection(self.kind))

    def due(self, validity: Validity) -> datetime:
        return due_of(validity, self._before)

    def mark(self, found: T) -> str:
        validity = self.validity(found)
        return timestamp(validity[1]) if validity else ""

    def notice(self, subject: T) -> Notice | None:
        validity = self.validity(subject)
        if validity is None:
            return None
        what, fields = self.described(subject)
        end = timestamp(validity[1])
        occurred = due_of(validity, self._before)
        return Notice(occurred, f"{what} ends at {end}.", {**fields, "end": end})


class EndingCertificate(Ending[IssuedCertificate]):
    word = "certificate-ending"
    kind = IssuedCertificate

    def validity(self, found: IssuedCertificate) -> Validity | None:
        begin, end = found.spec.not_before, found.spec.not_after
        if begin is None or end is None or end - begin <= self._before or found.status.revoked:
            return None
        return begin, end

    def described(self, record: IssuedCertificate) -> tuple[str, dict[str, Any]]:
        spec = record.spec
        whose = plain(spec.subject) or plain(spec.names[0] if spec.names else spec.serial_number)
        fields = {
            "serialNumber": spec.serial_number,
            "signerName": plain(spec.signer_name),
            "subject": plain(spec.subject),
            "names": plain_all(spec.names),
            "requester": plain(spec.requester.username),
            "cluster": spec.cluster,
        }
        return f"The certificate of {whose} by {plain(spec.signer_name)}", fields


class EndingAuthority(Ending[CertificateAuthority]):
    """Authorities of custom signers, and those of the platform's signers."""

    word = "authority-ending"
    kind = CertificateAuthority

    def __init__(
        self, naming: Naming, before: timedelta, signers: Mapping[str, Signer] | None = None
    ) -> None:
        super().__init__(naming, before)
        self._platform = {f"{PLATFORM}{one.list_name}": one for one in (signers or {}).values()}

    async def all(self, client: Client) -> AsyncIterator[CertificateAuthority]:
        leaves = set()
        async for stored in super().all(client):
            leaves.add(_first(stored.status.certificate))
            yield stored
        for name in self._platform:
            authority = self._of_platform(name)
            if _first(authority.status.certificate) not in leaves:
                yield authority

    async def find(self, client: Client, name: str) -> CertificateAuthority | None:
        return (
            self._of_platform(name) if name in self._platform else await super().find(client, name)
        )

    def _of_platform(self, name: str) -> CertificateAuthority:
        """The authority of a file, in the form of an object."""
        certificate = self._platform[name].authority().certificate
        data = certificates.encode(certificate)
        return CertificateAuthority(
            metadata=ObjectMeta(name=name, uid=hashlib.sha256(data).hexdigest()),
            spec=CertificateAuthoritySpec(),
            status=CertificateAuthorityStatus(
                certificate=pem.encode(pem.CERTIFICATE, data).decode(),
                not_after=certificate.not_valid_after_utc,
            ),
        )

    def validity(self, found: CertificateAuthority) -> Validity | None:
        end, certificate = found.status.not_after, _first(found.status.certificate)
        return (certificate.not_valid_before_utc, end) if certificate and end else None

    def described(self, found: CertificateAuthority) -> tuple[str, dict[str, Any]]:
        fields = {"authority": found.name, "signerName": plain(found.spec.signer_name)}
        return f"The authority {found.name}", fields


class EndingKey(Ending[SigningKey]):
    """A key of an authority with a certificate; that of the Active key is the authority's."""

    word = "key-ending"
    kind = SigningKey

    def validity(self, key: SigningKey) -> Validity | None:
        if not key.status.certificate or key.state in (ACTIVE, RETIRED):
            return None
        try:
            chain = certificates.parse_blocks(key.status.certificate)
        except Refusal:
            return None
        return chain[0].not_valid_before_utc, min(link.not_valid_after_utc for link in chain)

    def described(self, found: SigningKey) -> tuple[str, dict[str, Any]]:
        fields = {"key": found.name, "authority": found.spec.authority, "keyID": found.key_id}
        return f"The certificate of the key {found.name}", fields


class EndingCredential(Ending[Cluster]):
    """The token of a cluster's API server."""

    word = "cluster-credential-ending"
    kind = Cluster

    def validity(self, found: Cluster) -> Validity | None:
        end = found.spec.credential.expires if found.spec.credential else None
        return (datetime.min.replace(tzinfo=end.tzinfo), end) if end else None

    def described(self, found: Cluster) -> tuple[str, dict[str, Any]]:
        return f"The webhook token of the cluster {found.name}", {"cluster": found.name}


def ending_sources(
    naming: Naming, before: timedelta, signers: Mapping[str, Signer]
) -> tuple[Ending[Any], ...]:
    return (
        EndingCertificate(naming, before),
        EndingAuthority(naming, before, signers),
        EndingKey(naming, before),
        EndingCredential(naming, before),
    )


async def due_endings(
    client: Client, sources: Iterable[Ending[Any]], since: datetime | None, now: datetime
) -> list[DueEnding]:
    """The endings that became due since a time, the earliest first."""
    due: list[DueEnding] = []
    for source in sources:
        async for subject in source.all(client):
            validity = source.validity(subject)
            if validity is None or validity[1] <= now:
                continue
            when = source.due(validity)
            if when <= now and (since is None or when >= since):
                identity = identity_of(subject) if isinstance(subject, IssuedCertificate) else b""
                due.append(DueEnding(when, source, source.key(subject), identity, validity[0]))
    latest = await _latest_begins(
        client, {ending.identity for ending in due if ending.identity}, now
    )
    left = [ending for ending in due if latest.get(ending.identity, ending.begin) <= ending.begin]
    return sorted(left, key=lambda ending: ending.when)


async def _latest_begins(
    client: Client, identities: set[bytes], now: datetime
) -> dict[bytes, datetime]:
    """When the last certificate of each identity begins that has not ended.

    In a second pass, so that what is stored grows with the endings, not with the inventory.
    """
    latest: dict[bytes, datetime] = {}
    if not identities:
        return latest
    async for record in client.scan(ListSelection(IssuedCertificate)):
        begin, end = record.spec.not_before, record.spec.not_after
        if begin is None or end is None or end <= now or record.status.revoked:
            continue
        identity = identity_of(record)
        if identity in identities:
            latest[identity] = max(begin, latest.get(identity, begin))
    return latest


def due_of(validity: Validity, before: timedelta) -> datetime:
    """When an end is announced."""
    begin, end = validity
    return max(end - before, end - (end - begin) * LAST_PART)


def identity_of(record: IssuedCertificate) -> bytes:
    """What a certificate and its successor have in common."""
    spec = record.spec
    parts: Iterable[str] = (
        spec.cluster, spec.signer_name, spec.requester.username, spec.subject, *sorted(spec.names),
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16]


def _first(chain: str) -> x509.Certificate | None:
    try:
        return certificates.parse_blocks(chain)[0] if chain else None
    except Refusal:
        return None
