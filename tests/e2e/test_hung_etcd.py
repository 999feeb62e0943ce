"""An etcd that hangs without closing its connections: the server says so, and answers all the same.

etcd is stopped by SIGSTOP. The kernel still accepts connections for it and acknowledges what is
sent, so that only missing answers show it.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.store import etcd_process
from tests.unit.kernel.store.etcd_process import Member

pytestmark = pytest.mark.system_package("etcd")

ADMIN = tokens_by_user()["admin"]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PATIENCE = 30.0  # of tests on a busy machine; the probe's own times are held by its unit test


@pytest.fixture
def etcd() -> Iterator[Member]:
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        yield cluster.members[0]


@pytest.fixture
def server(tmp_path: Path, etcd: Member) -> Iterator[Server]:
    flags = ("--etcd-servers", etcd.url, "--token-auth-file", str(TOKENS), "--controllers", "")
    with running_server(tmp_path / "data", *flags) as running:
        yield running


def status(server: Server, method: str, path: str, body: object = None) -> int:
    with Https(server.port, seconds=PATIENCE) as client:
        return client.send(method, path, body, token=ADMIN).status


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def test_a_hung_etcd_is_reported_and_answered_for(server: Server, etcd: Member) -> None:
    """Not ready, but alive; writes and reads get a 503 in bounded time; then all is well again."""
    etcd.signal(signal.SIGSTOP)

    wait_for(lambda: status(server, "GET", "/readyz") == 500)
    assert status(server, "GET", "/livez") == 200
    assert status(server, "POST", ACCOUNTS, {"metadata": {"name": "during"}}) == 503
    assert status(server, "GET", f"{ACCOUNTS}/default") == 503
    assert status(server, "GET", "/livez") == 200

    etcd.signal(signal.SIGCONT)
    wait_for(lambda: status(server, "GET", "/readyz") == 200)
    assert status(server, "POST", ACCOUNTS, {"metadata": {"name": "after"}}) == 201
