"""The same calls to etcd through our client and through grpcio: same answers, same errors."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.kernel.store.etcd.grpc_calls import GrpcFailure, RequestHeaders, StatusReceived
from orchid.kernel.store.etcd.grpc_connection import GrpcConnection
from orchid.kernel.store.etcd.messages import (
    COMPACT,
    RANGE,
    STATUS,
    TXN,
    WATCH,
    CompactionRequest,
    KeyValue,
    Method,
    PutRequest,
    RangeRequest,
    StatusRequest,
    TxnRequest,
    WatchCreateRequest,
    WatchRequest,
)
from tests.unit.kernel.store.etcd_process import Cluster, running

grpc = pytest.importorskip("grpc")
aio = pytest.importorskip("grpc.aio")
pytestmark = pytest.mark.system_package("etcd")

LARGE = b"x" * 1_000_000
SECONDS = 20.0


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with running() as one:
        await one.wait_healthy()
        yield one


async def ours(cluster: Cluster) -> GrpcConnection:
    address = cluster.urls[0].removeprefix("http://")
    host, _, port = address.rpartition(":")
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: GrpcConnection(RequestHeaders(address, "http")), host, int(port)
    )
    await connection.ready
    return connection


def channel_to(cluster: Cluster) -> Any:
    unlimited = [("grpc.max_receive_message_length", -1)]
    return aio.insecure_channel(cluster.urls[0].removeprefix("http://"), options=unlimited)


def put(*pairs: tuple[bytes, bytes]) -> TxnRequest:
    made = TxnRequest()
    for key, value in pairs:
        made.success.add(request_put=PutRequest(key=key, value=value))
    return made


def one_range() -> TxnRequest:
    made = TxnRequest()
    made.success.add(request_range=RangeRequest(key=b"a"))
    return made


CALLS: list[tuple[Method[Any, Any], Any]] = [
    (RANGE, RangeRequest(key=b"a")),
    (RANGE, RangeRequest(key=b"\x00", range_end=b"\x00")),
    (RANGE, RangeRequest(key=b"\x00", range_end=b"\x00", limit=2)),
    (RANGE, RangeRequest(key=b"\x00", range_end=b"\x00", keys_only=True)),
    (RANGE, RangeRequest(key=b"a", revision=2)),
    (RANGE, RangeRequest(key=b"a", revision=1_000)),
    (RANGE, RangeRequest(key=b"")),
    (TXN, one_range()),
    (TXN, put((b"k", LARGE), (b"l", LARGE))),  # larger than etcd takes
    (TXN, put((b"k", LARGE * 3))),  # larger than gRPC takes there
    (TXN, put((b"k", b""), (b"k", b""))),  # the same key twice
    (COMPACT, CompactionRequest(revision=1_000)),
]


async def outcome_here(connection: GrpcConnection, method: Method[Any, Any], request: Any) -> Any:
    try:
        return method.decode(await connection.call(method.path, method.encode(request), SECONDS))
    except StatusReceived as failure:
        return failure.code, str(failure)


async def outcome_there(channel: Any, method: Method[Any, Any], request: Any) -> Any:
    call = channel.unary_unary(method.path, method.encode, method.decode)
    try:
        return await call(request, timeout=SECONDS, metadata=(("hasleader", "true"),))
    except aio.AioRpcError as error:
        return error.code().value[0], error.details()


async def test_calls_have_the_same_answers_and_errors(cluster: Cluster) -> None:
    """Pages, transactions, large values, and every refusal that the store relies on."""
    connection = await ours(cluster)
    async with channel_to(cluster) as channel:
        await outcome_here(connection, TXN, put((b"a", b"1"), (b"b", LARGE)))
        await outcome_here(connection, TXN, put((b"c", LARGE)))
        for method, request in CALLS:
            here = await outcome_here(connection, method, request)
            there = await outcome_there(channel, method, request)
            assert here == there, (method.path, str(request)[:100])
        here, there = (
            await outcome_here(connection, STATUS, StatusRequest()),
            await outcome_there(channel, STATUS, StatusRequest()),
        )
        assert here.version == there.version
    connection.close()


async def test_a_compacted_revision_is_refused_alike(cluster: Cluster) -> None:
    """Code and text, which the store compares."""
    connection = await ours(cluster)
    async with channel_to(cluster) as channel:
        for _ in range(3):
            await outcome_here(connection, TXN, put((b"a", b"1")))
        await outcome_here(connection, COMPACT, CompactionRequest(revision=3))
        request = RangeRequest(key=b"a", revision=2)

        here = await outcome_here(connection, RANGE, request)

        assert here == await outcome_there(channel, RANGE, request)
        assert "compacted" in here[1]
    connection.close()


async def test_watches_have_the_same_events(cluster: Cluster) -> None:
    """Many events, large ones among them, from the past and as they happen."""
    connection = await ours(cluster)
    request = WatchRequest(
        create_request=WatchCreateRequest(key=b"\x00", range_end=b"\x00", start_revision=2)
    )
    pairs = [(b"k%d" % number, b"v" * (number * 5_000)) for number in range(100)]
    for pair in pairs[:50]:
        await outcome_here(connection, TXN, put(pair))
    async with channel_to(cluster) as channel:
        there = channel.stream_stream(WATCH.path, WATCH.encode, WATCH.decode)()
        await there.write(request)
        here = connection.stream(WATCH.path)
        here.write(WATCH.encode(request))
        for pair in pairs[50:]:
            await outcome_here(connection, TXN, put(pair))

        async def read_here() -> Any:
            message = await here.read()
            assert message is not None
            return WATCH.decode(message)

        assert await events(read_here, 100) == await events(there.read, 100)
        there.cancel()
    connection.close()


async def events(read: Any, count: int) -> list[tuple[bytes, bytes]]:
    found: list[KeyValue] = []
    async with asyncio.timeout(SECONDS):
        while len(found) < count:
            found += [event.kv for event in (await read()).events]
    return [(kv.key, kv.value) for kv in found]


async def test_a_member_that_is_killed_leaves_no_call_waiting(cluster: Cluster) -> None:
    """Calls and watches fail at once, and say that the outcome is open."""
    connection = await ours(cluster)
    watch = connection.stream(WATCH.path)
    watch.write(WATCH.encode(WatchRequest(create_request=WatchCreateRequest(key=b"a"))))
    await watch.read()

    cluster.members[0].kill()

    with pytest.raises(GrpcFailure):
        await watch.read()
    assert not connection.is_ready
