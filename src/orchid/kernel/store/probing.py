"""A probe of a remote store.

A watch is silent while nothing changes, so that an etcd that hangs without closing its connections
looks like a quiet one for more than a minute. `StoreProbe` requests the newest revision every few
seconds, and reports a store that does not respond in time. The worst case from the hang to the
report is INTERVAL_SECONDS + ANSWER_SECONDS, which is below the 10 s that load balancers are
promised.
"""

import asyncio
import logging
from typing import Final

from orchid.kernel.store.interface import Store, StoreClosed, StoreError

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0  # an election of etcd takes one or two


class StoreProbe:
    """The result of the last probe: `problem` is None if the store responded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.problem: str | None = None
        self.closed = False  # the store does not work any more: only a restart helps

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def ask(self) -> None:
        """Probe once, with a timeout."""
        before = self.problem
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._store.revision()
        except TimeoutError:
            self.problem = f"the store has not answered for {ANSWER_SECONDS:.0f} s"
        except StoreError as error:
            self.problem = f"the store does not answer: {error}"
            self.closed = isinstance(error, StoreClosed)
        else:
            self.problem, self.closed = None, False
        if before is None and self.problem is not None:
            log.warning("store.silent: %s", self.problem)
        elif before is not None and self.problem is None:
            log.info("store.answers_again")
