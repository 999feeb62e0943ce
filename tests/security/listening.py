"""A server on a socket of its own, and short ways to ask it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchid.server.sockets.listener import Listener
from tests.api.world import Api
from tests.unit.server.listening import Client, Running

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@asynccontextmanager
async def listening(server: Api) -> AsyncIterator[Running]:
    """The server on a socket of its own, as a client on the network finds it."""
    listener: Listener = server.server.listener()
    await listener.start()
    running = Running(listener, [])
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        await listener.drain(1)


async def asked(client: Client, *lines: str, target: str = ACCOUNTS) -> int:
    client.get(target, *lines)
    return (await client.answer()).status


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"
