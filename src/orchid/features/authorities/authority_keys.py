"""Index of the SigningKeys of authorities: by authority, and by the Secret of the private key.

A key counts for the authority that owns it, by uid. An earlier authority of the same name may have
left keys, whose private part somebody else has: `of` never returns them.

It follows the cache of SigningKey (kernel/access/cache_index.py) and is as new as the feed.
`select` of features/token_keys/kinds/signing_key.py chooses among the keys of one authority.
"""

from collections.abc import Callable, Container
from typing import Final, NamedTuple

from cryptography import x509

from orchid.features.authorities.kinds.certificate_authority import CLUSTER, CertificateAuthority
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.kinds.signing_key import (
    PUBLISHED,
    RETIRED,
    VERIFYING,
    SigningKey,
    key_location,
)
from orchid.kernel.access.cache_index import CacheIndex
from orchid.kernel.credentials.authorities.issuer_chain import issuer_key_id
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference, belongs_to

_NONE: Final[dict[str, SigningKey]] = {}


class _Indexed(NamedTuple):
    """The keys under which the index has an object."""

    authority: str
    secret: SecretReference
    issuer: str  # the id of the key that signed its certificate; empty for a root


class AuthorityKeyIndex:
    """All current keys of CertificateAuthorities."""

    def __init__(
        self,
        cache: KindCache[SigningKey],
        authorities: KindCache[CertificateAuthority],
        naming: Naming,
        *,
        has_hsm: bool = False,
    ) -> None:
        """`has_hsm`: whether this process can use keys of an HSM."""
        self._has_hsm = has_hsm
        self._keys = cache
        self._authorities = authorities
        self._home = naming.system_namespace
        self.changed: list[Callable[[], None]] = []  # called when `waiting` changes
        self._cleared()
        self._index = CacheIndex(cache, self._take, self._cleared)

    def of(self, authority: str) -> list[SigningKey]:
        """The keys that belong to the authority of a name, in no order."""
        entry = self._authorities.get("", authority)
        if entry is None:
            return []
        return [key for key in self.named(authority) if belongs_to(key, entry.object)]

    def named(self, authority: str) -> list[SigningKey]:
        """The keys that name an authority, with those that another one of that name left."""
        self._index.catch_up()
        return list(self._by_authority.get(authority, _NONE).values())

    def of_files(self) -> list[SigningKey]:
        """The keys of all authorities that only show files; `of` has none of them."""
        self._index.catch_up()
        return list(self._files.values())

    def is_named(self, secret: SecretReference) -> bool:
        """Whether the private key of an authority is in that Secret."""
        self._index.catch_up()
        return secret in self._by_secret

    def issuers(self, authority: str, revoked: Container[str]) -> list[x509.Certificate]:
        """The issuing certificates of the keys that verifiers trust, the signer's first."""
        issuing_certificates = []
        for key in select(self.of(authority), revoked, authority).verifying:
            try:
                issuing_certificates.append(certificates.parse_blocks(key.status.certificate)[0])
            except Refusal:
                continue
        return issuing_certificates

    def lists(self, authority: str) -> list[str]:
        """The names of the revocation lists of an authority's keys, the oldest key's first."""
        found = sorted(self.of(authority), key=lambda key: key.number)
        return [key.status.revocation_list for key in found if key.state != RETIRED]

    def of_list(self, name: str) -> list[SigningKey]:
        """The keys whose revocation list has a name: one, or those of servers' files."""
        self._index.catch_up()
        entry = self._keys.get("", name)
        owners = {name, entry.object.spec.authority} if entry else {name}
        stored = [key for owner in owners for key in self.of(owner)]
        files = [key for key in self._files.values() if key.spec.authority == name]
        return [key for key in (*stored, *files) if key.status.revocation_list == name]

    def below(self, key: SigningKey) -> list[str]:
        """The keys of other authorities whose certificate a key signed."""
        self._index.catch_up()
        return sorted(name.rpartition("/")[2] for name in self._by_issuer.get(key.key_id, ()))

    @property
    def waiting(self) -> list[str]:
        """The ids of keys that may become Active: a server that lists them can use them."""
        self._index.catch_up()
        return sorted(self._waiting.values())

    # -- following the cache ------------------------------------------------------------------

    def _cleared(self) -> None:
        self._by_authority: dict[str, dict[str, SigningKey]] = {}
        self._by_secret: dict[SecretReference, set[str]] = {}
        self._by_issuer: dict[str, set[str]] = {}
        self._waiting: dict[str, str] = {}  # key ids, by the key of the object
        self._files: dict[str, SigningKey] = {}  # those that show files
        self._indexed: dict[str, _Indexed] = {}

    def _take(self, key: str, entry: Entry[SigningKey] | None) -> None:
        before = self._indexed.pop(key, None)
        if before is not None:
            del self._by_authority[before.authority][key]
            if not self._by_authority[before.authority]:
                del self._by_authority[before.authority]
            self._by_secret[before.secret].discard(key)
            if not self._by_secret[before.secret]:
                del self._by_secret[before.secret]
            self._by_issuer.get(before.issuer, set()).discard(key)
        waited = self._waiting.pop(key, "")
        self._files.pop(key, None)
        if entry is not None and (signing_key := entry.object).spec.authority:
            if signing_key.is_file:
                self._files[key] = signing_key
            else:
                self._add(key, signing_key)
        if self._waiting.get(key, "") != waited:
            for notify in self.changed:
                notify()

    def _add(self, key: str, signing_key: SigningKey) -> None:
        secret = key_location(signing_key, self._home)
        issuer = _issuer(signing_key)
        self._indexed[key] = _Indexed(signing_key.spec.authority, secret, issuer)
        if issuer:
            self._by_issuer.setdefault(issuer, set()).add(key)
        self._by_authority.setdefault(signing_key.spec.authority, {})[key] = signing_key
        self._by_secret.setdefault(secret, set()).add(key)
        # Every server issues its own certificate with the key of the platform's authority.
        can_use = (
            self._has_hsm or not signing_key.hsm_label or signing_key.spec.authority != CLUSTER
        )
        if signing_key.state in (PUBLISHED, VERIFYING) and can_use:
            self._waiting[key] = signing_key.key_id


def _issuer(key: SigningKey) -> str:
    """The id of the key above; empty for a root, and for a key that is not in use."""
    if key.state == RETIRED or not key.status.certificate:
        return ""
    try:
        issuing = certificates.parse_blocks(key.status.certificate)[0]
    except Refusal:
        return ""
    issuer = issuer_key_id(issuing).hex()
    return "" if issuer == key.key_id else issuer
