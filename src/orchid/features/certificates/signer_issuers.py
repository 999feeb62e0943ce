"""SignerIssuers: the CAs of every signer of this server, from files and from objects."""

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.authorities.platform_issuers import PlatformIssuers
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.certificates.policies.record_issued import Issuers
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.context import Context
from orchid.kernel.credentials.authorities.issuer_chain import subject_key_id
from orchid.kernel.credentials.x509.trust.verified_chain import key_fingerprint


class SignerIssuers:
    """The issuing certificates and keys of a signer."""

    def __init__(self, context: Context) -> None:
        self._platform_signers = context.naming.issuing_signers
        self._files = context.port(PlatformIssuers)
        self._platform = context.optional(PlatformAuthority)
        self._authorities = context.port(SignerAuthorities)
        self._keys = context.port(AuthorityKeyIndex)
        self._revocations = context.port(Revocations)

    def of(self, signer: str) -> Issuers | None:
        """The CAs of a signer; None if it is not one of this server's."""
        if signer in self._platform_signers:
            if self._platform is None or not self._platform.is_stored:
                return Issuers(self._files.of(signer), is_platform=True)
            return Issuers(self._platform.issuers, is_platform=True)
        authorities = self._authorities.of(signer)
        if not authorities:
            return None
        name = authorities[0].name
        issuers = self._keys.issuers(name, self._revocations.revoked_keys())
        if not self._keys.of(name):  # of an earlier version, until it has objects
            issuer = self._authorities.issuer(signer)
            issuers = [issuer] if issuer else []
        return Issuers(issuers, is_platform=False)

    def keys_of(self, signer: str) -> set[str]:
        """The keys of a signer."""
        issuers = self.of(signer)
        return {key_fingerprint(each) for each in issuers.certificates} if issuers else set()

    def key_ids_of(self, signer: str) -> set[str]:
        """The key identifiers of a signer, in hex."""
        issuers = self.of(signer)
        return {subject_key_id(each).hex() for each in issuers.certificates} if issuers else set()

    def signs_for(self, signer: str) -> bool:
        """Whether a signer is one of this server's, by its name."""
        return signer in self._platform_signers or bool(self._authorities.of(signer))
