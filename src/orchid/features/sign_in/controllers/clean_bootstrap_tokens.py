"""Delete bootstrap tokens that have expired.

Reads    secrets of the bootstrap token type in the system namespace
Deletes  those that have expired, or have a malformed expiration
Never    touches one without an expiration
"""

from datetime import UTC, datetime

from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Controller
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule

LONGEST_WAIT = 86_400.0


class CleanBootstrapTokens(Controller[Secret]):
    name = "tokencleaner"
    workers = 1

    def __init__(self, client: Client, clock: Clock, naming: Naming) -> None:
        selection = ListSelection(
            Secret, naming.system_namespace, fields=f"type={naming.bootstrap_token_type}"
        )
        super().__init__(client, selection)
        self._clock = clock
        self._type = naming.bootstrap_token_type

    async def reconcile(self, secret: Secret) -> float | None:
        text = secret.data.get("expiration", b"")
        if secret.type != self._type or not text:
            return None
        left = seconds_left(text, self._clock.now())
        if left > 0:
            return min(left, LONGEST_WAIT)
        await self._client.delete_gone(Secret, secret)
        return None


def seconds_left(expiration: bytes, now: datetime) -> float:
    """Seconds until a token expires; not positive for a malformed expiration."""
    try:
        moment = datetime.fromisoformat(expiration.decode("ascii"))
        if moment.tzinfo is None:
            return 0.0
        return (moment.astimezone(UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0


CONTROLLER = ControllerDeclaration(
    name="tokencleaner",
    long_name="token-cleaner-controller",
    account="token-cleaner",
    rights=lambda naming: (
        rule(("delete", *READ), CORE, ("secrets",)),
        may_record_events(naming),
    ),
    in_system_namespace=True,
    build=lambda client, context, events: CleanBootstrapTokens(
        client, context.clock, context.naming
    ),
)
