"""When the certificates in a file end.

A chain ends with the first of its certificates. A bundle of authorities lasts as long as one of
them does: the old one of a rotation may end while the new one serves.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from orchid.credentials.files import read_bounded
from orchid.credentials.x509 import certificates


class CertificateFile(msgspec.Struct, frozen=True):
    """A file with certificates that the server uses, and what it uses them for."""

    purpose: str  # one of a few words, fit for a label
    path: Path
    is_bundle: bool = False

    def end(self) -> datetime:
        """When it can no longer be used; raises Refusal if it cannot be read."""
        found = certificates.parse_blocks(read_bounded(self.path))
        ends = [each.not_valid_after_utc for each in found]
        return max(ends) if self.is_bundle else min(ends)
