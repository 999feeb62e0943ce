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


async def reconcile(policy: BootstrapPolicy, objects: PolicyObjects, names: Naming) -> None:
    """Write missing objects; roles come first, so that no binding refers to a missing role."""
    for together in (
        (*policy.cluster_roles, *policy.roles),
        (*policy.cluster_role_bindings, *policy.role_bindings),
    ):
        # Concurrently: a store with group commit then waits for its disk only a few times.
        annotation = names.autoupdate_annotation
        await asyncio.gather(*(_settle(wanted, objects, annotation) for wanted in together))


async def _settle(wanted: Object, objects: PolicyObjects, annotation: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            await _once(wanted, objects, annotation)
        except (AlreadyExists, Conflict, NotFound):
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


async def _once(wanted: Object, objects: PolicyObjects, annotation: str) -> None:
    there = await objects.get(type(wanted), wanted.namespace, wanted.name)
    if there is None:
        await objects.create(wanted)
        return
    if there.metadata.annotations.get(annotation) == "false":
        return
    if refers_elsewhere(wanted, there):
        await objects.delete(there)
        await objects.create(wanted)
        return
    completed = complete(wanted, there)
    if completed != there:
        await objects.update(completed)


def refers_elsewhere(wanted: Object, there: Object) -> bool:
    if isinstance(wanted, RoleBinding | ClusterRoleBinding):
        return isinstance(there, type(wanted)) and there.role_ref != wanted.role_ref
    return False


def complete(wanted: Any, there: Any) -> Any:
    """The existing object, completed with all of the wanted one."""
    there = replace(there, metadata=with_marks(wanted.metadata, there.metadata))
    match wanted:
        case Role():
            return with_rules(wanted, there)
        case ClusterRole():
            if wanted.aggregation_rule is None:
                return with_rules(wanted, there)
            return with_selectors(wanted.aggregation_rule, there)
        case _:
            lacking = tuple(s for s in wanted.subjects if s not in there.subjects)
            return replace(there, subjects=there.subjects + lacking) if lacking else there


def with_marks(wanted: ObjectMeta, there: ObjectMeta) -> ObjectMeta:
    """An operator's label wins over ours."""
    return replace(
        there,
        labels=wanted.labels | there.labels,
        annotations=wanted.annotations | there.annotations,
    )


def with_rules(wanted: Any, there: Any) -> Any:
    lacking = missing(there.rules or (), wanted.rules or ())
    return replace(there, rules=(there.rules or ()) + lacking) if lacking else there


def with_selectors(wanted: AggregationRule, there: ClusterRole) -> ClusterRole:
    held = there.aggregation_rule.cluster_role_selectors if there.aggregation_rule else ()
    lacking = tuple(s for s in wanted.cluster_role_selectors if s not in held)
    if not lacking:
        return there
    return replace(there, aggregation_rule=AggregationRule(cluster_role_selectors=held + lacking))
