"""A server on a socket of its own, and short ways to ask it."""

from contextlib import AbstractAsyncContextManager

from tests.api.world import Api
from tests.unit.kernel.http.listening import Client, Running, started

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def listening(server: Api) -> AbstractAsyncContextManager[Running]:
    """The server on a socket of its own, as a client on the network finds it."""
    return started(server.server.listener())


async def asked(client: Client, *lines: str, target: str = ACCOUNTS) -> int:
    client.get(target, *lines)
    return (await client.answer()).status


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"
