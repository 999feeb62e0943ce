"""Delete the objects of namespaces that are being deleted, then the namespaces.

Reads    namespaces
Deletes  every object of every kind in one that is being deleted
Writes   remaining objects as conditions of its status; finally /finalize without our finalizer
Never    removes a finalizer of others: an object with one blocks its namespace; or deletes anything
         in a namespace that was created again
"""

from typing import Any

from orchid.features.objects.kinds.namespace import Namespace, NamespaceCondition
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Controller, TryAgain
from orchid.kernel.wire.errors import NotFound
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, rule
from orchid.kernel.wire.struct import replace

REMAINING = "NamespaceContentRemaining"


class FinishNamespaces(Controller[Namespace]):
    name = "namespace"

    def __init__(self, client: Client, clock: Clock, naming: Naming) -> None:
        super().__init__(client, ListSelection(Namespace))
        self._clock = clock
        self._finalizer = naming.namespace_finalizer
        self._kinds: tuple[Any, ...] = tuple(
            kind
            for kind in client.catalog.stored
            if kind.namespaced and {"list", "deletecollection"} <= set(kind.verbs)
        )

    async def reconcile(self, namespace: Namespace) -> None:
        if (
            not namespace.metadata.deletion_timestamp
            or self._finalizer not in namespace.spec.finalizers
        ):
            return
        for kind in self._kinds:
            # Another server may have finished it: the namespace of this name is a new one then.
            live = await self._client.find(Namespace, namespace.name)
            if live is None or live.metadata.uid != namespace.metadata.uid:
                return
            await self._client.delete_collection(kind.type, namespace.name)
        left = await self._left(namespace.name)
        if left:
            await self._report(namespace, left)
            raise TryAgain(f"still there: {', '.join(left)}")
        finalizers = tuple(
            finalizer for finalizer in namespace.spec.finalizers if finalizer != self._finalizer
        )
        empty = replace(namespace, spec=replace(namespace.spec, finalizers=finalizers))
        try:
            await self._client.update(empty, "finalize")
        except NotFound:
            return

    async def _left(self, namespace: str) -> list[str]:
        """The resources of which objects remain."""
        left = []
        for kind in self._kinds:
            page = await self._client.page(
                ListSelection[Any](kind.type, namespace, read_as=Object), limit=1
            )
            if page.items:
                left.append(f"{kind.plural}.{kind.group}" if kind.group else kind.plural)
        return left

    async def _report(self, namespace: Namespace, left: list[str]) -> None:
        message = f"Some resources are remaining: {', '.join(left)}"
        before = [
            condition for condition in namespace.status.conditions if condition.type == REMAINING
        ]
        if before and before[0].message == message:
            return
        said = NamespaceCondition(
            type=REMAINING,
            status="True",
            reason="SomeResourcesRemain",
            message=message,
            last_transition_time=(
                before[0].last_transition_time if before else whole_seconds(self._clock.now())
            ),
        )
        others = tuple(
            condition for condition in namespace.status.conditions if condition.type != REMAINING
        )
        status = replace(namespace.status, conditions=(*others, said))
        await self._client.update_status(replace(namespace, status=status))


CONTROLLER = ControllerDeclaration(
    name="namespace",
    long_name="namespace-controller",
    account="namespace-controller",
    rights=lambda names: (
        rule(("delete", "update", *READ), CORE, ("namespaces",)),
        rule(("update",), CORE, ("namespaces/finalize", "namespaces/status")),
        rule(("delete", "deletecollection", "get", "list"), "*", ("*",)),
    ),
    build=lambda client, context, events: FinishNamespaces(client, context.clock, context.naming),
)
