"""A store that can be disconnected and reconnected, to test recovery."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from orchid.kernel.store.interface import (
    Batch,
    Change,
    DeleteRange,
    Page,
    Revision,
    Span,
    StoreUnavailable,
)
from orchid.kernel.store.memory import MemoryStore


class TroubledStore:
    """A store in memory that can be cut off, and whose watchers can be made to fall behind."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.down = False
        self._cut = asyncio.Event()

    def cut(self) -> None:
        self.down = True
        self._cut.set()

    def mend(self) -> None:
        self.down = False
        self._cut = asyncio.Event()

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailable("nobody there")

    async def read(self, span: Span, *, at: Revision = -1, limit: int = 0) -> Page:
        self._check()
        return await self.inner.read(span, at=at, limit=limit)

    async def commit(
        self, changes: Sequence[Change], delete: DeleteRange | None = None
    ) -> Revision:
        self._check()
        return await self.inner.commit(changes, delete)

    async def watch(self, span: Span, *, after: Revision) -> AsyncGenerator[Batch, None]:
        self._check()
        batches, cut = self.inner.watch(span, after=after), self._cut
        while True:
            following = asyncio.ensure_future(anext(batches))
            cutting = asyncio.ensure_future(cut.wait())
            try:
                await asyncio.wait((following, cutting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                cutting.cancel()
                following.cancel()  # which does nothing to one that is done
            if cut.is_set():
                raise StoreUnavailable("cut off")
            yield following.result()

    async def revision(self) -> Revision:
        self._check()
        return await self.inner.revision()

    async def may_compact(self) -> bool:
        return await self.inner.may_compact()

    async def compact(self, before: Revision) -> None:
        await self.inner.compact(before)

    async def close(self) -> None:
        await self.inner.close()
