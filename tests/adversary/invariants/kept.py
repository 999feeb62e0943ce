"""An approval that counts again, for a later request, is for the same certificate or less.

What a person approved is read from the certificate that was issued for it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509

from tests.adversary.invariants.contents import alternative_names
from tests.adversary.invariants.signers import BY_SERVER
from tests.adversary.invariants.violation import LATEST_SECONDS, Violation

KEPT = "ApprovalKept"
SLACK_SECONDS = 120.0


class Kept:
    """Certificates that persons approved, by requester and signer."""

    def __init__(self) -> None:
        self._approved: defaultdict[tuple[str, str], list[x509.Certificate]] = defaultdict(list)
        self._doubts: list[tuple[float, tuple[str, str], str, x509.Certificate]] = []

    def issued(
        self, document: Mapping[str, Any], certificate: x509.Certificate, now: float
    ) -> None:
        """A request that has a certificate now."""
        spec, status = document["spec"], document["status"]
        about = spec.get("username", ""), spec["signerName"]
        reasons = {
            one.get("reason") for one in status.get("conditions", ()) if one["type"] == "Approved"
        }
        if KEPT in reasons:
            self._doubts.append((now, about, document["metadata"]["name"], certificate))
        elif not reasons & {*BY_SERVER}:
            self._approved[about].append(certificate)

    def due(self, now: float) -> Iterator[Violation]:
        for doubt in list(self._doubts):
            since, about, name, certificate = doubt
            if now - since > LATEST_SECONDS:
                self._doubts.remove(doubt)
                if not any(_is_within(certificate, one) for one in self._approved[about]):
                    yield Violation("beyond the approval", f"{name} of {about[0]}")


def _is_within(certificate: x509.Certificate, approved: x509.Certificate) -> bool:
    return (
        _names(certificate) <= _names(approved)
        and _usages(certificate) <= _usages(approved)
        and type(certificate.public_key()) is type(approved.public_key())
        and _seconds(certificate) <= _seconds(approved) + SLACK_SECONDS
    )


def _names(certificate: x509.Certificate) -> set[str]:
    named = {attribute.rfc4514_string() for attribute in certificate.subject}
    return named | {str(name.value) for name in alternative_names(certificate) or ()}


def _usages(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return set()
    return {usage.dotted_string for usage in found.value}


def _seconds(certificate: x509.Certificate) -> float:
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return lasts.total_seconds()
