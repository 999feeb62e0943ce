"""The revision that this process has applied, reported in a Lease of its own.

Every process that serves has one, also without controllers. The Lease is renewed while the process
lives, and immediately when a revocation has arrived here;
features/revoking/controllers/confirm_revocations.py reads all of them. A process that stops in
order deletes its Lease.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from orchid.features.objects.kinds.lease import (
    SERVER_LASTS,
    Lease,
    LeaseSpec,
    server_label,
    server_prefix,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.errors import ApiError, NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import micro_timestamp

log = logging.getLogger(__name__)

RENEW_EVERY: Final = 10.0  # seconds
LASTS: Final = SERVER_LASTS
PAUSE: Final = 0.02  # between two reports, so that many revocations need few


def applied_annotation(naming: Naming) -> str:
    """The annotation of a Lease with the revision that its server has applied."""
    return f"{naming.identity}/applied"


class AppliedRevision:
    """Reports the applied revision of one server."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        naming: Naming,
        applied: Callable[[], int],
        keys: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`applied`: the revision up to which this process knows all revocations. `keys`: the
        annotations that report its token keys.
        """
        self._client = client
        self._clock = clock
        self._naming = naming
        self._applied = applied
        self._keys = keys
        self._changed = asyncio.Event()
        self.name = f"{server_prefix(naming)}{uuid.uuid4()}"

    def changed(self, _changes: object = None) -> None:
        """Report soon: something was revoked, or other keys are used."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self.report()
            except (ApiError, CallFailed) as problem:
                log.debug("server.not_reported", extra={"why": str(problem)})
                await asyncio.sleep(1.0)
            await asyncio.sleep(PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY):
                    await self._changed.wait()

    async def leave(self) -> None:
        """Delete the Lease, so that nobody waits for a server that has stopped."""
        with contextlib.suppress(ApiError, CallFailed, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._client.delete(Lease, self.name, self._naming.system_namespace)

    async def report(self) -> None:
        """Write the Lease."""
        spec = LeaseSpec(
            holder_identity=self.name,
            lease_duration_seconds=LASTS,
            renew_time=micro_timestamp(self._clock.now()),
        )
        meta = ObjectMeta(
            name=self.name,
            namespace=self._naming.system_namespace,
            labels={server_label(self._naming): "true"},
            annotations={applied_annotation(self._naming): str(self._applied()), **self._keys()},
        )
        lease = await self._client.find(Lease, self.name, self._naming.system_namespace)
        if lease is None:
            await self._client.create(Lease(metadata=meta, spec=spec))
            return
        with contextlib.suppress(NotFound):
            marked = lease.with_meta(labels=meta.labels, annotations=meta.annotations)
            await self._client.update(replace(marked, spec=spec))
