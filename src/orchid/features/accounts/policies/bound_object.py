"""A token can only be bound to an object that its requester may read.

Whether a token can be bound to a Secret reveals whether that Secret exists. So the requester needs
the verb `get` on the Pod, Secret or Node; without it the response is that for a missing object,
whether it exists or not, and nothing is looked up. Kubernetes does not check this. Tokens without a
bound object need no such permission.
"""

from typing import Any

from orchid.features.accounts.kinds.token_request import BoundObjectReference, TokenRequest
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import ErrorSubject, NotFound

_PLURALS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class BoundObject(AdmissionPolicy):
    admits = (TokenRequest,)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(
        self, request: Request, kind: Kind[Any], new: TokenRequest, old: object
    ) -> TokenRequest:
        if new.spec.bound_object_ref is not None:
            await self._refuse_unseen(request, new.spec.bound_object_ref)
        return new

    async def _refuse_unseen(self, request: Request, reference: BoundObjectReference) -> None:
        plural = _PLURALS.get(reference.kind)
        if plural is None or not reference.name:
            return  # no token can be bound to it; the issuer refuses it without a lookup
        target = Target(
            verb="get",
            is_resource=True,
            version="v1",
            resource=plural,
            namespace="" if plural == "nodes" else request.namespace,
            name=reference.name,
        )
        decision = await self._authorizer.authorize(request.user, target)
        if not decision.allowed:
            raise NotFound(ErrorSubject("", plural, reference.name))
