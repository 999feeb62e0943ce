"""The CA certificates of the platform signers, from their files.

The server only needs the certificates, to recognise what such a CA issued; the keys belong to the
signing controller, which may run elsewhere. A certificate that was replaced while the server runs
still counts: the controller may have just signed with it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509

from orchid.kernel.credentials.files import Reloading, read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates


class PlatformIssuers:
    """The issuing certificates by signer name, from the current and previous files."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        followed = {path: _Followed(path) for path in set(files.values())}
        self._followed = {signer: followed[path] for signer, path in files.items()}

    def of(self, signer: str) -> Sequence[x509.Certificate]:
        """The newest first; none if the signer has no authority here."""
        found = self._followed.get(signer)
        return found.certificates() if found else ()


class _Followed:
    """The first certificate of one file, followed as the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Reloading[x509.Certificate] | None = None
        self._seen: list[x509.Certificate] = []

    def certificates(self) -> Sequence[x509.Certificate]:
        try:
            self._file = self._file or Reloading([self._path], self._load)
        except Refusal:
            return ()  # the controller that would sign with it reports the problem
        self._file.current()
        return self._seen

    def _load(self) -> x509.Certificate:
        found = certificates.parse_blocks(read_bounded(self._path))[0]
        if found not in self._seen:
            self._seen.insert(0, found)
        return found
