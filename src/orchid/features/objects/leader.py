"""Leader election: the holder of a Lease works, the others wait until it expires.

Start with `Leader.run`. The holder renews the Lease every two seconds; if it cannot for too long,
it stops its work before another candidate may start. A candidate measures the time since the last
renewal with its own clock, never by the times in the Lease, so that clocks may differ. A leader
that stops normally releases the Lease, and the next one starts immediately; after a crash it starts
within twelve seconds: `retry` to see the last renewal, `duration`, `retry` to check again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from orchid.features.objects.kinds.lease import Lease, LeaseSpec
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import micro_timestamp

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


class Terms(msgspec.Struct, frozen=True):
    """Lifetime of a Lease without renewal, deadline for its holder, and the retry interval."""

    duration: float = 8.0
    renew_within: float = 5.5
    retry: float = 2.0


class Leader:
    """A candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._terms = terms or Terms()
        self._sleep = sleep
        self._seen = ""  # the last version of the Lease, and when we first saw it
        self._seen_at = 0.0
        self._asked_at = 0.0  # when we last began to request the Lease
        self.leading = False

    async def run(self, work: Work) -> None:
        """Work whenever we lead, until cancelled."""
        while True:
            await self._wait_until_held()
            log.info("leader.elected", extra={"identity": self.identity})
            try:
                await self._lead(work)
            finally:
                self.leading = False
                # Best effort: without a response the Lease expires by itself.
                with contextlib.suppress(ApiError, CallFailed, TimeoutError):
                    async with asyncio.timeout(self._terms.retry):
                        await self._give_back()
            log.warning("leader.lost", extra={"identity": self.identity})

    async def try_to_hold(self) -> bool:
        """Acquire or renew the Lease if allowed; return whether we hold it."""
        self._asked_at = self._clock.monotonic()
        lease = await self._client.find(Lease, self._name, self._namespace)
        if lease is None:
            meta = ObjectMeta(name=self._name, namespace=self._namespace)
            lease = await self._client.create(Lease(metadata=meta, spec=self._claim(None)))
            return True
        if not self._may_take(lease):
            return False
        # The resourceVersion makes this a compare-and-swap: of two candidates, one gets a Conflict.
        await self._client.update(replace(lease, spec=self._claim(lease.spec)))
        return True

    def _may_take(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self.identity:
            return True
        version = lease.metadata.resource_version
        if version != self._seen:
            self._seen, self._seen_at = version, self._clock.monotonic()
            return False
        lasts = lease.spec.lease_duration_seconds or self._terms.duration
        return self._clock.monotonic() - self._seen_at > lasts

    def _claim(self, before: LeaseSpec | None) -> LeaseSpec:
        now = micro_timestamp(self._clock.now())
        spec = before or LeaseSpec()
        kept = spec.holder_identity == self.identity
        changes = spec.lease_transitions or 0
        return replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=round(self._terms.duration),
            acquire_time=spec.acquire_time if kept and spec.acquire_time else now,
            renew_time=now,
            lease_transitions=changes if kept or before is None else changes + 1,
        )

    async def _wait_until_held(self) -> None:
        while not await self._attempt():
            await self._sleep(self._terms.retry)

    async def _attempt(self) -> bool:
        try:
            return await self.try_to_hold()
        except (ApiError, CallFailed) as problem:
            log.debug("leader.failed", extra={"why": str(problem)})
            return False

    async def _lead(self, work: Work) -> None:
        """Work and renew; return when the Lease is lost and the work has ended.

        Our time counts from before the request: others may have seen the Lease change long before
        the response, and their time counts from then.
        """
        self.leading = True
        working = asyncio.ensure_future(work())
        try:
            renewed = self._asked_at
            while self._clock.monotonic() - renewed < self._terms.renew_within:
                pause = asyncio.ensure_future(self._sleep(self._terms.retry))
                done, _ = await asyncio.wait((working, pause), return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                if working in done:
                    working.result()  # it never ends by itself: this raises the failure
                    return
                if not await self._renewed(renewed):
                    continue
                if not self.leading:
                    return
                renewed = self._asked_at
        finally:
            working.cancel()
            await asyncio.wait((working,))

    async def _renewed(self, last: float) -> bool:
        """Renew; False without a response. `leading` says whether we still lead."""
        left = self._terms.renew_within - (self._clock.monotonic() - last)
        try:
            async with asyncio.timeout(max(left, 0.0)):
                self.leading = await self.try_to_hold()
        except (ApiError, CallFailed, TimeoutError) as problem:
            log.warning("leader.not_renewed", extra={"why": str(problem) or "no response in time"})
            return False
        return True

    async def _give_back(self) -> None:
        lease = await self._client.find(Lease, self._name, self._namespace)
        if lease is not None and lease.spec.holder_identity == self.identity:
            await self._client.update(
                replace(lease, spec=replace(lease.spec, holder_identity="", renew_time=None))
            )
