"""The certificate that a revocation names, with what is recorded of it.

`completed` is the start: it fills in the recorded attributes, refuses what contradicts them, and
warns of what a revocation cannot reach. The permission is required before anything is looked up,
except for the caller's own client certificate. A part of the policy in revocation_permission.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.revocation.kinds.credential_revocation import (
    SPEC,
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.token_keys.kinds.signing_key import RETIRED, SigningKey
from orchid.kernel.credentials.x509.certificates import fingerprint, parse_blocks
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import OwnCertificate, Request
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.fields import FieldError, invalid, not_found
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

T = TypeVar("T", bound=Object)

CERTIFICATE = SPEC / "certificate"
Require = Callable[[Request, Kind[Any], str, CredentialRevocationSpec], Awaitable[None]]


class CertificateTargets:
    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        require: Require,
        *,
        is_ours: Callable[[str], bool],
        listed_keys: Callable[[str], Collection[str]],
        end: Callable[[], datetime],
    ) -> None:
        """`require` refuses callers without the permission. `is_ours` and `listed_keys` as for the
        policy. `end`: the expiry of the last CA for client certificates.
        """
        self._records = feed.of(IssuedCertificate)
        self._keys = feed.of(SigningKey)
        self._require = require
        self._is_ours = is_ours
        self._listed_keys = listed_keys
        self._end = end
        self._holder_annotation = naming.own("revoked-by-holder")

    async def completed(
        self,
        request: Request,
        kind: Kind[Any],
        new: CredentialRevocation,
        named: RevokedCertificate,
    ) -> tuple[CredentialRevocationSpec, datetime | None]:
        """The spec with all recorded attributes of the certificate, and its expiry.

        Nothing is revealed about another signer than the named one to users without permission.
        """
        own = self._own(request, named)
        if own is None:
            await self._require(request, kind, new.name, new.spec)
        else:
            request.annotate(self._holder_annotation, own.sha256)
        recorded = await self._recorded(named, own)
        matches = [
            candidate for candidate in recorded if named.signer_name in ("", candidate.signer_name)
        ]
        if not matches:
            return await self._unseen(request, kind, new, named, recorded)
        if len(matches) > 1:
            numbers = ", ".join(candidate.serial_number for candidate in matches[:10])
            text = f"several certificates were issued for requests of that name: {numbers}"
            refuse(kind, new, invalid(CERTIFICATE / "requestName", named.request_name, text))
        record = matches[0]
        certificate = RevokedCertificate(
            sha256=record.sha256,
            signer_name=record.signer_name,
            serial_number=record.serial_number,
            request_name=record.request.name,
            authority_key=record.authority_key,
            key_sha256=record.key.sha256,
        )
        fields = zip(named.__struct_fields__, named.__struct_encode_fields__, strict=True)
        for attribute, field in fields:
            expected, actual = getattr(named, attribute), getattr(certificate, attribute)
            if expected and expected != actual:
                text = f"that certificate has {quote(actual)}"
                refuse(kind, new, invalid(CERTIFICATE / field, expected, text))
        self._warn_of_key(request, record)
        if not self._is_ours(record.signer_name):
            self._without_list(request, kind, new, certificate)
        elif (
            keys := self._listed_keys(certificate.signer_name)
        ) and certificate.authority_key not in keys:
            text = f"the authority of {certificate.signer_name} has another key now"
            request.warn(f"{text}: no revocation list can name it; only this server refuses it")
        return replace(new.spec, certificate=certificate), record.not_after

    def _warn_of_key(self, request: Request, record: IssuedCertificateSpec) -> None:
        """Warn if the certificate is that of an authority's key, with which the server signs."""
        entry = self._keys.get("", record.intermediate) if record.intermediate else None
        key = entry.object if entry else None
        if key is None or key.state == RETIRED or not key.status.certificate:
            return
        if fingerprint(parse_blocks(key.status.certificate)[0]) == record.sha256:
            request.warn(
                f"it certifies the key {key.name} of the authority {key.spec.authority}, which is "
                "not revoked: to have another key sign, revoke it, too: "
                f"orchid revoke key/{key.name}"
            )

    def _without_list(
        self,
        request: Request,
        kind: Kind[Any],
        new: CredentialRevocation,
        certificate: RevokedCertificate,
    ) -> None:
        """Refuse, or warn, if the authority of a certificate was deleted: no key signs its CRL."""
        signer = certificate.signer_name
        text = f"the authority of {signer} was deleted: no revocation list can name it"
        if new.spec.certificate and new.spec.certificate.sha256:
            request.warn(f"{text}; only this server refuses the certificate")
            return
        more = (
            f"{text}; to have only this server refuse it, name it by sha256: {certificate.sha256}"
        )
        refuse(kind, new, invalid(CERTIFICATE, certificate.serial_number, more))

    async def _unseen(
        self,
        request: Request,
        kind: Kind[Any],
        new: CredentialRevocation,
        named: RevokedCertificate,
        recorded: list[IssuedCertificateSpec],
    ) -> tuple[CredentialRevocationSpec, datetime | None]:
        """A certificate without a record: it must be given by its fingerprint.

        `recorded`: its record with another signer than the named one. Revoked as unknown it would
        be on no CRL.
        """
        for field, wire in (("serial_number", "serialNumber"), ("request_name", "requestName")):
            if identifier := getattr(named, field):
                refuse(kind, new, not_found(CERTIFICATE / wire, identifier))
        # Signer and expiry are unknown: a given signer is ignored, and the expiry of the CAs is
        # the limit.
        spec = replace(new.spec, certificate=RevokedCertificate(sha256=named.sha256))
        if self._own(request, named) is None:
            await self._require(request, kind, new.name, spec)
        if recorded:
            text = f"that certificate has {quote(recorded[0].signer_name)}"
            refuse(kind, new, invalid(CERTIFICATE / "signerName", named.signer_name, text))
        if named.sha256:
            request.warn("no certificate with this fingerprint was issued here")
        return spec, self._end()

    def _own(self, request: Request, named: RevokedCertificate) -> OwnCertificate | None:
        """The client certificate of the caller, if exactly that one is named."""
        own = request.certificate
        if own is None or named.serial_number not in ("", own.serial):
            return None
        if named.sha256:
            return own if named.sha256 == own.sha256 else None
        recorded = self._of_serial(named.serial_number)
        return own if recorded and recorded[0].sha256 == own.sha256 else None

    def _of_serial(self, serial: str) -> list[IssuedCertificateSpec]:
        entry = self._records.get("", serial) if serial else None
        return [entry.object.spec] if entry else []

    async def _recorded(
        self, named: RevokedCertificate, own: OwnCertificate | None
    ) -> list[IssuedCertificateSpec]:
        """The records of a certificate: several only for the name of a request."""
        if own is not None:
            return [record for record in self._of_serial(own.serial) if record.sha256 == own.sha256]
        if named.serial_number:
            return self._of_serial(named.serial_number)
        if named.sha256:
            records = await self._records_with(b'"sha256":"%b"' % named.sha256.encode())
            return [record for record in records if record.sha256 == named.sha256][:1]
        if not named.request_name:
            return []
        needle = b'"request":{"name":%b' % msgspec.json.encode(named.request_name)
        records = await self._records_with(needle)
        return [record for record in records if record.request.name == named.request_name]

    async def _records_with(self, needle: bytes) -> list[IssuedCertificateSpec]:
        found = await holding(list(self._records.entries.values()), needle)
        specs = (entry.object.spec for entry in found)
        return [spec for spec in specs if not spec.cluster]


async def holding(entries: list[Entry[T]], needle: bytes) -> list[Entry[T]]:
    """The entries that contain these bytes; searched in a thread, since there may be very many."""

    def found() -> list[Entry[T]]:
        return [entry for entry in entries if needle in entry.tail]

    return await asyncio.to_thread(found)


def refuse(kind: Kind[Any], new: Object, problem: FieldError) -> None:
    raise Invalid(kind.about_kind(new.name), [problem])
