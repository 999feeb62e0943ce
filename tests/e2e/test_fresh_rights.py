"""With workers: what one of them has taken away, none of the others grants any more."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.conformance.exchanges import tokens_by_user
from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server
from tests.e2e.worker_processes import Line, Lines

WORKERS = 3
ROUNDS = 60
WARM = 5  # requests after which a connection knows its caller
DEFAULT = "/api/v1/namespaces/default"
GROUP = "rbac.authorization.orch.io"
RBAC = f"/apis/{GROUP}/v1/namespaces/default"
ISSUER = "https://orchid.test"
FLAGS = (
    "--workers", str(WORKERS), "--controllers", "",
    "--service-account-issuer", ISSUER, "--api-audiences", ISSUER,
)  # fmt: skip


@contextmanager
def to_each_worker(server: Server, token: str) -> Iterator[list[Line]]:
    with closing(Lines(token)) as lines:
        yield lines.to_each(server, WORKERS)


def made(line: Line, path: str, body: Any) -> Any:
    status, answer = line.call("POST", path, body)
    assert status == 201, answer
    return answer


def test_no_worker_allows_what_a_deleted_binding_granted(start_server: StartServer) -> None:
    """After every acknowledged removal each worker is asked at once, and each says no."""
    server = start_server(*FLAGS)
    tokens = tokens_by_user()
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    subject = {"kind": "User", "name": "bob", "apiGroup": GROUP}
    role = {"kind": "Role", "name": "r", "apiGroup": GROUP}
    binding = {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role}
    with (
        to_each_worker(server, tokens["admin"]) as admins,
        to_each_worker(server, tokens["bob"]) as bobs,
    ):
        made(admins[0], f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
        seen = []
        for number in range(ROUNDS):
            admin = admins[number % WORKERS]
            made(admin, f"{RBAC}/rolebindings", binding)
            granted = [bob.call("GET", f"{DEFAULT}/secrets")[0] for bob in bobs]
            admin.call("DELETE", f"{RBAC}/rolebindings/b")
            cached = f"{DEFAULT}/secrets?resourceVersion=0"
            seen.append((granted, [bob.call("GET", cached)[0] for bob in bobs]))

    assert seen == [([200] * WORKERS, [403] * WORKERS)] * ROUNDS


def test_no_worker_knows_the_token_of_a_deleted_account(start_server: StartServer) -> None:
    """Nor that of an account of the same name that came after it."""
    server = start_server(*FLAGS)
    accounts = f"{DEFAULT}/serviceaccounts"
    with to_each_worker(server, tokens_by_user()["admin"]) as admins:
        made(admins[0], accounts, {"metadata": {"name": "robot"}})
        asked = made(admins[0], f"{accounts}/robot/token", {"spec": {"audiences": []}})
        with to_each_worker(server, asked["status"]["token"]) as robots:
            for _ in range(WARM):
                before = [robot.call("GET", "/version")[0] for robot in robots]
            admins[1].call("DELETE", f"{accounts}/robot")
            gone = [robot.call("GET", "/version")[0] for robot in robots]
            made(admins[2], accounts, {"metadata": {"name": "robot"}})
            again = [robot.call("GET", "/version")[0] for robot in robots]

    assert (before, gone, again) == ([200] * WORKERS, [401] * WORKERS, [401] * WORKERS)
