"""Uses of policies: counted in the ledger, and shown as `status.lastUsed`.

Input   each use, from the endpoint (`used`), which cannot wait
Writes  the status of the policy, at most once an hour
Never   holds a token, or more than a bounded number of names
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.exchange.policy_index import IndexedPolicy
from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

INTERVAL: Final = timedelta(hours=1)
MOST_WAITING: Final = 10_000

Counted = Callable[[str, datetime], None]


class PolicyUses:
    """The uses that are still to be written."""

    def __init__(self, client: Client, counted: Counted) -> None:
        """`counted` is called with the uid of the policy and the time of each use."""
        self._client = client
        self._counted = counted
        self._waiting: dict[tuple[str, str], tuple[str, datetime]] = {}  # uid and time
        self._is_used = asyncio.Event()

    def used(self, policy: IndexedPolicy, now: datetime) -> None:
        self._counted(policy.uid, now)
        if now.timestamp() - policy.last_used < INTERVAL.total_seconds():
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting[policy.namespace, policy.name] = policy.uid, now
            self._is_used.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._is_used.wait()
            self._is_used.clear()
            await self.write()

    async def write(self) -> None:
        """Write every waiting use; one that cannot be written is dropped."""
        while self._waiting:
            (namespace, name), (uid, time) = self._waiting.popitem()
            try:
                await self._write(namespace, name, uid, time)
            except (ApiError, CallFailed) as problem:
                fields = {"policy": f"{namespace}/{name}", "why": str(problem)}
                log.debug("exchange.use_not_written", extra=fields)

    async def _write(self, namespace: str, name: str, uid: str, time: datetime) -> None:
        policy = await self._client.find(TokenExchangePolicy, name, namespace)
        if policy is None or policy.metadata.uid != uid:
            return
        last = policy.status.last_used
        if last is None or time - last >= INTERVAL:
            status = replace(policy.status, last_used=whole_seconds(time))
            await self._client.update_status(replace(policy, status=status))
