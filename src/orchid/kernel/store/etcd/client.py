"""A thin client of etcd: calls and watches over several endpoints, with TLS.

Start with `EtcdClient`. One endpoint is in use; when it fails, the next one is. `call` is for
idempotent calls: it retries until the time is up. `once` is for others: with an unknown outcome it
raises `Undecided`, and never retries by itself. StoreFull leaves the outcome open too: etcd also
responds with it to a call that it has executed.

Every call requires that the member has a leader, so that an isolated member fails immediately
instead of returning old data. No key, value or certificate is ever logged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from google.protobuf.message import DecodeError

from orchid.kernel.store.etcd.grpc_calls import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    UNAVAILABLE,
    UNKNOWN,
    GrpcFailure,
    NotProcessed,
    RequestHeaders,
    StatusReceived,
)
from orchid.kernel.store.etcd.grpc_connection import GrpcConnection
from orchid.kernel.store.etcd.grpc_stream import GrpcStream
from orchid.kernel.store.etcd.messages import (
    WATCH,
    Method,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from orchid.kernel.store.interface import (
    ABSENT,
    Revision,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
    ValueTooLarge,
)

Q = TypeVar("Q")
A = TypeVar("A")

ATTEMPT_SECONDS: Final = 2.5  # a member's time for a call that another could serve
CONNECT_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.05  # between attempts
RETRY_SECONDS: Final = 0.1  # between two connections to the same member
_FORM: Final = "etcd: an endpoint is http://HOST:PORT or https://HOST:PORT"  # repeats no password
# Another member may respond; whether this one executed the call is unknown.
_UNKNOWN_OUTCOME: Final = frozenset({UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL, UNKNOWN})


class Lost(StoreUnavailable):
    """One member did not respond; another may."""


class Undecided(Lost):
    """The call may have been executed, or may yet be."""


class RevisionGone(Exception):
    """etcd has compacted a revision; only a watch is informed up to which."""

    def __init__(self, compacted: Revision = ABSENT) -> None:
        super().__init__(compacted)
        self.compacted = compacted


class TLSFiles(msgspec.Struct, frozen=True):
    """The CA and the client certificate; read for each new connection, so they can be renewed."""

    ca: Path | None = None  # None: the CAs of the system
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        if (self.certificate is None) != (self.key is None):
            raise StoreUnusable(
                "etcd: a client certificate needs its key, and a key its certificate"
            )
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise StoreUnusable(f"etcd: a CA or client certificate: {error.reason}") from error
        except OSError as error:
            raise StoreUnusable(f"etcd: {self._unreadable()}: {error.strerror}") from error
        context.set_alpn_protocols(["h2"])
        return context

    def _unreadable(self) -> str:
        for path in (self.ca, self.certificate, self.key):
            try:
                if path is not None:
                    path.read_bytes()
            except OSError:
                return str(path)
        return "a certificate"


class EtcdEndpoint:
    """A member's URL, and the connection to it."""

    def __init__(self, host: str, port: int, tls: TLSFiles | None) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host, self._port = host, port
        self._tls = tls
        self._headers = RequestHeaders(self.address, "https" if tls else "http")
        self._connection: GrpcConnection | None = None
        self._connecting: asyncio.Task[GrpcConnection] | None = None
        self._failed = (0.0, "")  # time and reason of the last failed connection

    async def invoke(self, method: Method[Q, A], request: Q, seconds: float) -> A:
        """Make a call. Raises Undecided or another StoreUnavailable without a response."""
        connection = self._connection
        if connection is None or not connection.is_ready:
            connection = await self._connect(seconds)
        try:
            answer = await connection.call(method.path, method.encode(request), seconds)
        except GrpcFailure as failure:
            raise _judge(failure, self.address) from None
        try:
            return method.decode(answer)
        except DecodeError:
            raise Undecided(f"etcd {self.address}: an answer that cannot be read") from None

    async def watch(self) -> GrpcStream:
        connection = self._connection
        if connection is None or not connection.is_ready:
            connection = await self._connect(CONNECT_SECONDS)
        try:
            return connection.stream(WATCH.path)
        except GrpcFailure as failure:
            raise _judge(failure, self.address) from None

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _connect(self, seconds: float) -> GrpcConnection:
        """The connection being opened, for all calls that wait for it."""
        await asyncio.sleep(0)  # from here on there is a task, which asyncio.timeout needs
        if self._connection is not None and self._connection.is_ready:
            return self._connection
        clock = asyncio.get_running_loop().time
        if self._connecting is None:
            when, why = self._failed
            if clock() - when < RETRY_SECONDS:
                raise Lost(why)
            self._connecting = asyncio.create_task(self._make_connection())
            self._connecting.add_done_callback(self._connected)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._connecting)
        except TimeoutError:
            raise Lost(f"etcd {self.address}: no connection in time") from None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise Lost(f"etcd {self.address}: the client was closed") from None

    def _connected(self, connecting: "asyncio.Task[GrpcConnection]") -> None:
        self._connecting = None
        if connecting.cancelled():
            return
        if error := connecting.exception():
            self._failed = (asyncio.get_running_loop().time(), str(error))
        else:
            self._connection = connecting.result()

    async def _make_connection(self) -> GrpcConnection:
        loop = asyncio.get_running_loop()
        connection: GrpcConnection | None = None
        try:
            # The files are read for each connection, so that certificates can be renewed.
            context = self._tls.context() if self._tls else None
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, connection = await loop.create_connection(
                    lambda: GrpcConnection(self._headers), self._host, self._port, ssl=context
                )
                tls = transport.get_extra_info("ssl_object")
                if tls is not None and tls.selected_alpn_protocol() != "h2":
                    raise Lost(f"etcd {self.address}: it does not speak HTTP/2")
                await connection.ready
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError | TimeoutError | GrpcFailure | StoreUnusable):
                reason = str(error) or "no connection in time"
                raise Lost(f"etcd {self.address}: {reason}") from error
            raise
        return connection


class EtcdClient:
    """Calls to any endpoint that responds. Belongs to one event loop; `close` it."""

    def __init__(self, endpoints: Sequence[str], tls: TLSFiles, *, timeout: float) -> None:
        self._endpoints = _parse(endpoints, tls)
        self._current = 0
        self._closed = False
        self.timeout = timeout

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Retry until a member responds; for calls that may be executed twice."""
        return await self._try(method, request, repeat=True)

    async def once(self, method: Method[Q, A], request: Q) -> A:
        """Execute a call at most once; raises Undecided if the outcome is unknown."""
        return await self._try(method, request, repeat=False)

    async def _try(self, method: Method[Q, A], request: Q, *, repeat: bool) -> A:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout
        while True:
            endpoint = self._endpoint()
            seconds = deadline - clock()
            try:
                return await endpoint.invoke(
                    method, request, min(ATTEMPT_SECONDS, seconds) if repeat else seconds
                )
            except Lost as lost:
                self._leave(endpoint)
                undecided = isinstance(lost, Undecided) and not repeat
                if undecided or clock() + PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def watch(self, request: WatchCreateRequest) -> AsyncIterator["EtcdWatch"]:
        """Open a watch on the current endpoint; if that fails, the next watch tries another."""
        endpoint, stream = self._endpoint(), None
        try:
            stream = await endpoint.watch()
            stream.write(WATCH.encode(WatchRequest(create_request=request)))
            yield EtcdWatch(stream, endpoint.address)
        except Lost:
            self._leave(endpoint)
            raise
        finally:
            if stream is not None:
                stream.cancel()

    async def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints:
            endpoint.close()

    def _endpoint(self) -> EtcdEndpoint:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._endpoints[self._current]

    def _leave(self, endpoint: EtcdEndpoint) -> None:
        """Use the next endpoint from now on, unless another call has already done so."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)


class EtcdWatch:
    """The responses of one watch."""

    def __init__(self, stream: GrpcStream, address: str) -> None:
        self._stream = stream
        self._address = address

    async def next(self) -> WatchResponse:
        """Wait for the next response, however long that takes."""
        try:
            answer = await self._stream.read()
        except GrpcFailure as failure:
            raise _judge(failure, self._address) from None
        if answer is None:
            raise Lost(f"etcd {self._address}: the watch was ended")
        return WATCH.decode(answer)

    def give_up(self) -> None:
        """Make `next` raise Lost, so that another endpoint is tried."""
        self._stream.cancel(NotProcessed("the watch has stalled"))


def _parse(endpoints: Sequence[str], tls: TLSFiles) -> list[EtcdEndpoint]:
    """Parse URLs such as `https://etcd-1:2379`; all of them use TLS, or none."""
    if not endpoints:
        raise StoreUnusable("etcd: no endpoint is given")
    addresses = []
    for text in endpoints:
        try:
            url = urlsplit(text if "://" in text else f"http://{text}")
            port = url.port or 2379
        except ValueError as error:
            raise StoreUnusable(_FORM) from error
        rest = url.path.strip("/") or url.query or url.fragment or url.username or url.password
        if url.scheme not in ("http", "https") or not url.hostname or rest:
            raise StoreUnusable(_FORM)
        addresses.append((url.scheme, url.hostname, port))
    if len({scheme for scheme, _, _ in addresses}) > 1:
        raise StoreUnusable("etcd: either all endpoints are https or none is")
    secure = addresses[0][0] == "https"
    if not secure and tls != TLSFiles():
        raise StoreUnusable("etcd: certificates are given, but the endpoints are not https")
    if secure:
        tls.context()  # reports an unreadable file before anything is tried
    return [EtcdEndpoint(host, port, tls if secure else None) for _, host, port in addresses]


def _judge(failure: GrpcFailure, address: str) -> Lost:
    """Raise a final error; return a failure that another endpoint may not have."""
    details = str(failure)
    text = f"etcd {address}: {details}"
    if not isinstance(failure, StatusReceived):
        return Lost(text) if isinstance(failure, NotProcessed) else Undecided(text)
    if "revision has been compacted" in details:
        raise RevisionGone
    if "too large" in details or "larger than max" in details:
        raise ValueTooLarge("the commit is larger than etcd takes (its --max-request-bytes)")
    if "database space exceeded" in details:
        raise StoreFull("etcd: its database has no space left (its --quota-backend-bytes)")
    if "no leader" in details or "too many requests" in details:
        return Lost(text)  # refused before it began
    if failure.code in _UNKNOWN_OUTCOME:
        return Undecided(text)
    raise StoreUnavailable(text)  # such as a missing permission: no other member grants it either


def _is_cancelled() -> bool:
    """Whether the running task was cancelled, and not the call it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
