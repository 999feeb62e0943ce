"""A store server and workers' stores at the other end of their sockets, all in one process."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from orchid.kernel.store.interface import GroupingStore
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.messages import Begin, Ready, UnfitMessage
from orchid.kernel.workers.remote_store import RemoteStore
from orchid.kernel.workers.store_server import Session, StoreServer


class Parent:
    """The parts of the parent process: a store, its server, and a session for each worker."""

    def __init__(self, store: GroupingStore, server: StoreServer, counter: SharedCounter) -> None:
        self.store = store
        self.server = server
        self.counter = counter
        self.sessions: list[Session] = []
        self.reports: list[Ready | UnfitMessage] = []

    async def connect(self) -> RemoteStore:
        """A worker's store; closed by `linked` at the end."""
        ours, theirs = socket.socketpair()
        session = await self.server.attach(ours, self.reports.append)
        self.sessions.append(session)
        session.begin(self.first_word())
        return await RemoteStore.connect(theirs, time.monotonic)

    def first_word(self) -> Begin:
        return Begin(
            given={},
            listens=True,
            prepares=False,
            controls=False,
            sockets=(),
            counter=self.counter.descriptor,
            revision=self.server.sent_revision,
            oldest=self.server.oldest,
        )


@asynccontextmanager
async def linked(store: GroupingStore) -> AsyncIterator[Parent]:
    """Serve a store until the block ends; it is closed then."""
    counter = SharedCounter.create()
    server = StoreServer(store, counter)
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        stack.callback(counter.close)
        running = asyncio.create_task(server.run())
        try:
            parent = Parent(store, server, counter)
            yield parent
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            for session in parent.sessions:
                session.close()
            await asyncio.sleep(0)
