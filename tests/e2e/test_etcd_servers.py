"""Several servers over one etcd are one server to their clients.

ORCHID_FRESH_READS=10000 ...     as many writes and reads as one likes
"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.etcd_revisions import use_up_small_revisions
from tests.conformance.exchanges import (
    TOKENS,
    Caller,
    all_cases,
    differences_in,
    tokens_by_user,
)
from tests.e2e.https import Https
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.store import etcd_process

pytestmark = pytest.mark.system_package("etcd")

FRESH_READS = int(os.environ.get("ORCHID_FRESH_READS", "1000"))
REVOKED_USERS = 100
ISSUER = "https://orchid.test"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER),
    *("--api-audiences", ISSUER),
)
QUIET = ("--controllers", "")
ADMIN = tokens_by_user()["admin"]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
NAMESPACES = "/api/v1/namespaces"
LEASE = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases/orch-controller-manager"
TAKEOVER_SECONDS = 15.0
PATIENCE = 60.0

StartTwo = Callable[..., list[Server]]


@pytest.fixture
def etcd() -> Iterator[str]:
    """The address of a new etcd."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        yield cluster.urls[0]


@pytest.fixture
def start_two(etcd: str, tmp_path: Path) -> Iterator[StartTwo]:
    """Start two servers with the same keys: the second has a copy of the files of the first."""
    with ExitStack() as running:

        def start(*flags: str) -> list[Server]:
            servers: list[Server] = []
            for name in ("one", "two"):
                if servers:
                    shutil.copytree(tmp_path / "one", tmp_path / name)
                server = running_server(tmp_path / name, "--etcd-servers", etcd, *FLAGS, *flags)
                servers.append(running.enter_context(server))
            return servers

        yield start


class AlternatingCaller(Caller):
    """Sends every request to another server than the one before."""

    def __init__(self, servers: list[Server]) -> None:
        super().__init__(servers[0].url, tokens_by_user())
        self._turns = cycle([Caller(server.url, self.tokens) for server in servers])

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        return next(self._turns).send(method, path, headers, body)


@pytest.mark.parametrize("flags", [QUIET, ()], ids=["quiet", "with controllers"])
def test_recorded_exchanges_are_answered_alike_by_two_servers(
    etcd: str, start_two: StartTwo, flags: tuple[str, ...]
) -> None:
    """Every step of a case goes to another server, with the same answers."""
    asyncio.run(use_up_small_revisions(etcd))
    caller = AlternatingCaller(start_two(*flags))

    found = {
        case.name: differences
        for case in all_cases()
        if (case.file == "controllers") == (not flags)
        and (differences := differences_in(case, caller))
    }

    assert found == {}


def test_write_on_one_server_is_read_on_the_other_by_the_next_request(
    start_two: StartTwo,
) -> None:
    """Created, changed and deleted on either, and never a stale answer from the other."""
    one, two = start_two(*QUIET)
    with Https(one.port) as first, Https(two.port) as second:
        for number in range(FRESH_READS // 4):
            writer, reader = (first, second) if number % 2 else (second, first)
            path = f"{ACCOUNTS}/fresh"
            made = sent(writer, "POST", ACCOUNTS, {"metadata": {"name": "fresh"}})
            assert sent(reader, "GET", path) == made

            changed = sent(writer, "PUT", path, {**made, "secrets": [{"name": f"s{number}"}]})
            assert sent(reader, "GET", path) == changed
            assert sent(reader, "GET", ACCOUNTS)["items"] == [without_kind(changed)]

            sent(writer, "DELETE", path)
            assert reader.send("GET", path, token=ADMIN).status == 404


def test_tokens_and_rights_of_one_server_count_on_the_other(start_two: StartTwo) -> None:
    """Identity is shared: a token is valid on both servers, and on neither once it ends."""
    one, two = start_two(*QUIET)
    with Https(one.port) as first, Https(two.port) as second:
        sent(first, "POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        token = sent(second, "POST", f"{ACCOUNTS}/robot/token", {"spec": {}})["status"]["token"]
        reviews = "/apis/authentication.orch.io/v1/selfsubjectreviews"

        answers = [each.send("POST", reviews, {}, token=token) for each in (first, second)]
        sent(second, "DELETE", f"{ACCOUNTS}/robot")
        refused = [each.send("POST", reviews, {}, token=token) for each in (first, second)]

    users = [answer.json["status"]["userInfo"]["username"] for answer in answers]
    assert users == ["system:serviceaccount:default:robot"] * 2
    assert [answer.status for answer in refused] == [401, 401]


def test_controllers_go_on_in_the_other_server_when_their_leader_is_killed(
    start_two: StartTwo,
) -> None:
    """Within fifteen seconds of the kill, another server leads."""
    servers = start_two()
    with Https(servers[0].port) as first, Https(servers[1].port) as second:
        clients = dict(zip(servers, (first, second), strict=True))
        leader, other = led_by(servers, clients)
        sent(clients[other], "POST", NAMESPACES, {"metadata": {"name": "before"}})
        until(lambda: has_default_account(clients[other], "before"), TAKEOVER_SECONDS)
        leader.kill()
        sent(clients[other], "POST", NAMESPACES, {"metadata": {"name": "after"}})

        until(lambda: has_default_account(clients[other], "after"), TAKEOVER_SECONDS)


def test_server_without_its_etcd_says_so_and_recovers_by_itself(tmp_path: Path) -> None:
    """Fresh reads and readiness end with etcd, and come back with it; nothing is restarted."""
    with etcd_process.running() as cluster:
        asyncio.run(cluster.wait_healthy())
        flags = ("--etcd-servers", cluster.urls[0], *FLAGS, *QUIET)
        with running_server(tmp_path / "one", *flags) as server, Https(server.port) as https:
            sent(https, "POST", ACCOUNTS, {"metadata": {"name": "robot"}})
            cluster.kill()
            away = https.send("GET", f"{ACCOUNTS}/robot", token=ADMIN).status
            old = https.send("GET", f"{ACCOUNTS}/robot?resourceVersion=0", token=ADMIN).status
            until(lambda: not server.is_ready(), PATIENCE)
            cluster.start()
            until(server.is_ready, PATIENCE)
            back = https.send("GET", f"{ACCOUNTS}/robot", token=ADMIN).status

    assert (away, old, back) == (503, 200, 200)


def test_objects_move_from_a_file_to_etcd_and_back(etcd: str, tmp_path: Path) -> None:
    """A server finds everything where it was moved to, and again when it was moved home."""
    with running_server(tmp_path / "first", *FLAGS, *QUIET) as server, Https(server.port) as https:
        for number in range(20):
            sent(https, "POST", ACCOUNTS, {"metadata": {"name": f"a{number:02}"}})
        before = contents(https)
    migrate("--from", str(tmp_path / "first"), "--to-etcd", etcd)
    # The private key of the token key is sealed; the command names this flag.
    sealed = ("--encryption-provider-config", str(tmp_path / "first" / "encryption.yaml"))
    on_etcd = ("--etcd-servers", etcd, *sealed, *FLAGS, *QUIET)
    with running_server(tmp_path / "first", *on_etcd) as server, Https(server.port) as https:
        there = contents(https)
        sent(https, "DELETE", f"{ACCOUNTS}/a19")
        left = contents(https)
    migrate("--from-etcd", etcd, "--to", str(tmp_path / "second"))
    at_home = (*sealed, *FLAGS, *QUIET)
    with running_server(tmp_path / "second", *at_home) as server, Https(server.port) as https:
        home = contents(https)

    assert len(before) > 60  # the accounts, and the roles that a server begins with
    assert there == before
    assert home == left == {uid: each for uid, each in before.items() if each[1] != "a19"}


def sent(server: Https, method: str, target: str, body: Any = None) -> Any:
    """The answer to a request that must succeed."""
    reply = server.send(method, target, body, token=ADMIN)
    assert reply.status in (200, 201), reply.body
    return reply.json


def without_kind(item: Any) -> Any:
    return {name: value for name, value in item.items() if name not in ("kind", "apiVersion")}


def contents(server: Https) -> dict[str, Any]:
    """Everything that a store should keep, by uid; versions are each store's own."""
    roles = "/apis/rbac.authorization.orch.io/v1/clusterroles"
    items = [
        item
        for target in (ACCOUNTS, roles, NAMESPACES)
        for item in sent(server, "GET", target)["items"]
    ]
    kept = {}
    for item in items:
        meta = {k: v for k, v in item["metadata"].items() if k != "resourceVersion"}
        kept[meta["uid"]] = (without_kind({**item, "metadata": meta}), meta["name"])
    return kept


def led_by(servers: list[Server], clients: Mapping[Server, Https]) -> tuple[Server, Server]:
    """The server that leads, and the other; the logs show which was elected."""
    until(
        lambda: any("leader.elected" in server.log_text() for server in servers), TAKEOVER_SECONDS
    )
    sent(clients[servers[0]], "GET", LEASE)
    one, two = servers
    return (one, two) if "leader.elected" in one.log_text() else (two, one)


def has_default_account(server: Https, namespace: str) -> bool:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    return server.send("GET", path, token=ADMIN).status == 200


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def migrate(*words: str) -> None:
    command = [sys.executable, "-m", "orchid", "migrate", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_review_on_one_server_has_every_revocation_of_the_other(start_two: StartTwo) -> None:
    """A webhook of clusters denies from the acknowledgement on, whichever server is asked."""
    servers = start_two(*QUIET)
    group = "/apis/identity.orch.io/v1alpha1"
    with Https(servers[0].port) as one, Https(servers[1].port) as two:
        made = one.send(
            "POST",
            f"{group}/clusters",
            {"metadata": {"name": "prod"}, "spec": {"issuer": "https://prod.example"}},
            token=ADMIN,
        )
        assert made.status == 201, made.body

        for number in range(REVOKED_USERS):
            here, there = (one, two) if number % 2 else (two, one)
            user = f"user{number}"
            before = denied(there, user)
            spec = {"cluster": "prod", "user": {"username": user}}
            body = {"metadata": {"name": user}, "spec": spec}
            done = here.send("POST", f"{group}/credentialrevocations", body, token=ADMIN)
            after = denied(there, user)

            assert (done.status, before, after) == (201, False, True)


def denied(client: Https, user: str) -> bool:
    review = {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"user": user},
    }
    path = "/webhook/clusters/prod/authorize"
    answer = client.send("POST", path, review, token=ADMIN)
    assert answer.status == 200, answer.body
    return answer.json["status"].get("denied", False) is True
