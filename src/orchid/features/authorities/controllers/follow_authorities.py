"""Follow the custom authorities: the authority of a signer, and its keys.

Reads   certificateauthorities; the SigningKeys and Secrets of those that sign
Never   writes: keep_authorities.py creates keys and reports problems

Start with `AuthorityFollower.of`, for terms, and `AuthorityKeys.signer`, for the key. The status of
an authority names the keys that are in use, the signer first; keep_authorities.py selects them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple

from orchid.features.approval.case import SignerTerms
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    profile,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    SigningKey,
    authority_public_key,
    key_location,
)
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.cross_certificates import cross_chain
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import AuthorityUnusable, KeyMismatch
from orchid.kernel.credentials.x509.revocation_list import list_url
from orchid.kernel.runtime.context import Signer
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.authority_status import AuthorityKeyReference
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference, belongs_to

AUTHORITIES = ListSelection(CertificateAuthority)
CERTIFICATE, KEY = "tls.crt", "tls.key"
SIGNING = (ACTIVE, PUBLISHED)


class LoadedKey(NamedTuple):
    """A key of an authority with its private key, and what its SigningKey says."""

    authority: Authority
    state: str
    list_name: str


class _Loaded(NamedTuple):
    """The key of a signer, and the part of the authority's status from which it was loaded."""

    shown: tuple[str, str, str]
    key: LoadedKey


class SecretMissing(AuthorityUnusable):
    """The Secret with the authority's key does not exist."""


class AuthoritiesBySigner:
    """Index of authorities by signer name, without those that only show files."""

    def __init__(self) -> None:
        self._by_signer: dict[str, dict[str, CertificateAuthority]] = {}
        self._by_name: dict[str, CertificateAuthority] = {}
        self._below: dict[str, set[str]] = {}  # names of intermediates by that of the parent
        self.with_trust_domain: set[str] = set()

    def take(self, event: WatchedChange[CertificateAuthority]) -> None:
        """Apply one event of a watch."""
        authority = event.object
        self.with_trust_domain.discard(authority.name)
        if event.type != DELETED and not authority.is_file:
            if authority.spec.trust_domain:
                self.with_trust_domain.add(authority.name)
            self._by_name[authority.name] = authority
            if parent := _parent_name(authority):
                self._below.setdefault(parent, set()).add(authority.name)
            for signer in authority.signers:
                self._by_signer.setdefault(signer, {})[authority.name] = authority
            return
        self._by_name.pop(authority.name, None)
        self._below.get(_parent_name(authority), set()).discard(authority.name)
        for signer in authority.signers:
            claims = self._by_signer.get(signer, {})
            claims.pop(authority.name, None)
            if not claims:
                self._by_signer.pop(signer, None)

    def claims(self, signer: str) -> list[CertificateAuthority]:
        """The authorities of a signer, oldest first: several only after a race."""
        found = self._by_signer.get(signer)
        return sorted(found.values(), key=lambda one: one.seniority) if found else []

    def parent(self, below: CertificateAuthority) -> CertificateAuthority | None:
        """The authority that has the name of the parent: `parent_problem` says if it is another."""
        return self._by_name.get(_parent_name(below))

    def below(self, name: str) -> list[str]:
        """The names of the authorities that name a parent."""
        return list(self._below.get(name, ()))

    @property
    def signers(self) -> list[str]:
        return list(self._by_signer)

    def clear(self) -> None:
        self._by_signer.clear()
        self._by_name.clear()
        self._below.clear()
        self.with_trust_domain.clear()


def _parent_name(authority: CertificateAuthority) -> str:
    return authority.spec.parent.authority if authority.spec.parent else ""


class AuthorityFollower:
    """The current authorities, by signer name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._index = AuthoritiesBySigner()
        self._terms: dict[str, tuple[str, SignerTerms]] = {}
        self.all_loaded = asyncio.Event()

    def of(self, signer: str) -> CertificateAuthority | None:
        """The authority of a signer; of two created at the same time, the first.

        Raises TryAgain until every authority is loaded.
        """
        if not self.all_loaded.is_set():
            raise TryAgain("not every certificate authority is known yet")
        claims = self._index.claims(signer)
        return claims[0] if claims else None

    @property
    def ready(self) -> list[CertificateAuthority]:
        """The authorities that can sign."""
        found = (self.of(signer) for signer in self._index.signers)
        return list({one.name: one for one in found if one is not None and one.is_ready}.values())

    @property
    def any_trust_domain(self) -> bool:
        """Whether an authority issues X.509-SVIDs."""
        return bool(self._index.with_trust_domain)

    def terms(self, signer: str) -> SignerTerms | None:
        """The terms of a signer; None if it has no custom authority."""
        authority = self.of(signer)
        if authority is None or authority.is_platform:
            self._terms.pop(signer, None)
            return None
        version = authority.metadata.resource_version
        cached = self._terms.get(signer)
        if cached is None or cached[0] != version:
            # Its maximum lifetime is in the profile.
            cached = version, SignerTerms(profile(authority), timedelta.max)
            self._terms[signer] = cached
        return cached[1]

    def forget(self) -> None:
        """Clear the index before a new list."""
        self.all_loaded.clear()
        self._index.clear()
        self._terms.clear()

    async def follow(self, changed: Callable[[CertificateAuthority], None]) -> None:
        """Follow all of them; `changed` is called for each change, not for the first list."""
        async with contextlib.aclosing(self._client.follow(AUTHORITIES)) as batches:
            async for batch in batches:
                for event in batch:
                    self._index.take(event)
                    if self.all_loaded.is_set():
                        changed(event.object)
                if not batch:
                    self.all_loaded.set()


class AuthorityKeys:
    """The authorities that are Ready, with their keys, for the signing controllers."""

    def __init__(
        self,
        client: Client,
        naming: Naming,
        authorities: AuthorityFollower,
        crl_url: str = "",
        *,
        platform: Mapping[str, Profile] = MappingProxyType({}),
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        """`platform`: the profiles of those signers of the platform that are signed for."""
        self._hsm = hsm
        self._client = client
        self._naming = naming
        self._authorities = authorities
        self._platform = platform
        self._crl_url = crl_url
        self._read: dict[str, _Loaded] = {}  # by signer

    async def signer(self, name: str) -> Signer | None:
        """The signer of an authority; None if it has no authority that is Ready."""
        record = self._authorities.of(name)
        profile = self._profile(name, record)
        if record is None or profile is None or not record.is_ready:
            self._read.pop(name, None)
            return None
        if not record.status.keys:
            raise TryAgain(f"the keys of {record.name} are not known yet")
        # Somebody may write the status: it says which key signs, and the key says the rest.
        status = record.status
        shown = status.certificate, status.cross_certificates, status.keys[0].name
        loaded = self._read.get(name)
        if loaded is None or loaded.shown != shown:
            key = await self.load(record, status.keys[0], status.cross_certificates)
            if key.authority.chain_pem != status.certificate.encode():
                raise TryAgain(f"the key of {record.name} is newer than its status")
            if key.state not in SIGNING:
                raise TryAgain(f"{status.keys[0].name}, which should sign, is {key.state}")
            loaded = self._read[name] = _Loaded(shown, key)
        authority, list_name = loaded.key.authority, loaded.key.list_name
        return Signer(
            profile,
            lambda: authority,
            list_name=list_name,
            crl_url=list_url(self._crl_url, list_name),
        )

    def _profile(self, name: str, found: CertificateAuthority | None) -> Profile | None:
        if found is not None and found.is_platform:
            return self._platform.get(name)
        terms = self._authorities.terms(name)
        return terms.profile if terms else None

    async def load(
        self, owner: CertificateAuthority, named: AuthorityKeyReference, cross: str = ""
    ) -> LoadedKey:
        """One key of an authority; raises a Refusal with the problem."""
        key = await self._client.find(SigningKey, named.name)
        if key is None or not belongs_to(key, owner) or key.state == RETIRED:
            raise TryAgain(f"{owner.name} has no SigningKey {named.name} in use")
        authority = await read_authority(self._client, key, self._naming, cross, hsm=self._hsm)
        return LoadedKey(authority, key.state, key.status.revocation_list)


async def read_authority(
    client: Client, key: SigningKey, naming: Naming, cross: str = "", *, hsm: KeysOfHsm
) -> Authority:
    """The authority of a key, with its private key; raises a Refusal with the problem.

    `cross`: certificates that issued chains contain besides.
    """
    if key.hsm_label:
        return await asyncio.to_thread(_in_hsm, key, cross, hsm)
    location = key_location(key, naming.system_namespace)
    # The chain of a key that another authority certified is in its object.
    chain = key.status.certificate.encode() if key.status.request else b""
    authority = await read_secret(client, location, cross, chain)
    # The issuer of a certificate chooses its key identifier: that proves nothing.
    if authority_public_key(authority.chain_pem.decode("ascii")) != key.status.public_key:
        raise KeyMismatch(f"the Secret {location} has another key than {key.name}")
    return authority


def _in_hsm(key: SigningKey, cross: str, hsm: KeysOfHsm) -> Authority:
    return Authority.of_key(key.status.certificate.encode(), hsm.key(key.hsm_label), cross=cross)


async def read_secret(
    client: Client, location: SecretReference, cross: str = "", chain: bytes = b""
) -> Authority:
    """The authority in a Secret, by its own chain or by another; raises a Refusal."""
    secret = await client.find(Secret, location.name, location.namespace)
    if secret is None:
        raise SecretMissing(f"there is no Secret {location}, which should hold the key")
    chain, private = chain or secret.data.get(CERTIFICATE, b""), secret.data.get(KEY, b"")
    # Verifying a chain of RSA keys takes many milliseconds.
    return await asyncio.to_thread(Authority.load_untrusted, chain, private, cross=cross)


def cross_certificates(chosen: KeySelection) -> str:
    """Certificates by which verifiers that trust only an earlier key accept the signer, in PEM."""
    earlier = {key.key_id: key.certified for key in chosen.verifying}
    return cross_chain(chosen.signer.certified, earlier) if chosen.signer else ""
