"""Follow approval policies: all of them compiled and indexed, or none at all.

Reads   approvalpolicies
Writes  /status: not Ready, if a stored policy cannot be compiled; Ready, if it can again; not
        Ready, if its rules exceeded their limits
Never   decides anything: approve_requests.py does

Start with `PolicyFollower.follow`. Until every policy is loaded `loaded` raises TryAgain, so that
nothing is decided with a part of them. Since a watch may be late, check before a decision that the
policy (`is_current`), or all of them (`all_current`), are still the ones that were evaluated.
"""

import asyncio
import contextlib
from collections.abc import Callable

from orchid.features.approval.compiled import CompiledPolicy
from orchid.features.approval.policy_index import PolicyIndex
from orchid.features.approving.kinds.approval_policy import (
    ApprovalPolicy,
    compiled,
    too_slow,
    with_usability,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.errors import Conflict, NotFound
from orchid.kernel.wire.meta import Object

POLICIES = ListSelection(ApprovalPolicy)
VERSIONS = ListSelection(ApprovalPolicy, read_as=Object)


class PolicyFollower:
    """The current policies."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._compiler = Compiler()
        self._index: PolicyIndex | None = None
        self.all_loaded = asyncio.Event()

    @property
    def loaded(self) -> PolicyIndex:
        """All policies; raises TryAgain until all of them are loaded."""
        if self._index is None:
            raise TryAgain("not every approval policy is loaded yet")
        return self._index

    @property
    def any(self) -> bool:
        """Whether there may be a policy; True until all are loaded."""
        return self._index is None or len(self._index) > 0

    def forget(self) -> None:
        """Start over: nothing is decided until all policies are loaded again."""
        self._index = None
        self.all_loaded.clear()

    async def follow(self, changed: Callable[[], None]) -> None:
        """Follow all policies; `changed` is called after each change, not for the first list."""
        index = PolicyIndex()
        async with contextlib.aclosing(self._client.follow(POLICIES)) as batches:
            async for batch in batches:
                for event in batch:
                    await self._take(event, index)
                if not batch:
                    self._index = index
                    self.all_loaded.set()
                elif self._index is not None:
                    changed()

    async def is_current(self, policy: CompiledPolicy) -> bool:
        live = await self._client.find(ApprovalPolicy, policy.name)
        return live is not None and live.metadata.resource_version == policy.revision

    async def pause(self, policy: CompiledPolicy) -> None:
        """Mark a policy that exceeded its limits as not Ready, unless it has changed since."""
        live = await self._client.find(ApprovalPolicy, policy.name)
        if live is None or live.metadata.resource_version != policy.revision:
            return
        with contextlib.suppress(Conflict, NotFound):
            await self._client.update_status(too_slow(live, policy.exceeded, self._clock.now()))

    async def all_current(self) -> bool:
        """Whether the loaded policies are the current ones."""
        revisions = {policy.name: policy.revision for policy in self.loaded}
        live = {
            stored.name: stored.metadata.resource_version
            async for stored in self._client.scan(VERSIONS)
        }
        return live == revisions

    async def _take(self, event: WatchedChange[ApprovalPolicy], index: PolicyIndex) -> None:
        policy = event.object
        if event.type == DELETED:
            index.remove(policy.name)
            return
        compiled_policy = await asyncio.to_thread(compiled, policy, self._compiler)
        index.put(compiled_policy)
        current = with_usability(policy, compiled_policy.unusable, self._clock.now())
        if current != policy:
            # A conflicting write has its own event, which triggers this again.
            with contextlib.suppress(Conflict, NotFound):
                await self._client.update_status(current)
