"""Users cannot grant permissions that they do not hold.

Creating or changing a role needs every rule in it, or the verb `escalate` on it. Creating or
changing a binding needs every rule of its role, or the verb `bind` on that role. An aggregated role
may get any rule later, so writing one needs full permissions. Members of `system:masters` hold
everything.

Start with `RoleEscalation.review`. The RBAC evaluator returns the rules of a user (`Holdings`);
permissions from other authorizers do not count.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from orchid.features.rights.kinds.role import ClusterRole, Role
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding, RoleRef
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden, NotFound
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.policy_rules import FULL_AUTHORITY, PolicyRule
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import MASTERS, UserInfo


class Holdings(Protocol):
    """The rules of users and roles."""

    async def excess(self, user: UserInfo, namespace: str, wanted: Iterable[PolicyRule]) -> str:
        """The wanted rules that the user does not hold, as text; "" if all are held."""

    def rules_of(self, role: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of a role as seen from a namespace; None if there is no such role."""


class RoleEscalation(AdmissionPolicy):
    reviews = (Role, ClusterRole, RoleBinding, ClusterRoleBinding)

    def __init__(self, authorizer: Authorizer, holdings: Holdings) -> None:
        self._authorizer = authorizer
        self._holdings = holdings

    async def review(
        self,
        request: Request,
        kind: Kind[Any],
        new: Role | ClusterRole | RoleBinding | ClusterRoleBinding | None,
        old: Object | None,
    ) -> None:
        if new is None or MASTERS in request.user.groups or grants_the_same(new, old):
            return
        if isinstance(new, Role | ClusterRole):
            await self._review_role(request, kind, new, old)
        else:
            await self._review_binding(request, kind, new)

    async def _review_role(
        self, request: Request, kind: Kind[Any], new: Role | ClusterRole, old: Object | None
    ) -> None:
        if await self._may(request, "escalate", kind.group, kind.plural, request.name):
            return
        await self._refuse_excess(request, kind, new, new.rules or ())
        if (gathers(new) or gathers(old)) and await self._holdings.excess(
            request.user, request.namespace, FULL_AUTHORITY
        ):
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise Forbidden(kind.about(new.name), text)

    async def _review_binding(
        self, request: Request, kind: Kind[Any], new: RoleBinding | ClusterRoleBinding
    ) -> None:
        role = new.role_ref
        plural = "clusterroles" if role.kind == "ClusterRole" else "roles"
        if await self._may(request, "bind", role.api_group, plural, role.name):
            return
        rules = self._holdings.rules_of(role, new.namespace)
        if rules is None:
            raise NotFound(kind.about(role.name))
        await self._refuse_excess(request, kind, new, rules)

    async def _refuse_excess(
        self, request: Request, kind: Kind[Any], new: Object, rules: Iterable[PolicyRule]
    ) -> None:
        excess = await self._holdings.excess(request.user, request.namespace, rules)
        if excess:
            raise Forbidden(kind.about(new.name), excess)

    async def _may(self, request: Request, verb: str, group: str, resource: str, name: str) -> bool:
        target = Target(
            verb=verb,
            is_resource=True,
            group=group,
            version="*",
            resource=resource,
            namespace=request.namespace,
            name=name,
        )
        return (await self._authorizer.authorize(request.user, target)).allowed


def gathers(role: Object | None) -> bool:
    return isinstance(role, ClusterRole) and role.aggregation_rule is not None


def grants_the_same(new: Object, old: Object | None) -> bool:
    """Whether a change affects only metadata that the garbage collector must be able to change."""
    return old is not None and without_upkeep(new) == without_upkeep(old)


def without_upkeep(thing: Object) -> Object:
    meta = replace(
        thing.metadata,
        self_link="",
        resource_version="",
        owner_references=(),
        finalizers=(),
        managed_fields=(),
    )
    return replace(thing, metadata=meta)
