"""Rights of the caller that several policies require: for signers, and to read a Secret."""

import itertools
from collections.abc import Iterable
from typing import Any

from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.text import quote

APPROVE, SIGN, ATTEST = "approve", "sign", "attest"
REFUSALS = {
    APPROVE: "user not permitted to approve requests with signerName",
    SIGN: "user not permitted to sign requests with signerName",
    ATTEST: "user not permitted to attest for signerName",
}


class CallerRights:
    """Checks the rights of the user of a request."""

    def __init__(self, naming: Naming, authorizer: Authorizer) -> None:
        self._naming = naming
        self._authorizer = authorizer

    async def include_any(self, request: Request, targets: Iterable[Target]) -> bool:
        """Whether the user has one of these rights."""
        for target in targets:
            if (await self._authorizer.authorize(request.user, target)).allowed:
                return True
        return False

    async def require_signers(
        self, request: Request, kind: Kind[Any], new: Object, signers: Iterable[str]
    ) -> None:
        """Require the rights to sign and to attest for each of these signers."""
        for signer, verb in itertools.product(signers, (SIGN, ATTEST)):
            if not await self.include_any(request, signer_targets(self._naming, verb, signer)):
                raise Forbidden(kind.about(new.name), f"{REFUSALS[verb]} {quote(signer)}")

    async def require_secret(
        self, request: Request, kind: Kind[Any], new: Object, secret: SecretReference
    ) -> None:
        """Require the right to read a Secret."""
        reading = Target(
            verb="get",
            is_resource=True,
            version="v1",
            resource="secrets",
            namespace=secret.namespace,
            name=secret.name,
        )
        if not await self.include_any(request, (reading,)):
            text = f"user not permitted to get the Secret {quote(str(secret))}"
            raise Forbidden(kind.about(new.name), text)


def signer_targets(naming: Naming, verb: str, signer: str) -> tuple[Target, ...]:
    """A verb on a signer, and on every signer of its domain; without a name, on all signers."""
    return tuple(
        Target(
            verb=verb,
            is_resource=True,
            group=naming.certificates,
            version="*",
            resource="signers",
            name=name,
        )
        for name in ((signer, f"{signer.partition('/')[0]}/*") if signer else ("",))
    )
