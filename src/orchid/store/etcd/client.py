"""A thin client of etcd: calls and watches over several endpoints, with TLS.

Start with `EtcdClient`. One endpoint is in use; when it fails, the next one is, and calls that may
be repeated are, until their time is up. `call` is for what may be done twice; `once` is for what
may not: when its outcome is not known it raises `Undecided`, and never tries again by itself.
StoreFull leaves the outcome open too: etcd says so also of what it has carried out.

Every call asks its member for a leader, so that a member cut off from the others fails at once and
does not answer with old data. Never logs or shows a key, a value or a certificate.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
import msgspec

from orchid.store.etcd.messages import (
    STATUS,
    WATCH,
    Method,
    StatusRequest,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from orchid.store.interface import (
    ABSENT,
    Revision,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
    ValueTooLarge,
)

log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

ATTEMPT_SECONDS: Final = 2.5  # a member's time for a call that another could answer
PAUSE_SECONDS: Final = 0.05  # between attempts, so that a dead cluster is not hammered
_METADATA: Final = (("hasleader", "true"),)
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # pages are bounded by what we ask for
    ("grpc.max_send_message_length", -1),  # etcd says what is too large
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also the time a connection has to be made
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd refuses more than one ping in 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel does not inherit an old one's back-off
)
_FORM: Final = "etcd: an endpoint is http://HOST:PORT or https://HOST:PORT"  # repeats no password
_Code = grpc.StatusCode
# Another member may answer; whether this one did what it was asked is not known.
_LOST: Final = frozenset(
    {_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.CANCELLED, _Code.INTERNAL, _Code.UNKNOWN}
)


class Lost(StoreUnavailable):
    """One member did not answer; another may."""


class Undecided(Lost):
    """The call may have been carried out, or may yet be."""


class RevisionGone(Exception):
    """etcd says that a revision has been compacted; only to a watch does it say up to which."""

    def __init__(self, compacted: Revision = ABSENT) -> None:
        super().__init__(compacted)
        self.compacted = compacted


class TLSFiles(msgspec.Struct, frozen=True):
    """The CA and the client certificate; read for each new connection, so they can be renewed."""

    ca: Path | None = None  # None: what the system trusts
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> Any:
        if (self.certificate is None) != (self.key is None):
            raise StoreUnusable(
                "etcd: a client certificate needs its key, and a key its certificate"
            )
        try:
            ca, key, certificate = (
                path.read_bytes() if path else None
                for path in (self.ca, self.key, self.certificate)
            )
        except OSError as error:
            raise StoreUnusable(f"etcd: {error.filename}: {error.strerror}") from error
        return grpc.ssl_channel_credentials(ca, key, certificate)


class EtcdEndpoint:
    """One member's address, and the connection to it."""

    def __init__(self, address: str, tls: TLSFiles | None) -> None:
        self.address = address
        self._tls = tls
        self._channel: Any = None
        self._calls: dict[str, Any] = {}

    def is_ready(self) -> bool:
        """Whether a call made now goes out at once."""
        state = self._channel and self._channel.get_state(try_to_connect=True)
        return state is grpc.ChannelConnectivity.READY

    async def invoke(self, method: Method[Q, A], request: Q, seconds: float) -> A:
        """Make a call. Raises Undecided or another StoreUnavailable if it is lost, not answered."""
        made = self._calls.get(method.path)
        if made is None:
            made = self._calls[method.path] = self._open().unary_unary(
                method.path, method.encode, method.decode
            )
        try:
            answer: A = await made(request, timeout=seconds, metadata=_METADATA)
        except grpc.aio.AioRpcError as error:
            raise _judge(error, self.address) from None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise Undecided(f"etcd {self.address}: the connection was closed") from None
        return answer

    def watch(self) -> Any:
        return self._open().stream_stream(WATCH.path, WATCH.encode, WATCH.decode)(
            metadata=_METADATA
        )

    async def renew(self) -> None:
        """Make a new channel with the current certificates, if no connection can be made."""
        failed = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        if self._tls is not None and self._channel and self._channel.get_state() is failed:
            await self.close()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self._calls = {}
        if channel is not None:
            await channel.close()

    def _open(self) -> Any:
        if self._channel is None:
            if self._tls is None:
                self._channel = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(
                    self.address, self._tls.credentials(), options=_OPTIONS
                )
        return self._channel


class EtcdClient:
    """Calls to whichever endpoint answers. Belongs to one event loop; `close` it."""

    def __init__(self, endpoints: Sequence[str], tls: TLSFiles, *, timeout: float) -> None:
        self._endpoints = _parse(endpoints, tls)
        self._current = 0
        self._closed = False
        self.timeout = timeout

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Ask until somebody answers; for what may be done twice."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout
        while True:
            endpoint = self._endpoint()
            try:
                return await endpoint.invoke(
                    method, request, min(ATTEMPT_SECONDS, deadline - clock())
                )
            except Lost:
                await self._leave(endpoint)
                if clock() + PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def once(self, method: Method[Q, A], request: Q) -> A:
        """Ask one member, at most once; raises Undecided when the outcome is not known."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout
        while True:
            if not self._endpoint().is_ready():
                await self.call(STATUS, StatusRequest())  # finds one that is there, or says why not
            endpoint = self._endpoint()
            try:
                return await endpoint.invoke(method, request, self.timeout)
            except Lost as lost:
                await self._leave(endpoint)
                if isinstance(lost, Undecided) or clock() + PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def watch(self, request: WatchCreateRequest) -> AsyncIterator["EtcdWatch"]:
        """Open a watch on the endpoint in use; if that fails, the next watch tries another."""
        endpoint = self._endpoint()
        stream = endpoint.watch()
        try:
            await stream.write(WatchRequest(create_request=request))
            yield EtcdWatch(stream, endpoint.address)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            await self._leave(endpoint)
            raise _judge(error, endpoint.address) from None
        except Lost:
            await self._leave(endpoint)
            raise
        finally:
            stream.cancel()

    async def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints:
            await endpoint.close()

    def _endpoint(self) -> EtcdEndpoint:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._endpoints[self._current]

    async def _leave(self, endpoint: EtcdEndpoint) -> None:
        """Use the next endpoint from now on, unless another call has seen to that already."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)
        await endpoint.renew()


class EtcdWatch:
    """The answers of one watch, as they come."""

    def __init__(self, stream: Any, address: str) -> None:
        self._stream = stream
        self._address = address

    async def next(self) -> WatchResponse:
        """Wait for the next answer, however long that takes."""
        try:
            answer = await self._stream.read()
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise Lost(f"etcd {self._address}: the watch has stalled") from None
        if answer is grpc.aio.EOF:
            raise Lost(f"etcd {self._address}: the watch was ended")
        response: WatchResponse = answer
        return response

    def give_up(self) -> None:
        """Make `next` raise Lost, for another endpoint to be tried."""
        self._stream.cancel()


def _parse(endpoints: Sequence[str], tls: TLSFiles) -> list[EtcdEndpoint]:
    """Read addresses such as `https://etcd-1:2379`; all of them speak TLS, or none."""
    if not endpoints:
        raise StoreUnusable("etcd: no endpoint is given")
    made = []
    for text in endpoints:
        try:
            url = urlsplit(text if "://" in text else f"http://{text}")
            port = url.port or 2379
        except ValueError as error:
            raise StoreUnusable(_FORM) from error
        rest = url.path.strip("/") or url.query or url.fragment or url.username or url.password
        if url.scheme not in ("http", "https") or not url.hostname or rest:
            raise StoreUnusable(_FORM)
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        made.append((url.scheme, f"{host}:{port}"))
    if len({scheme for scheme, _ in made}) > 1:
        raise StoreUnusable("etcd: either all endpoints are https or none is")
    secure = made[0][0] == "https"
    if not secure and tls != TLSFiles():
        raise StoreUnusable("etcd: certificates are given, but the endpoints are not https")
    if secure:
        tls.credentials()  # a file that cannot be read is told at once
    return [EtcdEndpoint(address, tls if secure else None) for _, address in made]


def _judge(error: Exception, address: str) -> "Lost":
    """Raise what is a plain answer; give back what another endpoint might do better."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return Undecided(f"etcd {address}: the connection was lost")
    code, details = error.code(), error.details() or ""
    if "revision has been compacted" in details:
        raise RevisionGone
    if "too large" in details or "larger than max" in details:
        raise ValueTooLarge("the commit is larger than etcd takes (its --max-request-bytes)")
    if "database space exceeded" in details:
        raise StoreFull("etcd: its database has no space left (its --quota-backend-bytes)")
    text = f"etcd {address}: {details or code.name}"
    if "no leader" in details or "too many requests" in details:
        return Lost(text)  # refused before it began
    if code in _LOST:
        return Undecided(text)
    raise StoreUnavailable(
        text
    )  # such as a permission that is missing: no other member has it either


def _is_cancelled() -> bool:
    """Whether it is the running task that was cancelled, and not the call it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
