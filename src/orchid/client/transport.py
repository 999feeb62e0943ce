"""`Transport`: how the client's requests reach a server.

There are two: outbound/https_client.py over TLS, and server/sockets/in_process.py, which calls our
own chain without sockets. Neither retries, and neither knows what an object is.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from orchid.outbound.answer import Answer
from orchid.outbound.https_client import JSON, HttpsClient, Pieces


class Transport(Protocol):
    async def send(self, method: str, target: str, body: bytes = b"", media: str = JSON) -> Answer:
        """Send one request and wait for the whole answer; raises CallFailed without one."""

    def stream(self, target: str) -> AbstractAsyncContextManager[Pieces]:
        """Open a stream; raises ServerRefused unless the answer is a success."""

    async def close(self) -> None: ...


_: type[Transport] = HttpsClient
