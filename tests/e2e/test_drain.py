"""SIGTERM: watches end properly, requests under way are answered, nobody new gets in."""

import http.client
import json
import signal
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
HEADERS = {"Authorization": "Bearer admin-token-0001", "Content-Type": "application/json"}


@contextmanager
def connected(server: Server) -> Iterator[http.client.HTTPSConnection]:
    tls = ssl.create_default_context(cafile=str(server.data_dir / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=tls, timeout=30)
    with closing(connection):
        yield connection


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("--controllers", "")


def test_watches_end_properly(server: Server) -> None:
    """A watcher gets its last events and the end of the stream, not a broken connection."""
    with connected(server) as watching, connected(server) as writing:
        watching.request("GET", f"{ACCOUNTS}?watch=1", headers=HEADERS)
        stream = watching.getresponse()
        body = json.dumps({"metadata": {"name": "last"}})
        writing.request("POST", ACCOUNTS, body, HEADERS)
        assert writing.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        events = [json.loads(line) for line in stream.read().splitlines()]  # raises if cut short

    assert events[-1]["object"]["metadata"]["name"] == "last"
    assert server.process.wait(20) == 0


def test_requests_under_way_are_finished(server: Server) -> None:
    """Requests in flight at the signal get their complete answers."""
    with connected(server) as asking, ThreadPoolExecutor() as threads:
        # This one waits three seconds for a revision that does not come.
        asking.request("GET", f"{ACCOUNTS}?resourceVersion={2**60}", headers=HEADERS)
        answer = threads.submit(asking.getresponse)
        wait_until_asked(server)
        server.process.send_signal(signal.SIGTERM)
        status = json.loads(answer.result().read())

    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert server.process.wait(20) == 0


def wait_until_asked(server: Server) -> None:
    """Another request, sent later, has been answered: the first one has arrived by then."""
    with connected(server) as other:
        other.request("GET", "/livez")
        assert other.getresponse().read() == b"ok"


def test_nobody_new_gets_in(server: Server) -> None:
    """After the signal the port is closed to new clients."""
    with connected(server) as asking:
        asking.request("GET", f"{ACCOUNTS}?resourceVersion={2**60}", headers=HEADERS)
        wait_until_asked(server)
        server.process.send_signal(signal.SIGTERM)
        assert asking.getresponse().read()
        with connected(server) as late, pytest.raises(OSError, match=r"refused|reset|closed"):
            late.connect()

    assert server.process.wait(20) == 0
