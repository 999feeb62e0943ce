"""A TCP balancer on loopback: one address for several servers, as users put before them.

Each connection goes to the next server that accepts one. It knows nothing of TLS or HTTP.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

CHUNK = 64 * 1024


class Balancer:
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._next = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = await self._backend()
        if backend is not None:
            pipes = [_pipe(reader, backend[1]), _pipe(backend[0], writer)]
            await asyncio.wait(
                [asyncio.create_task(pipe) for pipe in pipes],
                return_when=asyncio.FIRST_COMPLETED,
            )
            backend[1].close()
        writer.close()

    async def _backend(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


@contextmanager
def balancing(ports: Sequence[int]) -> Iterator[int]:
    """Serve on a port until the block ends."""
    loop, ready, bound = asyncio.new_event_loop(), threading.Event(), []
    stop = asyncio.Event()

    async def run() -> None:
        server = await asyncio.start_server(Balancer(ports).serve, "127.0.0.1", 0)
        bound.append(server.sockets[0].getsockname()[1])
        ready.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield bound[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
