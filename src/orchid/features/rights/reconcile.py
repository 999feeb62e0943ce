"""Write the bootstrap policy into the store at each start, without removing anything.

Start with `reconcile`. It creates what is missing: objects, rules, subjects, labels, annotations,
selectors. Additions by an operator stay. An object with the autoupdate annotation "false" is not
changed. A binding that refers to another role is deleted and created again, because a roleRef is
immutable.

Several servers may do this at the same time: the loser of a race reads again.
"""

import asyncio
from typing import Any, Protocol, TypeVar

from orchid.features.rights.bootstrap import BootstrapPolicy
from orchid.features.rights.kinds.role import AggregationRule, ClusterRole, Role
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleBinding
from orchid.features.rights.rules import missing
from orchid.kernel.wire.errors import AlreadyExists, Conflict, NotFound
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace

T = TypeVar("T", bound=Object)

ATTEMPTS = 10


class PolicyObjects(Protocol):
    """The store as needed here. Races raise AlreadyExists, Conflict or NotFound."""

    async def get(self, type_: type[T], namespace: str, name: str) -> T | None: ...

    async def create(self, new: Object) -> object: ...

    async def update(self, new: Object) -> object:
        """Replace an object returned by `get`, if its resourceVersion is still current."""

    async def delete(self, old: Object) -> object: ...


async def reconcile(policy: BootstrapPolicy, objects: PolicyObjects, naming: Naming) -> None:
    """Write missing objects; roles come first, so that no binding refers to a missing role."""
    for together in (
        (*policy.cluster_roles, *policy.roles),
        (*policy.cluster_role_bindings, *policy.role_bindings),
    ):
        # Concurrently: a store with group commit then waits for its disk only a few times.
        annotation = naming.autoupdate_annotation
        await asyncio.gather(*(_settle(desired, objects, annotation) for desired in together))


async def _settle(desired: Object, objects: PolicyObjects, annotation: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            await _once(desired, objects, annotation)
        except (AlreadyExists, Conflict, NotFound):
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


async def _once(desired: Object, objects: PolicyObjects, annotation: str) -> None:
    existing = await objects.get(type(desired), desired.namespace, desired.name)
    if existing is None:
        await objects.create(desired)
        return
    if existing.metadata.annotations.get(annotation) == "false":
        return
    if refers_elsewhere(desired, existing):
        await objects.delete(existing)
        await objects.create(desired)
        return
    completed = complete(desired, existing)
    if completed != existing:
        await objects.update(completed)


def refers_elsewhere(wanted: Object, there: Object) -> bool:
    if isinstance(wanted, RoleBinding | ClusterRoleBinding):
        return isinstance(there, type(wanted)) and there.role_ref != wanted.role_ref
    return False


def complete(desired: Any, existing: Any) -> Any:
    """The existing object, completed with all of the wanted one."""
    existing = replace(existing, metadata=with_marks(desired.metadata, existing.metadata))
    match desired:
        case Role():
            return with_rules(desired, existing)
        case ClusterRole():
            if desired.aggregation_rule is None:
                return with_rules(desired, existing)
            return with_selectors(desired.aggregation_rule, existing)
        case _:
            lacking = tuple(s for s in desired.subjects if s not in existing.subjects)
            return replace(existing, subjects=existing.subjects + lacking) if lacking else existing


def with_marks(desired: ObjectMeta, existing: ObjectMeta) -> ObjectMeta:
    """An operator's label wins over ours."""
    return replace(
        existing,
        labels=desired.labels | existing.labels,
        annotations=desired.annotations | existing.annotations,
    )


def with_rules(wanted: Any, there: Any) -> Any:
    lacking = missing(there.rules or (), wanted.rules or ())
    return replace(there, rules=(there.rules or ()) + lacking) if lacking else there


def with_selectors(desired: AggregationRule, existing: ClusterRole) -> ClusterRole:
    held = existing.aggregation_rule.cluster_role_selectors if existing.aggregation_rule else ()
    lacking = tuple(s for s in desired.cluster_role_selectors if s not in held)
    if not lacking:
        return existing
    return replace(
        existing, aggregation_rule=AggregationRule(cluster_role_selectors=held + lacking)
    )
