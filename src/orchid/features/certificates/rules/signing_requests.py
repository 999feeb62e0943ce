"""Rules of a CertificateSigningRequest: the request, its usages and lifetime, and the certificate.

Each is about one field. What may change when, and who may change it, is in
features/certificates/kinds/certificate_signing_request.py.
"""

from collections.abc import Iterator
from typing import Final

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.wire.fields import FieldError, Path, duplicate, invalid, unsupported

SPEC: Final = Path() / "spec"
USAGES, SIGNER_NAME = SPEC / "usages", SPEC / "signerName"
CERTIFICATE: Final = Path() / "status" / "certificate"

SHORTEST_LIFETIME: Final = 600


def request_errors(request: bytes | None) -> Iterator[FieldError]:
    try:
        signing_request.parse_once(request or b"")
    except Refusal as refusal:
        yield invalid(SPEC / "request", request, str(refusal))


def usage_errors(usages: tuple[str, ...]) -> Iterator[FieldError]:
    for index, usage in enumerate(usages):
        if usage not in ALL_USAGES:
            yield unsupported(USAGES[index], usage, ALL_USAGES)
    seen: set[str] = set()
    for index, usage in enumerate(usages):
        if usage in seen:
            yield duplicate(USAGES[index], usage)
        seen.add(usage)


def lifetime_errors(seconds: int | None) -> Iterator[FieldError]:
    if seconds is not None and seconds < SHORTEST_LIFETIME:
        text = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid(SPEC / "expirationSeconds", seconds, text)


def certificate_errors(certificate: bytes) -> Iterator[FieldError]:
    """Validate the format of an issued certificate; the signer ensures that it fits the request."""
    if not certificate:
        return
    try:
        certificates.parse_blocks(certificate)
    except Refusal as refusal:
        yield invalid(CERTIFICATE, "<certificate data>", str(refusal))
