"""Fill the Secrets that users create for an account's token, and delete them with the account.

Reads   secrets of the token type and their accounts; watches deletions of accounts
Writes  token, namespace and ca.crt into them; deletes those whose account is gone or has changed
Never   creates a Secret or replaces an existing token
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.client.client import Client, ListSelection, WatchedChange
from orchid.kernel.credentials.token_claims import LegacyClaims, legacy_payload
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Controller, Key, Running, Trigger, is_deletion
from orchid.kernel.wire.errors import NotFound
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.struct import replace

TOKEN, NAMESPACE, CA = "token", "namespace", "ca.crt"


class FillTokenSecrets(Controller[Secret]):
    name = "serviceaccount-token"
    minds_deletions = True

    def __init__(
        self,
        client: Client,
        issuer: Callable[[], TokenSigner],
        root_ca: Callable[[], str],
        naming: Naming,
        events: EventRecorder,
    ) -> None:
        """`issuer` signs as the issuer of Secrets' tokens."""
        super().__init__(client, ListSelection(Secret, fields=f"type={naming.token_secret_type}"))
        self._issuer = issuer
        self._root_ca = root_ca
        self._naming = naming
        self._events = events
        accounts = ListSelection(ServiceAccount, existing=False, read_as=Object)
        self.triggers = (Trigger(accounts, self._secrets_of_deleted),)

    def rests_on(self) -> object:
        return self._root_ca()

    async def reconcile(self, secret: Secret) -> None:
        if secret.type != self._naming.token_secret_type or secret.metadata.deletion_timestamp:
            return
        account = await self._account(secret)
        if account is None:
            await self._client.delete_gone(Secret, secret)
            return
        filled = await self._filled(secret, account)
        if filled != secret:
            try:
                await self._client.update(filled)
            except NotFound:
                return
            self._events.record(self.name, account, "TokenWritten", f"Secret {secret.name} filled.")

    async def gone(self, last: Secret) -> None:
        """Remove a deleted Secret from the list of its account."""
        account = await self._account(last)
        if account is None:
            return
        left = tuple(reference for reference in account.secrets if reference.name != last.name)
        if left != account.secrets:
            await self._client.update(replace(account, secrets=left))

    async def _account(self, secret: Secret) -> ServiceAccount | None:
        """The account of the Secret, if its uid still matches."""
        marks = secret.metadata.annotations
        name = marks.get(self._naming.account_name_annotation, "")
        if not name:
            return None
        account = await self._client.find(ServiceAccount, name, secret.namespace)
        uid = marks.get(self._naming.account_uid_annotation, "")
        if account is None or (uid and uid != account.metadata.uid):
            return None
        return account

    async def _filled(self, secret: Secret, account: ServiceAccount) -> Secret:
        data = dict(secret.data)
        authority = self._root_ca().encode()
        if authority and data.get(CA) != authority:
            data[CA] = authority
        data[NAMESPACE] = data.get(NAMESPACE) or secret.namespace.encode()
        data[TOKEN] = data.get(TOKEN) or await self._token(secret, account)
        marks = {
            **secret.metadata.annotations,
            self._naming.account_name_annotation: account.name,
            self._naming.account_uid_annotation: account.metadata.uid,
        }
        return replace(secret.with_meta(annotations=marks), data=data)

    async def _token(self, secret: Secret, account: ServiceAccount) -> bytes:
        claims = LegacyClaims(
            sub=f"system:serviceaccount:{account.namespace}:{account.name}",
            namespace=account.namespace,
            secret_name=secret.name,
            account_name=account.name,
            account_uid=account.metadata.uid,
        )
        issuer = self._issuer()
        payload = legacy_payload(claims, self._naming.own("serviceaccount"))
        if issuer.slow:  # RSA takes milliseconds: sign in a thread
            token = await asyncio.to_thread(issuer.sign_payload, payload)
        else:
            token = issuer.sign_payload(payload)
        return token.reveal().encode()

    async def _secrets_of_deleted(self, event: WatchedChange[ServiceAccount]) -> AsyncIterator[Key]:
        if not is_deletion(event):
            return
        account: Object = event.object
        selection = replace(self.follows, namespace=account.namespace)
        async for secret in self._client.scan(selection):
            named = secret.metadata.annotations.get(self._naming.account_name_annotation)
            if named == account.name:
                yield (secret.namespace, secret.name)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    issuer = context.token_issuer
    if issuer is None:
        return None
    return FillTokenSecrets(client, issuer, context.root_ca, context.naming, events)


CONTROLLER = ControllerDeclaration(
    name="serviceaccount-token",
    long_name="serviceaccount-token-controller",
    account="service-account-token-controller",
    rights=lambda naming: (
        rule(READ, CORE, ("namespaces", "serviceaccounts")),
        rule(("update",), CORE, ("serviceaccounts",)),
        rule(("delete", "patch", "update", *READ), CORE, ("secrets",)),
        may_record_events(naming),
    ),
    build=build,
)
