"""The parts of objects: namespaces, the Leases of servers, and their policies."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable

from orchid.features.objects.kinds.lease import Lease, server_prefix
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.objects.policies.namespace_lifecycle import NamespaceLifecycle
from orchid.features.objects.policies.owner_permission import OwnerPermission
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.objects.settings import ObjectSettings
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.wire.errors import NotFound


class ServerNamespaces:
    """Creates namespaces as the server itself."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_lenient = context.settings.given.of(ObjectSettings).namespaces == "lenient"

    async def ensure(self, name: str) -> None:
        await self._context.local.ensure(Namespace().with_meta(name=name))

    @property
    def on_use(self) -> Callable[[str], Awaitable[object]] | None:
        """Creates a namespace on its first use; None if the settings do not allow that."""
        return self.ensure if self._is_lenient else None


def _leases(context: Context) -> ServerLeases:
    return ServerLeases(context.feed, context.naming, context.clock.monotonic)


PARTS = (ServerPart(ServerNamespaces, ServerNamespaces), ServerPart(ServerLeases, _leases))


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    feed, authorizer = context.feed, context.authorizer
    yield NamespaceLifecycle(
        context.naming,
        feed,
        feed.of(Namespace),
        authorizer,
        ensure=context.port(ServerNamespaces).on_use,
        creators=context.settings.given.of(ObjectSettings).namespace_creators,
    )
    yield OwnerPermission(authorizer, context.catalog)


async def prepare(context: Context) -> None:
    """Write the namespaces that always exist."""
    if not context.settings.given.etcd_servers:
        await _remove_old_leases(context)
    naming = context.naming
    for name in (
        "default", naming.system_namespace, naming.public_namespace, naming.node_lease_namespace,
    ):  # fmt: skip
        await context.port(ServerNamespaces).ensure(name)


async def _remove_old_leases(context: Context) -> None:
    """Delete the Leases of earlier processes, which count as live servers for a while.

    A process that was killed leaves its own. No other server has the embedded store open.
    """
    cache, naming = context.feed.of(Lease), context.naming
    prefix = cache.kind.key(naming.system_namespace, server_prefix(naming))
    for entry in [entry for key, entry in cache.entries.items() if key.startswith(prefix)]:
        with contextlib.suppress(NotFound):
            await context.local.delete(entry.object)
