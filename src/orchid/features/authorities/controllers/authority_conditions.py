"""Conditions of a CertificateAuthority: the problems that Ready names, and its certificate.

The classes are problems: the name of one is the reason of the condition Ready. `of_certificate` has
the conditions that follow from the certificate and the time alone, `turning_points` when they
change; `of_relations` has those about objects that belong to somebody else.
keep_authorities.py writes them, and features/authorities/file_authorities.py those of files.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from cryptography.x509 import Certificate

from orchid.features.authorities.kinds.certificate_authority import (
    EXPIRING,
    SIGNS_LISTS,
    CertificateAuthority,
)
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.credentials.authorities.issuer_chain import may_sign_lists
from orchid.kernel.credentials.refusals import AuthorityUnusable
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.wire.conditions import FALSE, TRUE, Condition
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.text import timestamp

LAST_THIRD: Final = "LastThird"
FAR_OFF: Final = "FarOff"
BUNDLE_TAKEN: Final = "BundleTaken"
PARENT_REPLACED: Final = "ParentReplaced"
ABNORMAL: Final = frozenset({EXPIRING, BUNDLE_TAKEN, PARENT_REPLACED})  # True if there is a problem


class SignerTaken(AuthorityUnusable):
    """An older authority has the same signer name."""


class KeyLost(AuthorityUnusable):
    """The Secret with a key that the server created is gone."""


class NoKey(AuthorityUnusable):
    """No key of the authority may sign."""


class ChainMissing(AuthorityUnusable):
    """An authority elsewhere has not signed the request yet."""


class KeyNotSealed(AuthorityUnusable):
    """The store would hold the key in clear text, which is not explicitly allowed."""


class CertificateRevoked(AuthorityUnusable):
    """A certificate of the chain below the root is revoked: nothing below it is accepted."""


def of_certificate(chain: str, now: datetime) -> list[Condition]:
    """Conditions that follow from the certificate of an authority; none without a certificate."""
    if not chain:
        return []
    links = certificates.parse_blocks(chain)
    return [_expiring(links, now), _signs_lists(links[0])]


def of_relations(authority: CertificateAuthority, problems: Mapping[str, str]) -> list[Condition]:
    """Problems with objects that have a name of the authority's, or of its parent, and are others.

    `problems`: their messages by type; empty without a problem, which is reported only if there was
    one before.
    """
    reported = {condition.type for condition in authority.status.conditions}
    return [
        Condition(
            type=type_,
            status=TRUE if text else FALSE,
            reason=type_ if text else "Resolved",
            message=text,
        )
        for type_, text in problems.items()
        if text or type_ in reported
    ]


def bundle_problem(authority: CertificateAuthority, bundle: PublishedBundle | None) -> str:
    """Why the PublishedBundle of an authority's name is not that of the authority."""
    # Nobody owns the bundles of the platform: the server creates them at its first start.
    if bundle is None or authority.is_platform or belongs_to(bundle, authority):
        return ""
    return (
        f"The PublishedBundle {bundle.name} belongs to somebody else: /trust/{bundle.name}.pem is "
        "not from this authority. Delete it; the server creates its own."
    )


def turning_points(chain: str) -> Iterator[datetime]:
    """The times at which the conditions of an authority change by themselves."""
    for link in certificates.parse_blocks(chain) if chain else ():
        begin, end = link.not_valid_before_utc, link.not_valid_after_utc
        yield from (begin, begin + (end - begin) * 2 / 3, end)


def _signs_lists(certificate: Certificate) -> Condition:
    """Whether the authority may sign revocation lists."""
    if may_sign_lists(certificate):
        return Condition(
            type=SIGNS_LISTS,
            status=TRUE,
            reason="Permitted",
            message="Revoked certificates are in its revocation list.",
        )
    return Condition(
        type=SIGNS_LISTS,
        status=FALSE,
        reason="NoCRLSign",
        message="There is no revocation list: the key usage of its certificate lacks cRLSign.",
    )


def _expiring(links: Sequence[Certificate], now: datetime) -> Condition:
    """Whether the last third of an authority's lifetime has begun."""
    link = min(links, key=lambda certificate: certificate.not_valid_after_utc)
    begin, end = link.not_valid_before_utc, link.not_valid_after_utc
    is_late = now >= begin + (end - begin) * 2 / 3
    text = f"{'Ended' if now >= end else 'Ends'} at {timestamp(end)}."
    status, reason = (TRUE, LAST_THIRD) if is_late else (FALSE, FAR_OFF)
    return Condition(type=EXPIRING, status=status, reason=reason, message=text)
