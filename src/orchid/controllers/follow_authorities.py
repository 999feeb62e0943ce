"""Follow the custom authorities: the authority of a signer, and its key.

Reads   certificateauthorities, and the Secret of a signing one
Never   writes: keep_authorities.py creates keys and reports problems

Start with `AuthorityFollower.of`, for terms, and `read_authority`, for the key. A key that the
server created is in a Secret of the system namespace named after the uid of its authority; any
other is in the Secret of `secretRef`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from orchid.approval.case import SignerTerms
from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.controllers.runtime.context import Signer, list_url
from orchid.controllers.runtime.loop import TryAgain
from orchid.credentials.authorities.authority import Authority
from orchid.credentials.refusals import AuthorityUnusable
from orchid.kinds.certificate_authority import (
    CertificateAuthority,
    profile,
    secret_location,
)
from orchid.kinds.secret import Secret
from orchid.wire.naming import Naming

AUTHORITIES = ListSelection(CertificateAuthority)
CERTIFICATE, KEY = "tls.crt", "tls.key"


class SecretMissing(AuthorityUnusable):
    """The Secret with the authority's key does not exist."""


class AuthoritiesBySigner:
    """Index of authorities by signer name."""

    def __init__(self) -> None:
        self._by_signer: dict[str, dict[str, CertificateAuthority]] = {}

    def take(self, event: WatchedChange[CertificateAuthority]) -> None:
        """Apply one event of a watch."""
        authority = event.object
        claims = self._by_signer.setdefault(authority.spec.signer_name, {})
        if event.type != DELETED:
            claims[authority.name] = authority
            return
        claims.pop(authority.name, None)
        if not claims:
            del self._by_signer[authority.spec.signer_name]

    def claims(self, signer: str) -> list[CertificateAuthority]:
        """The authorities of a signer, oldest first: several only after a race."""
        found = self._by_signer.get(signer)
        return sorted(found.values(), key=lambda one: one.seniority) if found else []

    @property
    def signers(self) -> list[str]:
        return list(self._by_signer)

    def clear(self) -> None:
        self._by_signer.clear()


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
        return [one for one in found if one is not None and one.is_ready]

    def terms(self, signer: str) -> SignerTerms | None:
        """The terms of a signer; None if it has no custom authority."""
        authority = self.of(signer)
        if authority is None:
            self._terms.pop(signer, None)
            return None
        version = authority.metadata.resource_version
        known = self._terms.get(signer)
        if known is None or known[0] != version:
            # Its maximum lifetime is in the profile.
            known = version, SignerTerms(profile(authority), timedelta.max)
            self._terms[signer] = known
        return known[1]

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
    """The authorities that are Ready, with their keys, for the signing controller."""

    def __init__(
        self, client: Client, names: Naming, authorities: AuthorityFollower, crl_url: str = ""
    ) -> None:
        self._client = client
        self._names = names
        self._authorities = authorities
        self._crl_url = crl_url
        self._read: dict[str, Authority] = {}

    async def signer(self, name: str) -> Signer | None:
        """The signer of a custom authority; None if it has no authority that is Ready."""
        found = self._authorities.of(name)
        if found is None or not found.is_ready:
            self._read.pop(name, None)
            return None
        shown = found.status.certificate.encode()
        known = self._read.get(name)
        if known is None or known.chain_pem != shown:
            known = await read_authority(self._client, found, self._names)
            if known.chain_pem != shown:
                raise TryAgain(f"the Secret of {found.name} is newer than its status")
            self._read[name] = known
        terms = self._authorities.terms(name)
        assert terms is not None
        authority = known
        return Signer(
            terms.profile,
            lambda: authority,
            list_name=found.name,
            crl_url=list_url(self._crl_url, found.name),
        )


async def read_authority(
    client: Client, authority: CertificateAuthority, names: Naming
) -> Authority:
    """The authority with its key; raises a Refusal with the problem."""
    place = secret_location(authority, names)
    secret = await client.find(Secret, place.name, place.namespace)
    if secret is None:
        raise SecretMissing(f"there is no Secret {place}, which should hold the key")
    chain, key = secret.data.get(CERTIFICATE, b""), secret.data.get(KEY, b"")
    # Verifying a chain of RSA keys takes many milliseconds.
    return await asyncio.to_thread(Authority.load_untrusted, chain, key)
