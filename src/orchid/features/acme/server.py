"""The ACME server: its identity, its pages and the key of its nonces."""

import contextlib
import secrets
from collections.abc import Callable

from orchid.features.acme.accounts import AccountPages
from orchid.features.acme.acme_accounts import (
    KEY,
    NONCE_KEY_BYTES,
    NONCE_SECRET,
    AcmeAccounts,
    ExternalKeys,
)
from orchid.features.acme.acme_orders import AcmeOrders
from orchid.features.acme.orders import ActingAs, OrderPages
from orchid.features.acme.pages import AcmePages, Find
from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.acme.protocol.requests import SignedRequests
from orchid.features.acme.revoking import ActingHolder, RevocationPage
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Metric
from orchid.kernel.client.client import Client
from orchid.kernel.runtime.declaration import ComponentIdentity
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, rule

IDENTITY = ComponentIdentity(
    name="acme-server",
    account="acme-server",
    rights=lambda naming: (
        rule(("create", "update"), naming.identity, ("acmeaccounts",)),
        rule(("create", "get"), naming.identity, ("acmeorders",)),
        rule(("update",), naming.identity, ("acmeorders/status",)),
    ),
    rights_at_home=lambda names: (
        rule(("create",), CORE, ("secrets",)),
        rule(("delete",), CORE, ("secrets",), NONCE_SECRET),
    ),
)


class AcmeServer:
    """ACME for all authorities, of one process."""

    def __init__(
        self,
        base: str,
        client: Client,
        find: Find,
        *,
        accounts: AcmeAccounts,
        keys: ExternalKeys,
        orders: AcmeOrders,
        acting: ActingAs,
        acting_holder: ActingHolder,
        naming: Naming,
        clock: Clock,
        key_problem: Callable[[str], str],
    ) -> None:
        """`base`: the URL of the server for clients. `client`: with the identity above."""
        self._client = client
        self._keys = keys
        self._fresh = accounts.fresh
        self._home = naming.system_namespace
        nonces = Nonces(keys.nonce_key, clock)
        self.pages = AcmePages(
            base,
            find,
            nonces,
            ensure_key=self.ensure_key,
            requests=SignedRequests(accounts, nonces),
            accounts=AccountPages(accounts, keys, client),
            orders=OrderPages(orders, client, acting, clock, key_problem=key_problem),
            revocations=RevocationPage(orders, acting_holder),
        )
        self.metrics: tuple[Metric, ...] = (self.pages.answers,)

    async def ensure_key(self) -> None:
        """Create the key of nonces, which all servers share, if there is none.

        A Secret of that name without a key is replaced: nobody else has a use for the name.
        """
        if self._keys.nonce_key():
            return
        unusable = self._keys.nonce_secret()
        if unusable is not None:
            await self._client.delete_gone(Secret, unusable)
        data = {KEY: secrets.token_bytes(NONCE_KEY_BYTES)}
        meta = ObjectMeta(name=NONCE_SECRET, namespace=self._home)
        with contextlib.suppress(AlreadyExists):
            await self._client.create(Secret(metadata=meta, data=data, type="Opaque"))
        await self._fresh()
