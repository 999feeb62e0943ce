"""revoke-cert: revokes a certificate, signed by its requester or with its own key.

The revocation is created through the API by its holder, as any holder of a certificate may do: see
features/revoking/policies/revocation_permission.py.
"""

import hashlib
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from orchid.features.acme.acme_orders import AcmeOrders
from orchid.features.acme.protocol.problems import AcmeProblem, malformed, unauthorized, unknown
from orchid.features.acme.protocol.replies import Reply
from orchid.features.acme.protocol.requests import VerifiedRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.client.client import Client
from orchid.kernel.credentials.keys import b64url_decode, spki
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import RevokedCertificate
from orchid.kernel.wire.user import UserInfo

# Reasons that a holder may give (RFC 5280, section 5.3.1), by number.
GIVEN: Final = {
    0: "unspecified",
    1: "keyCompromise",
    3: "affiliationChanged",
    4: "superseded",
    5: "cessationOfOperation",
}


class ActingHolder(Protocol):
    """A client of the holder of a certificate; None: of the key, without an account."""

    def __call__(
        self, user: UserInfo | None, source: str, *, sha256: str, serial: str
    ) -> AbstractContextManager[Client]: ...


class Revocation(msgspec.Struct, frozen=True):
    """The payload: a certificate in DER and base64url, and a reason."""

    certificate: str
    reason: int = 0


class RevocationPage:
    """revoke-cert."""

    def __init__(self, orders: AcmeOrders, acting: ActingHolder) -> None:
        self._orders = orders
        self._acting = acting

    async def revoke(self, request: VerifiedRequest) -> Reply:
        payload: Revocation = request.read(Revocation)
        if payload.reason not in GIVEN:
            text = f"the reasons are {', '.join(map(str, GIVEN))}"
            raise AcmeProblem("badRevocationReason", text)
        await self._orders.fresh()
        record = self._record(request, payload.certificate)
        self._require_holder(request, record)
        await self._create(request, record, GIVEN[payload.reason])
        return Reply()

    def _record(self, request: VerifiedRequest, text: str) -> IssuedCertificate:
        try:
            data = b64url_decode(text.encode("ascii"))
            serial = certificates.read(data).parts.serial
        except (ValueError, Refusal):
            raise malformed("certificate must be DER in base64url") from None
        record = self._orders.of_serial(serial)
        signer = request.target.authority.spec.signer_name
        if record is None or record.spec.certificate != data or record.spec.signer_name != signer:
            raise unknown("certificate of this authority")
        return record

    def _require_holder(self, request: VerifiedRequest, record: IssuedCertificate) -> None:
        if request.user is not None:
            if not record.spec.requester.is_same(request.user):
                raise unauthorized("the certificate was issued to another account")
            return
        digest = hashlib.sha256(spki(request.key.key.public)).hexdigest()
        if digest != record.spec.key.sha256:
            raise unauthorized("the request is not signed with the key of the certificate")

    async def _create(
        self, request: VerifiedRequest, record: IssuedCertificate, reason: str
    ) -> None:
        spec = record.spec
        new = CredentialRevocation(
            metadata=ObjectMeta(generate_name=f"acme-{spec.sha256[:32]}-"),
            spec=CredentialRevocationSpec(
                certificate=RevokedCertificate(
                    sha256=spec.sha256,
                    signer_name=spec.signer_name,
                    serial_number=spec.serial_number,
                ),
                reason=reason,
                message="revoked by an ACME client",
            ),
        )
        holder = self._acting(
            request.user, request.source, sha256=spec.sha256, serial=spec.serial_number
        )
        try:
            with holder as client:
                await client.create(new)
        except AlreadyExists:  # the server found another revocation of this certificate
            raise AcmeProblem("alreadyRevoked", "the certificate is revoked already") from None
