"""Validity of the certificates in a file.

A chain expires with the first of its certificates, and is valid when all are. A bundle of CAs lasts
as long as one of them: the old one of a rotation may expire while the new one serves.
"""

from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509

from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.x509 import certificates


class CertificateFile(msgspec.Struct, frozen=True):
    """A certificate file of the server, and its purpose."""

    purpose: str  # from a closed set, for a metric label
    path: Path
    is_bundle: bool = False

    def end(self) -> datetime:
        """The expiry; raises Refusal if the file cannot be parsed."""
        ends = [each.not_valid_after_utc for each in self._read()]
        return max(ends) if self.is_bundle else min(ends)

    def start(self) -> datetime:
        """The time from which it is valid; raises Refusal if the file cannot be parsed."""
        starts = [each.not_valid_before_utc for each in self._read()]
        return min(starts) if self.is_bundle else max(starts)

    def _read(self) -> list[x509.Certificate]:
        return certificates.parse_blocks(read_bounded(self.path))
