"""Owner references can only be changed by users who may delete the object.

The garbage collector deletes an object whose owners do not exist. A user who may patch an object
but not delete it could have it deleted by a reference to a missing owner. Changing the references
therefore needs the verb `delete` on the object. Creating an object with references needs no such
permission.

A reference with `blockOwnerDeletion` delays the foreground deletion of the owner, so that a new one
needs the verb `update` on the `finalizers` of the owner. The garbage collector never waits because
of an owner whose kind this server does not have; such a reference needs no permission.

An object whose deletion is refused (a revocation, a certificate on record, a token key) gets no
owner (`Kind.refuses_owners`): the garbage collector would try to delete it for ever, and an owner
that is deleted in the foreground would wait for it.

In Kubernetes the plugin OwnerReferencesPermissionEnforcement does the same; it is off by default
there.
"""

from typing import Any

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import EVERY_KIND, AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import forbidden
from orchid.kernel.wire.meta import Object, OwnerReference
from orchid.kernel.wire.rules.metadata import OWNERS


class OwnerPermission(AdmissionPolicy):
    reviews = EVERY_KIND

    def __init__(self, authorizer: Authorizer, catalog: Catalog) -> None:
        self._authorizer = authorizer
        self._catalog = catalog

    def concerns(self, kind: Kind[Any]) -> bool:
        return kind.acts is None

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        if new is None:
            return
        owners = new.metadata.owner_references
        before = () if old is None else old.metadata.owner_references
        if owners == before:
            return
        if kind.refuses_owners(new) and any(owner not in before for owner in owners):
            text = "objects of this kind outlive every owner"
            raise Invalid(kind.about_kind(new.name), [forbidden(OWNERS, text)])
        deletion = kind.target("delete", request.name, namespace=request.namespace)
        if old is not None and not await self._may(request, deletion):
            text = "cannot set an ownerRef on a resource you can't delete"
            raise Forbidden(kind.about(new.name), text)
        blocked = {owner.uid for owner in before if owner.block_owner_deletion}
        for owner in owners:
            if owner.block_owner_deletion and owner.uid not in blocked:
                await self._refuse_blocking(request, kind, new, owner)

    async def _refuse_blocking(
        self, request: Request, kind: Kind[Any], new: Object, owner: OwnerReference
    ) -> None:
        owning = self._catalog.named(owner.api_version, owner.kind)
        if owning is None:
            return
        finalizers = owning.target(
            "update",
            owner.name,
            namespace=request.namespace if owning.namespaced else "",
            subresource="finalizers",
        )
        if await self._may(request, finalizers):
            return
        text = (
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't "
            "set finalizers on"
        )
        raise Forbidden(kind.about(new.name), text)

    async def _may(self, request: Request, target: Target) -> bool:
        return (await self._authorizer.authorize(request.user, target)).allowed
