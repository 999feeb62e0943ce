"""Kept approvals: a person's approval of one request, counted for a later one of the same client.

An approval is for the certificate that would be signed, and for nothing else. `excess` compares
what is requested now with what was approved then: equal or less in every part. It is the only
comparison of this kind. Whether the approver may still approve is checked when the approval is
written (features/approving/policies/kept_approvals.py), which finds it by `KeptApproval`.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from orchid.kernel.credentials.x509.requested_certificate import RequestedCertificate
from orchid.kernel.wire.text import timestamp

REASON: Final = "ApprovalKept"
_MESSAGE: Final = re.compile(
    r"(.+) approved the request (\S+) for the same names at (\S+), certificate ([0-9a-f]+)\."
)


class ApprovedTerms(msgspec.Struct, frozen=True):
    """A requester and the certificate for them, as approved or as requested."""

    username: str
    uid: str
    signer_name: str
    certificate: RequestedCertificate  # its lifetime counts from now to its end


def excess(requested: ApprovedTerms, approved: ApprovedTerms) -> str:
    """The first part in which a request asks for more than was approved; "" for none."""
    new, old = requested.certificate, approved.certificate
    if (requested.username, requested.uid) != (approved.username, approved.uid):
        return "requester"
    if requested.signer_name != approved.signer_name:
        return "signer"
    if not _names(new) <= _names(old):
        return "names"
    if _subject(new) not in (set(), _subject(old)):
        return "subject"  # without one of two common names, it is another user
    if not set(new.usages) <= set(old.usages):
        return "usages"
    if new.key != old.key:
        return "key"
    if new.lifetime is None or old.lifetime is None or new.lifetime > old.lifetime:
        return "lifetime"
    return ""


def _subject(certificate: RequestedCertificate) -> set[tuple[str, str | None]]:
    return {(part.oid, part.value) for part in certificate.subject.attributes}


def _names(certificate: RequestedCertificate) -> set[tuple[str, str]]:
    return {
        *(("dns", name.lower()) for name in certificate.dns_names),
        *(("ip", str(address)) for address in certificate.ip_addresses),
        *(("email", address) for address in certificate.email_addresses),
        *(("uri", uri) for uri in certificate.uris),
    }


class KeptApproval(NamedTuple):
    """A person's approval that led to a certificate."""

    approver: str
    request: str
    time: datetime
    certificate: str  # the name of its record

    def __str__(self) -> str:
        """The message of the condition."""
        text = f"{self.approver} approved the request {self.request} for the same names at "
        return f"{text}{timestamp(self.time)}, certificate {self.certificate}."


def kept_approval(reason: str, message: str) -> KeptApproval | None:
    """The approval in the reason and message of a condition, or None."""
    match = _MESSAGE.fullmatch(message) if reason == REASON else None
    try:
        return match and KeptApproval(
            match[1], match[2], datetime.fromisoformat(match[3]).astimezone(UTC), match[4]
        )
    except ValueError:
        return None
