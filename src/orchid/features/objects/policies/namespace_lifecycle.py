"""Objects need a namespace that exists and is not being deleted.

Two modes, chosen at start. *On first use* (`ensure` is set): a namespace is created with the first
object in it, if the user may create namespaces or is among the `creators`, users and groups from
the settings. *Strict* (`ensure` is None), and for all other users: a write to a missing namespace
is a 404. In both modes, no object can be created in a namespace that is being deleted, and the
server's own namespaces cannot be deleted.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import EVERY_KIND, AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import ErrorSubject, Forbidden, NotFound
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.status import StatusCause

Ensure = Callable[[str], Awaitable[object]]


class NamespaceLifecycle(AdmissionPolicy):
    admits = reviews = EVERY_KIND

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        namespaces: KindCache[Any],
        authorizer: Authorizer,
        *,
        ensure: Ensure | None = None,
        creators: Iterable[str] = (),
    ) -> None:
        self._feed = feed
        self._authorizer = authorizer
        self._creators = frozenset(creators)
        self._namespaces = namespaces
        self._prefix = namespaces.kind.key_prefix
        self._ensure = ensure
        self._immortal = frozenset({"default", naming.system_namespace, naming.public_namespace})

    def concerns(self, kind: Kind[Any]) -> bool:
        return kind is self._namespaces.kind or (kind.namespaced and kind.acts is None)

    async def admit(
        self, request: Request, kind: Kind[Any], new: Object, old: Object | None
    ) -> Object:
        """Refuse before the object is validated: a missing namespace is reported first."""
        if not kind.namespaced:
            return new
        await self._feed.fresh_for_request()
        entry = self._namespaces.entries.get(self._prefix + request.target.namespace)
        if entry is None:
            if self._ensure is None or not (old or await self._may_create(request)):
                raise NotFound(ErrorSubject("", "namespaces", request.namespace))
        elif old is None and entry.meta.deletion_timestamp is not None:
            raise terminating(kind, new, request.namespace)
        return new

    async def _may_create(self, request: Request) -> bool:
        user = request.user
        if user.username in self._creators or not self._creators.isdisjoint(user.groups):
            return True
        name = request.namespace
        target = self._namespaces.kind.target("create", name, namespace=name)
        return (await self._authorizer.authorize(user, target)).allowed

    async def review(
        self, request: Request, kind: Kind[Any], new: Object | None, old: Object | None
    ) -> None:
        if kind is self._namespaces.kind:
            if new is None and old is not None and old.name in self._immortal:
                raise Forbidden(kind.about(old.name), "this namespace may not be deleted")
            return
        # The object is valid by now, so no namespace is created for an invalid one.
        if (
            self._ensure is not None
            and new is not None
            and old is None
            and not request.options.dry_run
            and self._prefix + request.target.namespace not in self._namespaces.entries
        ):
            await self._ensure(request.namespace)


def terminating(kind: Kind[Any], new: Object, namespace: str) -> Forbidden:
    name = new.name or new.metadata.generate_name or "Unknown"
    return Forbidden(
        kind.about(name),
        f"unable to create new content in namespace {namespace} because it is being terminated",
        StatusCause(
            reason="NamespaceTerminating",
            message=f"namespace {namespace} is being terminated",
            field="metadata.namespace",
        ),
    )
