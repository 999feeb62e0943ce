"""Index of CertificateAuthorities by signer name and by the Secret that holds the key.

Admission, authorization and metrics look up an authority on almost every request for a signer, so
the cost of a look-up must not grow with the number of authorities. The index follows the cache of
CertificateAuthority (kernel/access/cache_index.py) and is as new as the feed.
"""

from collections.abc import Iterator
from typing import Final

from cryptography import x509

from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    secret_location,
)
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference

FILES: Final = "files"
_NONE: Final[dict[str, CertificateAuthority]] = {}


class SignerAuthorities:
    """All current CertificateAuthorities."""

    def __init__(self, cache: KindCache[CertificateAuthority], naming: Naming) -> None:
        self._naming = naming
        self._by_signer: Table[str, CertificateAuthority] = {}
        self._by_secret: Table[SecretReference, None] = {}
        self._files: Table[str, CertificateAuthority] = {}
        self._index = KeyedIndex(cache, self._rows)

    def of(self, signer: str) -> list[CertificateAuthority]:
        """The authorities of a signer, oldest first: none or one, and several only after a race."""
        self._index.catch_up()
        found = self._by_signer.get(signer, _NONE).values()
        return sorted(found, key=lambda authority: authority.seniority)

    def of_files(self) -> list[CertificateAuthority]:
        """The authorities that only show files."""
        self._index.catch_up()
        return list(self._files.get(FILES, _NONE).values())

    def is_named(self, secret: SecretReference) -> bool:
        """Whether an authority has its key in that Secret."""
        self._index.catch_up()
        return secret in self._by_secret

    def issuer(self, signer: str) -> x509.Certificate | None:
        """The issuing certificate of a signer; None while its authority has none."""
        authorities = self.of(signer)
        if not authorities or not authorities[0].status.certificate:
            return None
        try:
            return certificates.parse_blocks(authorities[0].status.certificate)[0]
        except Refusal:
            return None

    def _rows(self, key: str, entry: Entry[CertificateAuthority]) -> Iterator[Row]:
        authority = entry.object
        if authority.is_file:
            yield self._files, FILES, authority
        else:
            yield self._by_signer, authority.spec.signer_name, authority
            yield self._by_secret, secret_location(authority, self._naming), None
