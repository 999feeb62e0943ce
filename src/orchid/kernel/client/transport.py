"""`Transport`: how the client's requests reach a server.

There are two: kernel/outbound/https_client.py over TLS, and kernel/server/in_process/transport.py,
which calls our own chain without sockets. Neither retries or interprets objects.

Requests and responses are bytes in both. Only the events of a watch may come as cache entries
(`Events`) from a server in this process: all controllers then share one decoded object.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.https_client import JSON, HttpsClient

Events = Sequence[tuple[str, Entry[Any]]]  # of a watch: the type of each, and the object


class Transport(Protocol):
    async def send(self, method: str, target: str, body: bytes = b"", media: str = JSON) -> Answer:
        """Send a request and return the complete response; raises CallFailed without one."""

    def stream(self, target: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | Events]]:
        """Open a stream; raises ServerRefused unless the response is a success.

        Its pieces are bytes. A server in this process may return watch events instead.
        """

    async def close(self) -> None: ...


_: type[Transport] = HttpsClient
