"""A call ends in its time, whatever the server does: real sockets, real TLS, a slow server."""

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPException

import pytest

from orchid.kernel.outbound import api_connection
from orchid.kernel.outbound.api_connection import ApiConnection, failure_reason
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.outbound.time_limit import CallTooLong, TimeLimit, dial
from tests.unit.kernel.outbound.loopback import CA, PEM

WAIT = 0.2  # seconds without a byte, where a test waits for them
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n"

Answering = Callable[[ssl.SSLSocket], None]


def clock(step: float) -> Callable[[], float]:
    """A clock on which each look takes so many seconds."""
    return itertools.count(0.0, step).__next__


def bytes_one_by_one(start: bytes) -> Answering:
    """An answer in records of one byte, for as long as the client reads."""

    def answer(connection: ssl.SSLSocket) -> None:
        for byte in itertools.chain(start, itertools.repeat(ord("x"))):
            connection.send(bytes((byte,)))

    return answer


def nothing(connection: ssl.SSLSocket) -> None:
    """Read, and say nothing until the client leaves."""
    while connection.recv(4096):
        pass


def not_reading(connection: ssl.SSLSocket) -> None:
    """Read the first bytes only."""
    ended.wait()


ended = threading.Event()


@contextlib.contextmanager
def serving(answer: Answering | None) -> Iterator[ServerAccess]:
    """A server for one connection; None: it accepts the connection and never shakes hands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    ended.clear()

    def serve() -> None:
        raw, _ = listener.accept()
        with raw, contextlib.suppress(OSError):
            if answer is None:
                ended.wait()
                return
            with context.wrap_socket(raw, server_side=True) as connection:
                connection.recv(64)
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            yield ServerAccess(server=url, authority=PEM.encode())
        finally:
            ended.set()
            thread.join()


def failure_of(access: ServerAccess, limit: TimeLimit, body: bytes | None = None) -> Exception:
    api = ApiConnection(access, limit=limit)
    with contextlib.closing(api), pytest.raises((OSError, HTTPException)) as failure:
        api.send("POST" if body else "GET", "/api", body)
    return failure.value


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nServer: ", HEAD])
def test_a_server_that_sends_one_byte_at_a_time_holds_nobody(start: bytes) -> None:
    """The whole answer counts: status line, headers and body."""
    with serving(bytes_one_by_one(start)) as access:
        failure = failure_of(access, TimeLimit(30.0, 30.0, clock(0.25)))

    assert isinstance(failure, CallTooLong)
    assert failure_reason(failure) == "no complete answer within 30 seconds"


def test_the_last_wait_of_a_call_is_shorter() -> None:
    """A wait that ends with the time of the call is reported as the end of the call."""
    with serving(nothing) as access:
        failure = failure_of(access, TimeLimit(30.0, WAIT))

    assert isinstance(failure, CallTooLong)


@pytest.mark.parametrize("answer", [nothing, None], ids=["no answer", "no handshake"])
def test_silence_ends_a_call(answer: Answering | None) -> None:
    """Also where the server accepts the connection and no more."""
    with serving(answer) as access:
        failure = failure_of(access, TimeLimit(WAIT, 30.0))

    assert isinstance(failure, TimeoutError)


def test_a_server_that_does_not_read_ends_a_call() -> None:
    """The request is larger than all buffers between the two."""
    with serving(not_reading) as access:
        failure = failure_of(access, TimeLimit(WAIT, 30.0), bytes(64 << 20))

    assert isinstance(failure, TimeoutError)


def test_the_time_of_a_call_begins_with_the_call() -> None:
    """The pause before a call does not count, and the connection does."""
    limit = TimeLimit(None, 10.0, clock(4.0))
    limit.start()

    first = limit.left()
    second = limit.left()
    with pytest.raises(CallTooLong):
        limit.left()
    limit.start()

    assert (first, second) == (6.0, 2.0)
    assert limit.left() == 6.0


def test_a_wait_is_never_longer_than_the_rest_of_the_call() -> None:
    """A silent server gets the time of a wait, and at the end of a call less."""
    limit = TimeLimit(5.0, 10.0, clock(4.0))
    limit.start()

    assert (limit.left(), limit.left()) == (5.0, 2.0)


def test_a_stream_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds until its head has arrived; a watch may be silent for hours."""
    monkeypatch.setattr(api_connection, "TIMEOUT", WAIT)
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst\n"
    resumed = threading.Event()

    def answer(connection: ssl.SSLSocket) -> None:
        connection.sendall(head)
        resumed.wait(2 * WAIT)
        connection.sendall(b"second\n")

    with serving(answer) as access:
        lines = [line for _, line in ApiConnection(access).stream("/api")]

    assert lines == [b"first\n", b"second\n"]


def test_a_name_with_several_addresses_is_tried_in_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first address refuses; the second one gets the connection."""
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as listener:
        closed.bind(("127.0.0.1", 0))
        family = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        found = [(*family, one.getsockname()) for one in (closed, listener)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        with dial("two.example", 443, TimeLimit(30.0, 30.0)) as connection:
            peer = connection.getpeername()

        assert peer == listener.getsockname()


def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each address gets an equal share of the time that is left."""
    waits: list[float | None] = []

    class Deaf(socket.socket):
        def settimeout(self, value: float | None) -> None:
            waits.append(value)

        def connect(self, _: object) -> None:
            raise TimeoutError

    family = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    found = [(*family, ("127.0.0.1", port)) for port in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Deaf)
    limit = TimeLimit(30.0, 40.0, clock(10.0))
    limit.start()

    with pytest.raises(TimeoutError):
        dial("three.example", 443, limit)

    assert waits == [10.0, 10.0, 10.0]


def test_an_address_of_a_family_that_the_machine_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name with an IPv6 address on a machine without IPv6."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kind = (socket.SOCK_STREAM, 0, "")
        found = [
            (socket.AF_UNSPEC, *kind, ("::1", 443, 0, 0)),  # the system refuses such a socket
            (socket.AF_INET, *kind, listener.getsockname()),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        with dial("two.example", 443, TimeLimit(30.0, 30.0)) as connection:
            peer = connection.getpeername()

        assert peer == listener.getsockname()


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 10\r\n\r\nhalf",
        b"Content-Length: 10\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
    ids=["part of the body", "no body", "part of the chunks"],
)
def test_an_answer_that_ends_early_is_no_answer(body: bytes) -> None:
    """Somebody on the way can end a connection where they like, also without the keys."""

    def answer(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + body)

    with serving(answer) as access:
        failure = failure_of(access, TimeLimit(30.0, 30.0))

    assert isinstance(failure, HTTPException)
    assert failure_reason(failure) == "its response is not complete"
