"""Serial numbers of revoked certificates, grouped by the key that signed them.

Start with `RevokedSerials.put`. Several revocations may name a certificate; its entry in a list has
the date of the first that is not a hold, and the most serious reason. Entries are encoded when they
change, not when a list is signed. Pure: the publisher of lists feeds it.
"""

import heapq
from collections.abc import Iterable
from datetime import datetime

import msgspec

from orchid.features.revocation.kinds.credential_revocation import (
    HOLD,
    CredentialRevocation,
    gravity_of,
)
from orchid.kernel.credentials.x509.revocation_list import (
    LISTED_AFTER_END,
    UNSPECIFIED,
    RevokedCertificates,
)


class SerialOfKey(msgspec.Struct, frozen=True, order=True):
    """A certificate: the group of its issuer (`group_of`), and its serial number."""

    group: str
    serial: int


class ListEntry(msgspec.Struct, frozen=True):
    """Date and reason of a revocation for one certificate, and the certificate's expiry."""

    when: datetime
    reason: str
    end: datetime | None


def group_of(authority_key: str, signer_name: str) -> str:
    """The group of a certificate: the id of the key that signed it.

    The name of the signer, if the certificate has no key identifier or the revocation was stored
    before revocations had one.
    """
    return authority_key or f"signer {signer_name}"


def named_certificate(revocation: CredentialRevocation) -> tuple[SerialOfKey, ListEntry] | None:
    """The certificate that a revocation names; None if it names none of a signer of ours."""
    named, when = revocation.spec.certificate, revocation.metadata.creation_timestamp
    if revocation.spec.cluster or named is None or not named.serial_number or when is None:
        return None
    group = group_of(named.authority_key, named.signer_name)
    entry = ListEntry(when, revocation.spec.reason or UNSPECIFIED, revocation.status.expires)
    return SerialOfKey(group, int(named.serial_number, 16)), entry


class RevokedSerials:
    """All revoked certificates, with encoded entries."""

    def __init__(self) -> None:
        self._encoded: dict[str, RevokedCertificates] = {}
        self._entries: dict[SerialOfKey, dict[str, ListEntry]] = {}
        self._ends: list[tuple[datetime, SerialOfKey]] = []  # a heap

    def put(self, revocation: str, which: SerialOfKey, entry: ListEntry) -> bool:
        """Add the entry of a revocation, by its name, for a certificate; return whether it is
        new.
        """
        entries = self._entries.setdefault(which, {})
        if entries.get(revocation) == entry:
            return False
        if entry.end is not None:
            heapq.heappush(self._ends, (entry.end, which))
        entries[revocation] = entry
        self._encode(which)
        return True

    def drop(self, revocation: str, which: SerialOfKey) -> None:
        """Remove the entry of a revocation: it was lifted."""
        if self._entries.get(which, {}).pop(revocation, None) is not None:
            self._encode(which)

    def forget_ended(self, now: datetime) -> None:
        """Remove certificates that expired so long ago that no list needs them."""
        limit = now - LISTED_AFTER_END
        while self._ends and self._ends[0][0] < limit:
            _, which = heapq.heappop(self._ends)
            ends = [entry.end for entry in self._entries.get(which, {}).values()]
            if all(end is not None and end < limit for end in ends):
                self._entries.pop(which, None)
                self._encode(which)

    def of(self, groups: Iterable[str]) -> RevokedCertificates:
        """A copy of the entries of some groups."""
        certificates = RevokedCertificates()
        for group in groups:
            if group in self._encoded:
                certificates.update(self._encoded[group])
        return certificates

    def _encode(self, which: SerialOfKey) -> None:
        entries = self._entries.get(which)
        if entries:
            final = [
                entry for entry in entries.values() if entry.reason != HOLD
            ] or entries.values()
            gravest = max(final, key=lambda entry: gravity_of(entry.reason))
            encoded = self._encoded.setdefault(which.group, RevokedCertificates())
            encoded.add(which.serial, min(entry.when for entry in final), gravest.reason)
            return
        self._entries.pop(which, None)
        if which.group in self._encoded:
            self._encoded[which.group].remove(which.serial)
