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
        request = signing_request.parse(data)
    except Refusal as refusal:
        return DecodedRequest(problem=str(refusal))
    return DecodedRequest(
        subject=request.subject.escaped_text,
        names=(
            *(f"DNS {name}" for name in request.dns_names),
            *(f"IP {address}" for address in request.ip_addresses),
            *(f"email {address}" for address in request.email_addresses),
            *(f"URI {uri}" for uri in request.uris),
        ),
        key=request.key_algorithm,
        weakness=request.weakness or "",
        others=request.other_names,
    )


def decode_certificate(chain: bytes) -> DecodedCertificate | None:
    """The first certificate of a PEM chain, or a DER certificate; None if it cannot be read."""
    try:
        if not chain.lstrip().startswith(b"-----"):
            chain = ssl.DER_cert_to_PEM_cert(chain).encode()
        facts = read_issued(chain)
    except (Refusal, ValueError, StopIteration):
        return None
    return DecodedCertificate(
        serial=facts.serial,
        subject=facts.subject,
        issuer=facts.certificate.issuer.rfc4514_string(),
        names=facts.names,
        usages=facts.usages,
        key=facts.key_algorithm,
        not_before=_text(facts.not_before),
        not_after=_text(facts.not_after),
        sha256=facts.sha256,
        pem=pem_of(facts.certificate),
    )


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def anchors_of(bundle: str) -> list[DecodedCertificate]:
    """Every certificate of a trust bundle that can be read."""
    try:
        anchors = certificates.parse_blocks(bundle.encode())
    except (Refusal, ValueError):
        return []
    decoded = (decode_certificate(pem_of(anchor).encode()) for anchor in anchors)
    return [anchor for anchor in decoded if anchor is not None]


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
