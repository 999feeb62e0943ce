"""Certificate requests and certificates, decoded from their signed bytes."""

import base64
import binascii
import datetime
import json
import ssl
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.credentials.x509.issued_facts import read_issued


class DecodedRequest(msgspec.Struct, frozen=True):
    """The content of a certificate request."""

    subject: str = ""
    names: tuple[str, ...] = ()
    key: str = ""
    weakness: str = ""
    others: int = 0  # names of other kinds, which no signer copies
    problem: str = ""  # why it cannot be read


class DecodedCertificate(msgspec.Struct, frozen=True):
    """The content of a certificate."""

    serial: str
    subject: str
    issuer: str
    names: tuple[str, ...]
    usages: tuple[str, ...]
    key: str
    not_before: str
    not_after: str
    sha256: str
    pem: str


def bytes_of(value: Any) -> bytes:
    """Decoded base64; empty if it is malformed."""
    try:
        return base64.b64decode(str(value or ""))
    except (binascii.Error, ValueError):
        return b""


def decode_request(data: bytes) -> DecodedRequest:
    try:
        found = signing_request.parse(data)
    except Refusal as refusal:
        return DecodedRequest(problem=str(refusal))
    return DecodedRequest(
        subject=found.subject.escaped_text,
        names=(
            *(f"DNS {name}" for name in found.dns_names),
            *(f"IP {address}" for address in found.ip_addresses),
            *(f"email {address}" for address in found.email_addresses),
            *(f"URI {uri}" for uri in found.uris),
        ),
        key=found.key_algorithm,
        weakness=found.weakness or "",
        others=found.other_names,
    )


def decode_certificate(chain: bytes) -> DecodedCertificate | None:
    """The first certificate of a PEM chain, or a DER certificate; None if it cannot be read."""
    try:
        if not chain.lstrip().startswith(b"-----"):
            chain = ssl.DER_cert_to_PEM_cert(chain).encode()
        found = read_issued(chain)
    except (Refusal, ValueError, StopIteration):
        return None
    return DecodedCertificate(
        serial=found.serial,
        subject=found.subject,
        issuer=found.certificate.issuer.rfc4514_string(),
        names=found.names,
        usages=found.usages,
        key=found.key_algorithm,
        not_before=_text(found.not_before),
        not_after=_text(found.not_after),
        sha256=found.sha256,
        pem=pem_of(found.certificate),
    )


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def anchors_of(bundle: str) -> list[DecodedCertificate]:
    """Every certificate of a trust bundle that can be read."""
    try:
        found = certificates.parse_blocks(bundle.encode())
    except (Refusal, ValueError):
        return []
    decoded = (decode_certificate(pem_of(one).encode()) for one in found)
    return [one for one in decoded if one is not None]


def _text(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat()


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a token, not verified; empty if it has none."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
