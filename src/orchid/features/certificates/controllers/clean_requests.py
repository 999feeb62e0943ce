"""Delete old certificate requests.

Reads    all certificatesigningrequests, at start and then every hour
Deletes  those settled for an hour, pending or approved without outcome for a day, or expired
Never    checks the status of a condition: its presence suffices
"""

from datetime import datetime, timedelta

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.runtime.expiring import expiring
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.request_conditions import APPROVED, DENIED, FAILED

SETTLED = timedelta(hours=1)
UNSETTLED = timedelta(hours=24)


def is_over(csr: CertificateSigningRequest, now: datetime) -> bool:
    """Whether a request can be deleted."""
    if not csr.status.conditions:
        return _is_older(csr.metadata.creation_timestamp, UNSETTLED, now)
    if _is_condition_older(csr, DENIED, SETTLED, now):
        return True
    if _is_condition_older(csr, FAILED, SETTLED, now):
        return True
    if not csr.has(APPROVED):
        return False
    limit = SETTLED if csr.is_issued else UNSETTLED
    return _is_condition_older(csr, APPROVED, limit, now) or is_expired(csr, now)


def is_expired(csr: CertificateSigningRequest, now: datetime) -> bool:
    """Whether the issued certificate has expired."""
    if not csr.is_issued:
        return False
    try:
        first, *_ = certificates.parse_blocks(csr.status.certificate)
    except (Refusal, ValueError):
        return False  # no readable expiry
    return first.not_valid_after_utc < now


def _is_condition_older(
    csr: CertificateSigningRequest, type_: str, limit: timedelta, now: datetime
) -> bool:
    return any(
        condition.type == type_ and _is_older(condition.last_update_time, limit, now)
        for condition in csr.status.conditions
    )


def _is_older(moment: datetime | None, limit: timedelta, now: datetime) -> bool:
    return moment is not None and now - moment > limit


CONTROLLER = expiring(
    "csrcleaner",
    CertificateSigningRequest,
    every=timedelta(hours=1),
    is_over=is_over,
    rights=lambda naming: (
        rule(("delete", *READ), naming.certificates, ("certificatesigningrequests",)),
    ),
)
