"""Ensure an account named `default` in every namespace that is not being deleted.

Reads   namespaces; watches deletions of serviceaccounts
Writes  the account, with nothing but its name
Never   reuses an old uid, so that tokens of a deleted account stay invalid
"""

from collections.abc import AsyncIterator

from orchid.features.accounts.kinds.service_account import DEFAULT_ACCOUNT, ServiceAccount
from orchid.features.objects.kinds.namespace import ACTIVE, Namespace
from orchid.kernel.client.client import Client, ListSelection, WatchedChange
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Controller, Key, Trigger, is_deletion
from orchid.kernel.wire.errors import AlreadyExists, Forbidden
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule

TERMINATING = "NamespaceTerminating"


class CreateDefaultAccounts(Controller[Namespace]):
    name = "serviceaccount"

    def __init__(self, client: Client) -> None:
        super().__init__(client, ListSelection(Namespace))
        accounts = ListSelection(ServiceAccount, existing=False, read_as=Object)
        self.triggers = (Trigger(accounts, namespace_of_deleted),)

    async def reconcile(self, namespace: Namespace) -> None:
        if not is_active(namespace):
            return
        if await self._client.find(ServiceAccount, DEFAULT_ACCOUNT, namespace.name):
            return
        account = ServiceAccount(
            metadata=ObjectMeta(name=DEFAULT_ACCOUNT, namespace=namespace.name)
        )
        try:
            await self._client.create(account)
        except AlreadyExists:
            return
        except Forbidden as refusal:
            if not is_terminating(refusal):
                raise


def is_active(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is None and namespace.status.phase == ACTIVE


def is_terminating(refusal: Forbidden) -> bool:
    """Whether the refusal is due to a namespace that is being deleted."""
    return refusal.has_cause(TERMINATING)


async def namespace_of_deleted(event: WatchedChange[ServiceAccount]) -> AsyncIterator[Key]:
    if is_deletion(event):
        yield ("", event.object.namespace)


CONTROLLER = ControllerDeclaration(
    name="serviceaccount",
    long_name="serviceaccount-controller",
    account="service-account-controller",
    rights=lambda naming: (
        rule(READ, CORE, ("namespaces",)),
        rule(("create", *READ), CORE, ("serviceaccounts",)),
        may_record_events(naming),
    ),
    build=lambda client, context, events: CreateDefaultAccounts(client),
)
