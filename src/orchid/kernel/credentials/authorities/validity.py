"""Validity of issued certificates: when each begins and ends.

A certificate begins a few minutes before it is issued, because clocks differ, and never ends after
its authority, `end`. An authority that has expired is refused.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from orchid.kernel.credentials.refusals import AuthorityExpired

BACKDATE: Final = timedelta(minutes=5)
# A PodCertificateRequest accepts no certificate that begins five minutes ago.
POD_BACKDATE: Final = timedelta(minutes=2)
POD_SHORTEST: Final = timedelta(hours=1)
# Short lifetimes start now, so that back-dating does not shorten them.
SHORT_LIFE: Final = timedelta(hours=8)


class Validity(NamedTuple):
    """The period of a certificate."""

    not_before: datetime
    not_after: datetime


def leaf_validity(lifetime: timedelta, now: datetime, end: datetime) -> Validity:
    """The validity of a certificate with a lifetime."""
    start = now.replace(microsecond=0)
    not_after = start + lifetime - (BACKDATE if lifetime >= SHORT_LIFE else timedelta())
    return _within(Validity(start - BACKDATE, not_after), now, end)


def pod_validity(lifetime: timedelta, now: datetime, end: datetime) -> Validity:
    """The validity of a certificate of a Pod; the lifetime counts from its beginning."""
    not_before = now.replace(microsecond=0) - POD_BACKDATE
    validity = _within(Validity(not_before, not_before + lifetime), now, end)
    if validity.not_after - not_before < POD_SHORTEST:
        raise AuthorityExpired(f"the signer ends within an hour: NotAfter={end}")
    return validity


def authority_validity(not_after: datetime, now: datetime, end: datetime) -> Validity:
    """The validity of a certificate for another authority, which itself ends `not_after`."""
    return _within(Validity(now.replace(microsecond=0) - BACKDATE, not_after), now, end)


def lifetime_of(not_before: datetime, not_after: datetime) -> timedelta:
    """The requested lifetime of a certificate, from its validity."""
    lasts = not_after - not_before
    return lasts if lasts >= SHORT_LIFE else lasts - BACKDATE


def _within(validity: Validity, now: datetime, end: datetime) -> Validity:
    if end <= validity.not_before:
        raise AuthorityExpired(f"the signer has expired: NotAfter={end}")
    if end <= now:
        raise AuthorityExpired(
            f"refusing to sign a certificate that expired in the past: NotAfter={end}"
        )
    return validity._replace(not_after=min(validity.not_after, end))
