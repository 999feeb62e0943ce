"""A signer has one authority, created by a user who may sign for it, with a matching key.

Start with `OwnSigners.review`. Our controllers sign and attest for the signer of every
CertificateAuthority, so a user who creates one, or changes its terms, needs these permissions, for
an intermediate also those for the signer of its parent; a user who names a Secret must be allowed
to read it. The status of an intermediate has the uid of its parent from the beginning. The content
of the Secret is checked before anything is stored: a key that does not match the certificate, a
certificate that is not a CA, and an expired chain are refused. Later changes of the Secret show in
the condition Ready (features/authorities/controllers/keep_authorities.py). If two servers accept an
authority for one signer at the same time, the condition names the one that signs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from orchid.features.authorities.authority_spec import SPEC
from orchid.features.authorities.kinds.certificate_authority import (
    SHOWS_FILES,
    CertificateAuthority,
    parent_problem,
    parent_reference,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.access.rights import CallerRights
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import FieldError, duplicate, forbidden, invalid, not_found
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import key_prefix
from orchid.kernel.wire.struct import replace

AuthoritiesOf = Callable[[str], list[CertificateAuthority]]  # of a signer, oldest first

CERTIFICATE, KEY = "tls.crt", "tls.key"
PARENT = SPEC / "parent" / "authority"


class OwnSigners(AdmissionPolicy):
    admits = (CertificateAuthority,)
    reviews = (CertificateAuthority,)

    def __init__(
        self,
        naming: Naming,
        authorizer: Authorizer,
        feed: Feed,
        authorities_of: AuthoritiesOf,
        *,
        stores_platform: bool = True,
    ) -> None:
        """`stores_platform`: whether the authority of the platform is in use, not files."""
        self._stores_platform = stores_platform
        self._rights = CallerRights(naming, authorizer)
        self._feed = feed
        self._authorities_of = authorities_of
        self._secrets = feed.of(Secret)
        self._keys = feed.of(SigningKey)
        self._authorities = feed.of(CertificateAuthority)

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is not None:
            return new
        await self._feed.fresh()
        parent = self._parent(new)
        reference = parent_reference(parent) if parent else None
        return replace(new, status=replace(new.status, parent=reference))

    def _parent(self, new: CertificateAuthority) -> CertificateAuthority | None:
        named = new.spec.parent
        entry = self._authorities.get("", named.authority) if named else None
        return entry.object if entry else None

    async def review(
        self,
        request: Request,
        kind: Kind[Any],
        new: CertificateAuthority | None,
        old: CertificateAuthority | None,
    ) -> None:
        if old is not None and old.is_file:
            self._refuse_file(kind, new, old)
            return
        if new is None:
            self._refuse_deletion(kind, old)
            return
        if old is not None and new.spec == old.spec:
            return
        await self._rights.require_signers(request, kind, new, new.signers)
        await self._feed.fresh()
        if old is None:
            await self._review_parent(request, kind, new)
            if new.spec.key is not None and new.spec.key.pkcs11 is not None:
                await self._require_import(request, kind, new)
        self._refuse_second(kind, new)
        reference = new.spec.secret_ref
        if reference is not None and (old is None or reference != old.spec.secret_ref):
            await self._review_secret(request, kind, new, reference)

    def _refuse_deletion(self, kind: Kind[Any], old: CertificateAuthority | None) -> None:
        if self._stores_platform and old is not None and old.is_platform:
            text = "the authority of the platform is not deleted; its keys can be rotated"
            raise Forbidden(kind.about(old.name), text)

    def _refuse_file(
        self, kind: Kind[Any], new: CertificateAuthority | None, old: CertificateAuthority
    ) -> None:
        """The files decide. An authority that no server shows any more may be deleted."""
        if new is not None:
            raise Invalid(kind.about_kind(old.name), [forbidden(SPEC, SHOWS_FILES)])
        if old.status.keys:
            raise Forbidden(kind.about(old.name), SHOWS_FILES)

    async def _review_parent(
        self, request: Request, kind: Kind[Any], new: CertificateAuthority
    ) -> None:
        """An intermediate can issue anything below its parent: that takes both rights, too."""
        parent = new.spec.parent
        if parent is None or not parent.authority:
            return
        above = self._parent(new)
        if above is None or above.metadata.deletion_timestamp or parent_problem(new, above):
            problem = not_found(PARENT, parent.authority)
            raise Invalid(kind.about_kind(new.name), [problem])
        if above.is_platform:
            # The server accepts as a client whatever is issued below it.
            text = "the authority of the platform certifies no other authority"
            raise Invalid(kind.about_kind(new.name), [forbidden(PARENT, text)])
        await self._rights.require_signers(request, kind, new, above.signers)

    async def _require_import(
        self, request: Request, kind: Kind[Any], new: CertificateAuthority
    ) -> None:
        """Naming a key in the HSM takes the right to import keys, as for a SigningKey."""
        importing = self._keys.kind.target("import", f"{key_prefix(new.name)}-1")
        if not await self._rights.include_any(request, (importing,)):
            text = "user not permitted to import keys for certificates"
            raise Forbidden(kind.about(new.name), text)

    def _refuse_second(self, kind: Kind[Any], new: CertificateAuthority) -> None:
        signer = new.spec.signer_name
        if any(each.name != new.name for each in self._authorities_of(signer)):
            raise Invalid(kind.about_kind(new.name), [duplicate(SPEC / "signerName", signer)])

    async def _review_secret(
        self,
        request: Request,
        kind: Kind[Any],
        new: CertificateAuthority,
        reference: SecretReference,
    ) -> None:
        await self._rights.require_secret(request, kind, new, reference)
        problem = await self._secret_problem(request, reference)
        if problem is not None:
            raise Invalid(kind.about_kind(new.name), [problem])

    async def _secret_problem(
        self, request: Request, reference: SecretReference
    ) -> FieldError | None:
        path = SPEC / "secretRef"
        entry = self._secrets.get(reference.namespace, reference.name)
        if entry is None:
            return not_found(path, str(reference))
        data = entry.object.data
        try:
            # Verifying a chain of RSA keys takes many milliseconds.
            await asyncio.to_thread(
                Authority.load_untrusted,
                data.get(CERTIFICATE, b""),
                data.get(KEY, b""),
                now=request.now,
            )
        except Refusal as refusal:
            return invalid(path, str(reference), str(refusal))
        return None
