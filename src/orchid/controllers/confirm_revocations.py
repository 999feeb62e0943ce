"""Say of a revocation that every live server refuses the credential: the condition Effective.

Reads   credentialrevocations, and the Leases by which servers say how far they are
Writes  /status of a revocation; removes the Leases of servers that are long gone
Never   judges by the times in a Lease: how long ago it was renewed is seen by our own clock
"""

from collections.abc import AsyncIterator

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.clock import Clock
from orchid.controllers.report_applied import LASTS, applied_annotation, server_label
from orchid.controllers.runtime.context import ControllerContext
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import EventRecorder
from orchid.controllers.runtime.loop import Controller, Key, Running, Trigger
from orchid.kinds.credential_revocation import EFFECTIVE, CredentialRevocation
from orchid.kinds.lease import Lease
from orchid.kinds.role import READ, rule
from orchid.wire.conditions import TRUE, Condition, with_condition
from orchid.wire.naming import Naming
from orchid.wire.struct import replace

LOOK_AGAIN = 1.0  # seconds
REMOVED_AFTER = 10 * LASTS


class ConfirmRevocations(Controller[CredentialRevocation]):
    name = "revocation-confirmer"
    minds_deletions = True

    def __init__(self, client: Client, names: Naming, clock: Clock) -> None:
        super().__init__(client, ListSelection(CredentialRevocation))
        self._names = names
        self._clock = clock
        self._servers: dict[str, tuple[int, float]] = {}  # how far, and when we heard of it
        self._waiting: set[Key] = set()
        home, label = names.system_namespace, f"{server_label(names)}=true"
        self.triggers = (Trigger(ListSelection(Lease, namespace=home, labels=label), self._heard),)

    async def reconcile(self, found: CredentialRevocation) -> float | None:
        key = (found.namespace, found.name)
        if found.is_effective:
            self._waiting.discard(key)
            return None
        self._waiting.add(key)
        revision, live = int(found.metadata.resource_version), self._live()
        if not live or min(live) < revision:
            return LOOK_AGAIN  # a server that ends without a word is no longer counted some day
        told = Condition(
            type=EFFECTIVE,
            status=TRUE,
            observed_generation=found.metadata.generation,
            reason="Applied",
            message=f"Refused by every server ({len(live)}).",
        )
        conditions = with_condition(found.status.conditions, told, self._clock.now())
        await self._client.update_status(
            replace(found, status=replace(found.status, conditions=conditions))
        )
        self._waiting.discard(key)
        return None

    async def gone(self, last: CredentialRevocation) -> None:
        self._waiting.discard((last.namespace, last.name))

    def _live(self) -> list[int]:
        """How far each server is that has been heard of lately."""
        now = self._clock.monotonic()
        return [applied for applied, heard in self._servers.values() if now - heard <= LASTS]

    async def _heard(self, event: WatchedChange[Lease]) -> AsyncIterator[Key]:
        lease = event.object
        if event.type == DELETED:
            self._servers.pop(lease.name, None)
        else:
            text = lease.metadata.annotations.get(applied_annotation(self._names), "")
            applied = int(text) if text.isascii() and text.isdigit() else 0
            self._servers[lease.name] = applied, self._clock.monotonic()
            await self._remove_gone()
        for key in tuple(self._waiting):
            yield key

    async def _remove_gone(self) -> None:
        limit = self._clock.monotonic() - REMOVED_AFTER
        for name in [name for name, (_, heard) in self._servers.items() if heard < limit]:
            del self._servers[name]
            lease = await self._client.find(Lease, name, self._names.system_namespace)
            if lease is not None:
                await self._client.delete_gone(Lease, lease)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return ConfirmRevocations(client, context.names, context.clock)


CONTROLLER = ControllerDeclaration(
    name="revocation-confirmer",
    long_name="credentialrevocation-confirmer-controller",
    account="revocation-confirmer",
    rights=lambda names: (
        rule(READ, names.identity, ("credentialrevocations",)),
        rule(("update",), names.identity, ("credentialrevocations/status",)),
        rule(("delete", *READ), names.coordination, ("leases",)),
    ),
    build=build,
)
