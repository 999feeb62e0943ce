"""The client's transport into our own chain, without sockets.

`InProcessTransport` builds an `HttpRequest` and calls the listener's handler, so that an internal
request is authenticated, authorized, admitted and audited like any other. The `Peer` identifies the
caller: see kernel/access/authenticators/in_process.py. Watch events are read as objects, which
saves encoding and decoding.

A watcher that leaves too much unread is disconnected, like a client behind a socket.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from orchid.kernel.client.transport import Events, Transport
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.http.messages import Chunk, Handler, HeadMemo, HttpRequest, Peer, Response, Sink
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused, ServerUnreachable, TimedOut
from orchid.kernel.outbound.https_client import JSON, ServerRefused

MAX_UNREAD = 64 << 20  # many batches of a busy server fit
TIMEOUT = 60.0


class InProcessTransport:
    """Requests of one caller, straight into a handler."""

    def __init__(
        self, handler: Handler, peer: Peer, user_agent: str, credential: SecretValue | None = None
    ) -> None:
        """`credential`: a bearer token, for a peer that is not a component of this process."""
        self._handler = handler
        self._credential = credential
        self._peer = peer
        self._user_agent = user_agent
        # Headers and their memo, by the media types of body and response: a few.
        self._heads: dict[tuple[str, str], tuple[dict[str, str], HeadMemo]] = {}

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = JSON, *, accept: str = ""
    ) -> Answer:
        if asyncio.current_task() is None:
            await asyncio.sleep(0)  # a page may have none yet, and a timeout needs one
        request = self._request(method, target, body, media, accept)
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._handler(request)
        except TimeoutError:
            raise TimedOut(f"no answer within {TIMEOUT:g} seconds") from None
        if isinstance(answer, Response):
            return Answer(answer.status, bytes(answer.body))
        answer.open(_Reading.closed_one())
        raise AnswerRefused("the answer is a stream")

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes | Events]]:
        answer = await self._handler(self._request("GET", target, b"", JSON))
        if isinstance(answer, Response):
            raise ServerRefused(Answer(answer.status, bytes(answer.body)))
        reading = _Reading()
        answer.open(reading)
        try:
            yield reading.pieces()
        finally:
            reading.finish()

    async def close(self) -> None:
        """Nothing is open between two requests."""

    def _request(
        self, method: str, target: str, body: bytes, media: str, accept: str = ""
    ) -> HttpRequest:
        path, _, query = target.partition("?")
        head = self._heads.get((media, accept))
        if head is None:
            headers = {"user-agent": self._user_agent, "content-type": media}
            if accept:
                headers["accept"] = accept
            if self._credential is not None:
                headers["authorization"] = f"Bearer {self._credential.reveal()}"
            head = (headers, HeadMemo())
            self._heads[media, accept] = head
        return HttpRequest(
            method, target, path, query, head[0], self._peer, body=body, memo=head[1]
        )


class _Reading:
    """The sink of a stream that is read in this process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Chunk] = deque()
        self._unread = 0
        self._reader: asyncio.Future[None] | None = None
        self._next_step: Callable[[], None] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._closed = self._cut_off = False

    @classmethod
    def closed_one(cls) -> "_Reading":
        reading = cls()
        reading.finish()
        return reading

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, chunk: Chunk) -> None:
        if self._closed:
            return
        self._waiting.append(chunk)
        self._unread += len(chunk.data)
        if self._unread > MAX_UNREAD:
            self.abort()
        elif self._reader is not None:
            self._wake()

    def when_taken(self, step: Callable[[], None]) -> None:
        if self._waiting:
            self._next_step = step
        else:
            self._loop.call_soon(step)

    def finish(self) -> None:
        self._closed = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._loop.call_soon(callback)
        self._wake()

    def abort(self) -> None:
        self._cut_off = True
        self.finish()

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._closed:
            self._loop.call_soon(callback)
        else:
            self._callbacks.append(callback)

    async def pieces(self) -> AsyncIterator[bytes | Events]:
        while True:
            if self._waiting:
                chunk = self._waiting.popleft()
                self._unread -= len(chunk.data)
                if self._next_step is not None and not self._waiting:
                    self._loop.call_soon(self._next_step)
                    self._next_step = None
                yield chunk.events or chunk.data
            elif self._cut_off:
                raise ServerUnreachable("the stream was cut off: too much was left unread")
            elif self._closed:
                return
            else:
                self._reader = self._loop.create_future()
                await self._reader

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


_: type[Transport] = InProcessTransport
__: type[Sink] = _Reading
