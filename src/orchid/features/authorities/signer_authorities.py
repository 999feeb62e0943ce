"""Index of CertificateAuthorities by signer name and by the Secret that holds the key.

Admission, authorization and metrics look up an authority on almost every request for a signer, so
the cost of a look-up must not grow with the number of authorities. The index follows the cache of
CertificateAuthority (kernel/access/cache_index.py) and is as new as the feed.
"""

from typing import Final, NamedTuple

from cryptography import x509

from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    secret_location,
)
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference

_NONE: Final[dict[str, CertificateAuthority]] = {}


class _Keys(NamedTuple):
    """The keys under which the index has an authority."""

    signer: str
    secret: SecretReference


class SignerAuthorities:
    """All current CertificateAuthorities."""

    def __init__(self, cache: KindCache[CertificateAuthority], naming: Naming) -> None:
        self._naming = naming
        self._cleared()
        self._index = CacheIndex(cache, self._changed, self._cleared)

    def of(self, signer: str) -> list[CertificateAuthority]:
        """The authorities of a signer, oldest first: none or one, and several only after a race."""
        self._index.catch_up()
        found = self._by_signer.get(signer, _NONE).values()
        return sorted(found, key=lambda authority: authority.seniority)

    def of_files(self) -> list[CertificateAuthority]:
        """The authorities that only show files."""
        self._index.catch_up()
        return list(self._files.values())

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

    # -- following the cache ------------------------------------------------------------------

    def _cleared(self) -> None:
        self._by_signer: dict[str, dict[str, CertificateAuthority]] = {}
        self._by_secret: dict[SecretReference, set[str]] = {}
        self._keys: dict[str, _Keys] = {}
        self._files: dict[str, CertificateAuthority] = {}

    def _changed(self, key: str, entry: Entry[CertificateAuthority] | None) -> None:
        before = self._keys.pop(key, None)
        if before is not None:
            del self._by_signer[before.signer][key]
            if not self._by_signer[before.signer]:
                del self._by_signer[before.signer]
            self._by_secret[before.secret].discard(key)
            if not self._by_secret[before.secret]:
                del self._by_secret[before.secret]
        self._files.pop(key, None)
        if entry is not None and entry.object.is_file:
            self._files[key] = entry.object
        elif entry is not None:
            authority = entry.object
            keys = _Keys(authority.spec.signer_name, secret_location(authority, self._naming))
            self._keys[key] = keys
            self._by_signer.setdefault(keys.signer, {})[key] = authority
            self._by_secret.setdefault(keys.secret, set()).add(key)
