"""Mark unused tokens of Secrets as invalid, and delete them a year later.

Reads    secrets of the token type, the accounts that list them, the Pods that mount them, and since
         when uses are written down (features/accounts/secret_token_uses.py)
Writes   the label that makes a token invalid; a period later it deletes the Secret
Never    touches a Secret that its account does not list: it was created on purpose
"""

from datetime import date, timedelta
from typing import Any

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.secret_token_uses import SINCE, read_date
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Sweeper
from orchid.kernel.wire.errors import Conflict, NotFound
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, rule

PERIOD = timedelta(days=365)


class CleanTokenSecrets(Sweeper):
    name = "legacy-serviceaccount-token-cleaner"
    every = timedelta(hours=24)

    def __init__(
        self, client: Client, clock: Clock, naming: Naming, *, period: timedelta = PERIOD
    ) -> None:
        self._client = client
        self._clock = clock
        self._naming = naming
        self._period = period

    async def sweep(self) -> None:
        today = self._clock.now().date()
        if not await self._is_long_known(today):
            return
        selection = ListSelection(Secret, fields=f"type={self._naming.token_secret_type}")
        async for secret in self._client.scan(selection):
            if self._is_unused(secret, today) and await self._is_made_by_us(secret):
                await self._retire(secret, today)

    async def _is_long_known(self, today: date) -> bool:
        """Whether uses have been recorded for long enough to know that a token is unused."""
        name = self._naming.legacy_token_tracking_config_map
        tracking = await self._client.find(ConfigMap, name, self._naming.system_namespace)
        since = read_date(tracking.data.get(SINCE, "")) if tracking else None
        return since is not None and since + timedelta(days=1) + self._period < today

    def _is_unused(self, secret: Secret, today: date) -> bool:
        meta = secret.metadata
        created = meta.creation_timestamp
        if meta.deletion_timestamp or created is None or created.date() + self._period >= today:
            return False
        label = meta.labels.get(self._naming.last_used_label)
        if label is None:
            return True
        used = read_date(label)
        return used is not None and used + self._period < today

    async def _is_made_by_us(self, secret: Secret) -> bool:
        marks = secret.metadata.annotations
        name = marks.get(self._naming.account_name_annotation, "")
        account = await self._client.find(ServiceAccount, name, secret.namespace) if name else None
        if account is None or all(reference.name != secret.name for reference in account.secrets):
            return False
        async for pod in self._client.scan(ListSelection(Pod, secret.namespace)):
            if secret.name in mounted_secrets(pod):
                return False
        return True

    async def _retire(self, secret: Secret, today: date) -> None:
        label = secret.metadata.labels.get(self._naming.invalid_since_label)
        try:
            if label is None:
                await self._mark(secret, today)
                return
            since = read_date(label)
            if since is None:
                await self._mark(secret, today)
            elif since + self._period < today:
                version = secret.metadata.resource_version
                await self._client.delete(
                    Secret, secret.name, secret.namespace, resource_version=version
                )
        except (NotFound, Conflict):
            return  # it has been used or changed meanwhile; the next sweep checks it again

    async def _mark(self, secret: Secret, today: date) -> None:
        meta = {
            "resourceVersion": secret.metadata.resource_version,
            "labels": {self._naming.invalid_since_label: today.isoformat()},
        }
        await self._client.patch(Secret, secret.name, secret.namespace, {"metadata": meta})


def mounted_secrets(pod: Pod) -> set[str]:
    """The Secrets that a Pod mounts as volumes."""
    names: set[str] = set()
    volumes: Any = pod.spec.get("volumes")
    for volume in volumes if isinstance(volumes, list | tuple) else ():
        source = volume.get("secret") if isinstance(volume, dict) else None
        name = source.get("secretName") if isinstance(source, dict) else None
        if isinstance(name, str):
            names.add(name)
    return names


CONTROLLER = ControllerDeclaration(
    name="legacy-serviceaccount-token-cleaner",
    long_name="legacy-serviceaccount-token-cleaner-controller",
    account="legacy-service-account-token-cleaner",
    rights=lambda naming: (
        rule(("get",), CORE, ("configmaps",), naming.legacy_token_tracking_config_map),
        rule(READ, CORE, ("pods", "serviceaccounts")),
        rule(("delete", "patch", *READ), CORE, ("secrets",)),
    ),
    build=lambda client, context, events: CleanTokenSecrets(client, context.clock, context.naming),
)
