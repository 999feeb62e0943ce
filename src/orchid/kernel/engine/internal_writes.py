"""The server's own reads and writes, as one trusted user.

For objects that the server itself creates (bootstrap roles, a namespace on first use). Admission
and validation run as usual; authorization does not, because there is no request.
"""

import contextlib
from typing import Any, TypeVar

from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.verbs.all_verbs import Verbs
from orchid.kernel.engine.verbs.delete import DeleteOptions
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo

T = TypeVar("T", bound=Object)


class InternalObjects:
    """Verbs without a caller."""

    def __init__(
        self, catalog: Catalog, feed: Feed, verbs: Verbs, clock: Clock, user: UserInfo
    ) -> None:
        self._catalog = catalog
        self._feed = feed
        self._verbs = verbs
        self._clock = clock
        self._user = user

    async def get(self, type_: type[T], namespace: str, name: str) -> T | None:
        await self._feed.fresh()
        entry = self._feed.of(type_).get(namespace, name)
        return entry.object if entry else None

    async def create(self, new: Object) -> object:
        kind = self._catalog.of(type(new))
        return await self._verbs.creating.create(
            kind, _identified(kind, new), self._request("create", kind, new)
        )

    async def update(self, new: Object) -> object:
        kind = self._catalog.of(type(new))
        return await self._verbs.updating.replace(
            kind, None, _identified(kind, new), self._request("update", kind, new)
        )

    async def delete(self, old: Object) -> object:
        kind = self._catalog.of(type(old))
        request = self._request("delete", kind, old)
        return await self._verbs.deleting.delete(kind, old.name, DeleteOptions(), request)

    async def ensure(self, new: Object) -> None:
        """Create an object unless it exists."""
        if self._feed.of(type(new)).get(new.namespace, new.name) is None:
            with contextlib.suppress(AlreadyExists):
                await self.create(new)

    def _request(self, verb: str, kind: Kind[Any], about: Object) -> Request:
        target = kind.target(verb, about.name, namespace=about.namespace)
        return Request(target, self._user, self._clock.now(), manager="orchid")


def _identified(kind: Kind[Any], new: Object) -> Any:
    return replace(new, kind=kind.name, api_version=kind.api_version)
