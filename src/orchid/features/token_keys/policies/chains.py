"""A changed chain of a SigningKey: who may bring it, and below which root.

change                                takes                    the server rejects it unless
spec.chain, below the same root       `activate`               it is for the private key
spec.chain, below another root        also `import` on the     as above, and the key does not sign
                                      key, `sign` and          yet; the key is published again, and
                                      `attest` on the signers  waits until verifiers have the root
status.certificate                    -                        it is below the same root, or in the
                                                               Secret of the authority

Verifiers trust the root of each key in use. A chain below another root is as much as another key:
with it, everything that this root signs is trusted. The first chain of the first key counts as one,
too. The roots are compared as certificates, since names and key identifiers can be chosen.
"""

import asyncio
from typing import Any, Final, NoReturn

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.token_keys.key_source import SPEC
from orchid.features.token_keys.kinds.signing_key import (
    LONGEST_CHAIN,
    PUBLISHED,
    RETIRED,
    STATE,
    SigningKey,
    certificate_errors,
)
from orchid.features.token_keys.policies.authority_material import (
    AuthorityKeysOf,
    PrivateKeys,
    SignerReferences,
    chain_in_secret,
    installed,
    is_below_same_root,
    root_of,
)
from orchid.kernel.access.rights import CallerRights
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import FieldError, Path, forbidden, invalid
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from orchid.kernel.wire.struct import replace

ACTIVATE: Final = "activate"
IMPORT: Final = "import"
CHAIN: Final = SPEC / "chain"
CERTIFICATE: Final = Path() / "status" / "certificate"


class SigningKeyChains(AdmissionPolicy):
    admits = (SigningKey,)

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        *,
        authority_keys: AuthorityKeysOf,
        references: SignerReferences,
        private_keys: PrivateKeys,
    ) -> None:
        """`authority_keys`: those of an authority. `references`: where their private keys are."""
        self._feed = feed
        self._authorities = feed.of(CertificateAuthority)
        self._rights = CallerRights(naming, authorizer)
        self._authority_keys = authority_keys
        self._references = references
        self._private_keys = private_keys

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is None:
            return new
        if request.target.subresource:
            await self._review_certificate(kind, new, old)
            return new
        chain = new.spec.chain
        if chain == old.spec.chain or not old.status.request or len(chain) > LONGEST_CHAIN:
            return new  # unchanged, or the rules of the kind refuse it
        return replace(new, status=await self._installed(request, kind, new, old))

    # -- spec.chain --------------------------------------------------------------------------

    async def _installed(
        self, request: Request, kind: Kind[Any], new: SigningKey, old: SigningKey
    ) -> SigningKeyStatus:
        """The status with the chain that another authority signed."""
        target = replace(request.target, verb=ACTIVATE)
        if not await self._rights.include_any(request, (target,)):
            raise Forbidden(kind.about(new.name), "user not permitted to activate this key")
        await self._feed.fresh()
        signer = self._references.of(old, new.spec.chain)
        try:
            status = await asyncio.to_thread(
                installed, old, signer, self._private_keys, request.now
            )
        except Refusal as refusal:
            _refuse(kind, new, invalid(CHAIN, "<certificate data>", str(refusal)))
        if new.state != old.state:
            # The conditions of a step were about the chain so far.
            _refuse(kind, new, forbidden(STATE, "it does not change together with the chain"))
        if root_of(status.certificate) in self._roots(old):
            return status
        return await self._with_new_root(request, kind, new, old, status)

    def _roots(self, key: SigningKey) -> set[bytes]:
        """The root of a key; before its first chain, those of the other keys in use."""
        if key.status.certificate:
            return {root_of(key.status.certificate)}
        others = self._authority_keys(key.spec.authority)
        return {
            root_of(other.status.certificate)
            for other in others
            if other.state != RETIRED and other.status.certificate
        }

    async def _with_new_root(
        self,
        request: Request,
        kind: Kind[Any],
        new: SigningKey,
        old: SigningKey,
        status: SigningKeyStatus,
    ) -> SigningKeyStatus:
        """The status of a key below a new root: published from now on, as a new key is."""
        await require_import(self._rights, request, kind, new)
        authority = self._authorities.get("", new.spec.authority)
        signers = authority.object.signers if authority else ()
        await self._rights.require_signers(request, kind, new, signers)
        if old.status.certificate and old.state != PUBLISHED:
            text = "verifiers do not have its root yet: create the next key, with this chain"
            _refuse(kind, new, forbidden(CHAIN, text))
        return replace(status, times=replace(status.times, published=None))

    # -- status.certificate ------------------------------------------------------------------

    async def _review_certificate(self, kind: Kind[Any], new: SigningKey, old: SigningKey) -> None:
        """Refuse a chain below another root, unless the owner of a Secret brought it."""
        chain, before = new.status.certificate, old.status.certificate
        if chain == before or any(certificate_errors(new.status)):
            return  # the rules of the kind refuse a chain for another key
        await self._feed.fresh()
        authority = self._authorities.get("", new.spec.authority)
        secret = authority.object.spec.secret_ref if authority else None
        read = self._private_keys.secret
        try:
            if await asyncio.to_thread(is_below_same_root, chain, before):
                return
            if secret and await asyncio.to_thread(chain_in_secret, secret, read) == chain:
                return
            text = "it is below another root, and not the chain in the Secret of the authority"
        except Refusal as refusal:
            text = str(refusal)
        _refuse(kind, new, forbidden(CERTIFICATE, text))


def _refuse(kind: Kind[Any], new: SigningKey, problem: FieldError) -> NoReturn:
    raise Invalid(kind.about_kind(new.name), [problem])


async def require_import(
    rights: CallerRights, request: Request, kind: Kind[Any], key: SigningKey
) -> None:
    """Require the right to bring the key or the root of a SigningKey."""
    target = replace(request.target, verb=IMPORT, name=key.name, subresource="")
    if not await rights.include_any(request, (target,)):
        text = f"user not permitted to import keys for {key.purpose.signs}"
        raise Forbidden(kind.about(key.name), text)
