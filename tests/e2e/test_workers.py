"""Several workers are one server: fresh, ordered, complete, whatever becomes of one of them."""

import http.client
import json
import os
import re
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.exchanges import Caller, all_cases, differences_in, tokens_by_user
from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server, ServerFailed, running_server
from tests.e2e.worker_processes import Line, Lines, children, parent_of

ISSUER = "https://orchid.test"
ISSUING = ("--service-account-issuer", ISSUER, "--api-audiences", ISSUER)
QUIET = ("--controllers", "", *ISSUING)
ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"
PATIENCE = 30.0


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Connections as the administrator, closed with the test."""
    with closing(Lines(tokens_by_user()["admin"])) as lines:
        yield lines


def account(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def eventually(condition: Any, what: str) -> None:
    """Wait for something that another process does in its own time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        time.sleep(0.02)


@contextmanager
def watching(server: Server, token: str, version: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of all accounts after a version, as they come."""
    tls = ssl._create_unverified_context()  # noqa: S323 -- whom we trust is tested elsewhere
    with closing(
        http.client.HTTPSConnection("127.0.0.1", server.port, context=tls, timeout=PATIENCE)
    ) as connection:
        path = f"{ACCOUNTS}?watch=1&resourceVersion={version}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        yield (json.loads(line) for line in iter(answer.readline, b""))


def version_of(answer: Any) -> str:
    version: str = answer["metadata"]["resourceVersion"]
    return version


@pytest.mark.parametrize("flags", [QUIET, ISSUING], ids=["quiet", "with controllers"])
def test_recorded_exchanges_are_answered_alike_by_workers(
    start_server: StartServer, flags: tuple[str, ...]
) -> None:
    """Every step of a case may go to another worker, with the same answers."""
    server = start_server("--workers", "3", *flags)
    caller = Caller(server.url, tokens_by_user())

    found = {
        case.name: differences
        for case in all_cases()
        if (case.file == "controllers") == (flags is ISSUING)
        and (differences := differences_in(case, caller))
    }

    assert found == {}


def test_write_on_one_worker_is_read_on_another_by_the_next_request(
    start_server: StartServer, lines: Lines
) -> None:
    """Two thousand times, without a stale answer."""
    server = start_server("--workers", "2", *QUIET)
    one, other = lines.to_each(server, 2)
    status, _ = one.call("POST", ACCOUNTS, account("builder"))
    assert status == 201
    path = f"{ACCOUNTS}/builder"

    stale = []
    for n in range(1000):
        for writer, reader in ((one, other), (other, one)):
            label = f"{n}-{writer.worker}"
            status, written = writer.call("PUT", path, account("builder", turn=label))
            assert status == 200, written
            _, read = reader.call("GET", path)
            if version_of(read) != version_of(written):
                stale.append((label, version_of(written), version_of(read)))

    assert stale == []


def requests_counted(line: Line) -> int:
    """Creations of accounts that were answered 201, by the page of metrics."""
    found = re.search(
        r'^apiserver_request_total\{code="201",.*"serviceaccounts",.*verb="POST".*\} (\d+)$',
        line.text("/metrics"),
        re.MULTILINE,
    )
    return int(found[1]) if found else 0


def test_metrics_of_any_worker_are_those_of_all(start_server: StartServer, lines: Lines) -> None:
    """Both pages show what both have done, also when one of them is killed and replaced."""
    server = start_server("--workers", "2", *QUIET)
    one, other = lines.to_each(server, 2)
    for n in range(30):
        line = one if n % 3 else other
        assert line.call("POST", ACCOUNTS, account(f"counted-{n}"))[0] == 201

    shown = [requests_counted(one), requests_counted(other)]
    os.kill(other.worker, signal.SIGKILL)
    eventually(lambda: other.worker not in children(server), "the end of a worker")

    assert shown == [30, 30]
    assert requests_counted(one) == 30


class Writing(threading.Thread):
    """Creates accounts one after the other, over a new connection whenever the last one broke."""

    def __init__(self, server: Server, token: str, name: str) -> None:
        super().__init__()
        self._server, self._token, self._name = server, token, name
        self.enough = threading.Event()
        self.acknowledged: dict[str, str] = {}  # name to version

    def run(self) -> None:
        line: Line | None = None
        count = 0
        while not self.enough.is_set():
            name, count = f"{self._name}-{count}", count + 1
            try:
                line = line or Line(self._server, self._token)
                status, answer = line.call("POST", ACCOUNTS, account(name))
                if status == 201:
                    self.acknowledged[name] = version_of(answer)
            except (OSError, http.client.HTTPException):
                if line is not None:
                    line.close()
                line = None
        if line is not None:
            line.close()


def test_killed_workers_are_replaced_and_nothing_acknowledged_is_lost(
    start_server: StartServer, lines: Lines
) -> None:
    """A watch on a worker that lives shows every acknowledged write, once and in order."""
    server = start_server("--workers", "3", *QUIET)
    line = lines.to(server)
    _, before = line.call("GET", ACCOUNTS)
    writers = [Writing(server, lines.token, f"w{n}") for n in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(2):
        workers = {each.worker for each in lines.to_each(server, 3)}
        victim = next(pid for pid in sorted(workers) if pid != line.worker)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda gone=victim: gone not in children(server), "the end of a worker")
    others = lines.to_each(server, 3)  # all three accept
    for writer in writers:
        writer.enough.set()
        writer.join(PATIENCE)

    promised = {name: v for writer in writers for name, v in writer.acknowledged.items()}
    lists = [each.call("GET", ACCOUNTS)[1]["items"] for each in (line, *others)]
    for items in lists:
        present = {item["metadata"]["name"]: version_of(item) for item in items}
        assert promised.items() <= present.items()
    with watching(server, lines.token, version_of(before)) as events:
        seen = [next(events)["object"] for _ in lists[0]]
    versions = [int(version_of(found)) for found in seen]
    assert versions == sorted(set(versions))
    assert [found["metadata"]["name"] for found in seen] == [
        item["metadata"]["name"] for item in sorted(lists[0], key=lambda i: int(version_of(i)))
    ]


def test_stopped_worker_holds_up_nobody_and_catches_up(
    start_server: StartServer, lines: Lines
) -> None:
    """The others go on; once it runs again, its first answer is fresh and its watches complete."""
    server = start_server("--workers", "3", *QUIET)
    stopped, lively, _ = lines.to_each(server, 3)
    big = "x" * 200_000
    versions = []

    os.kill(stopped.worker, signal.SIGSTOP)
    try:
        for n in range(100):  # twenty megabytes: more than may wait for one worker
            body = {**account(f"a{n}"), "secrets": [{"name": big}]}
            status, written = lively.call("POST", ACCOUNTS, body)
            assert status == 201
            versions.append(version_of(written))
        newcomer = lines.to(server)
        assert newcomer.worker != stopped.worker
    finally:
        os.kill(stopped.worker, signal.SIGCONT)

    _, listed = stopped.call("GET", ACCOUNTS)
    last = f"{ACCOUNTS}?watch=1&timeoutSeconds=1&resourceVersion={versions[-4]}"
    assert {version_of(item) for item in listed["items"]} == set(versions)
    assert [version_of(event["object"]) for event in stopped.events(last)] == versions[-3:]


def test_workers_end_with_their_parent_and_the_next_start_has_everything(
    start_server: StartServer, lines: Lines
) -> None:
    """A parent that is killed alone takes its workers along; the file is whole."""
    first = start_server("--workers", "2", *QUIET)
    _, written = lines.to(first).call("POST", ACCOUNTS, account("builder"))
    workers = children(first)

    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    eventually(lambda: not any(parent_of(pid) for pid in workers), "the end of the workers")
    second = start_server("--workers", "2", *QUIET, port=first.port)

    _, read = lines.to(second).call("GET", f"{ACCOUNTS}/builder")
    assert version_of(read) == version_of(written)


def test_controllers_run_in_one_process_which_is_replaced(
    start_server: StartServer, lines: Lines
) -> None:
    """They work beside the workers, and again after theirs was killed."""
    server = start_server("--workers", "2")
    [controllers] = map(int, re.findall(r"role=controllers pid=(\d+)", server.log_text()))
    line = lines.to(server)

    def has_default_account(namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        return line.call("GET", path)[0] == 200

    line.call("POST", "/api/v1/namespaces", account("one"))
    eventually(lambda: has_default_account("one"), "a default account")
    os.kill(controllers, signal.SIGKILL)
    line.call("POST", "/api/v1/namespaces", account("two"))
    eventually(lambda: has_default_account("two"), "a default account")

    assert controllers not in children(server)


def test_a_wrong_setting_is_reported_once(tmp_path: Path) -> None:
    """A setting that only a worker can check ends the start, with one line and exit code 2."""
    with (
        pytest.raises(ServerFailed) as failure,
        running_server(tmp_path / "data", "--workers", "2", "--token-auth-file", "/nowhere.csv"),
    ):
        pass

    text = str(failure.value)
    assert "exit code 2" in text
    assert text.count("orchid: --token-auth-file") == 1
    assert "Traceback" not in text
