"""Expiry of the certificates in a file.

A chain expires with the first of its certificates. A bundle of CAs lasts as long as one of them:
the old one of a rotation may expire while the new one serves.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from orchid.credentials.files import read_bounded
from orchid.credentials.x509 import certificates


class CertificateFile(msgspec.Struct, frozen=True):
    """A certificate file of the server, and its purpose."""

    purpose: str  # from a closed set, for a metric label
    path: Path
    is_bundle: bool = False

    def end(self) -> datetime:
        """The expiry; raises Refusal if the file cannot be parsed."""
        found = certificates.parse_blocks(read_bounded(self.path))
        ends = [each.not_valid_after_utc for each in found]
        return max(ends) if self.is_bundle else min(ends)
