"""Objects past admission, as an earlier version, a restore or another server left them."""

from typing import TypeVar

from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside

T = TypeVar("T", bound=Object)


async def put(world: Beside, new: T) -> T:
    """Store an object in place of the one that has its name, if there is one."""
    kind = world.server.catalog.of(type(new))
    new = replace(new, kind=kind.name, api_version=kind.api_version)
    await _commit(world, new, stored_form(new.with_meta(resource_version="")))
    return await world.admin.get(type(new), new.name, new.namespace)


async def drop(world: Beside, old: Object) -> None:
    """Remove an object alone; nothing that it owns."""
    await _commit(world, old, None)


async def _commit(world: Beside, one: Object, value: bytes | None) -> None:
    await world.server.feed.fresh()
    cache = world.server.feed.of(type(one))
    entry = cache.get(one.namespace, one.name)
    revision = entry.revision if entry else ABSENT
    key = cache.kind.key(one.namespace, one.name)
    await world.server.store.commit([Change(key, value, revision)])
    await world.server.feed.fresh()
