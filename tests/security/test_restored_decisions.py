"""A restore revives no ACME account, session or policy silently, and no key forgets its tokens."""

import argparse
import datetime
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.store.sqlite.restore import values_if_readable
from orchid.kernel.terminal.connection import CommandRefused, ServerConnection, connect
from orchid.kernel.wire.naming import ORCH
from tests.e2e.person import Person
from tests.e2e.serving import Server, running_server

V1, ALPHA = (f"/apis/{ORCH.identity}/{version}" for version in ("v1", "v1alpha1"))
NO_CONTROLLERS = ("--controllers", "")
SESSION = "ab" * 32
TOKENS = "~tokens/"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    (tmp_path / "home").mkdir()
    return Person(tmp_path / "home", tmp_path / "data" / "admin.kubeconfig")


def admin(server: Server) -> closing[ServerConnection]:
    return closing(connect(argparse.Namespace(kubeconfig=server.kubeconfig, context="")))


def session() -> dict[str, Any]:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=8)
    spec = {"username": "carla", "expires": f"{ends:%Y-%m-%dT%H:%M:%SZ}", "sealed": "x"}
    return {"metadata": {"name": SESSION}, "spec": spec}


def approval_policy(name: str) -> dict[str, Any]:
    allows = {"dnsNames": ["*.example.com"], "usages": ["server auth"]}
    spec = {"signerNames": ["example.com/web"], "allows": allows}
    return {"metadata": {"name": name}, "spec": spec}


def test_what_decides_about_credentials_is_reported_and_sessions_end(
    person: Person, tmp_path: Path
) -> None:
    """What was deleted, and what was changed; nobody is signed in by a restore."""
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    sessions, policies = f"{ALPHA}/consolesessions", f"{V1}/approvalpolicies"
    with running_server(data, *NO_CONTROLLERS) as server, admin(server) as calls:
        calls.post(sessions, session())
        changed = calls.post(policies, approval_policy("narrowed"))
        calls.post(policies, approval_policy("withdrawn"))
        person.types("backup", str(copy), "--data-dir", str(data))
        calls.delete(f"{sessions}/{SESSION}")
        calls.delete(f"{policies}/withdrawn")
        changed["spec"]["allows"]["dnsNames"] = ["a.example.com"]
        calls.put(f"{policies}/narrowed", changed)
        server.stop()

    said = person.types("restore", str(copy), "--data-dir", str(data)).stdout
    with (
        running_server(data, *NO_CONTROLLERS, port=server.port) as again,
        admin(again) as calls,
        pytest.raises(CommandRefused) as gone,
    ):
        calls.get(f"{sessions}/{SESSION}")

    assert "approval policies: withdrawn\n" in said
    changed_part = said.partition("changed after the backup")[2]
    assert "approval policies: narrowed\n" in changed_part
    assert gone.value.status == 404


def tokens_of(data: Path) -> dict[str, bytes]:
    return values_if_readable(data / "orchid.db", TOKENS)


def test_the_tokens_that_depend_on_a_key_survive_a_restore(person: Person, tmp_path: Path) -> None:
    """Else the key is Retired after a rotation, while its tokens are valid."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_server(data, *NO_CONTROLLERS) as server:
        for name in ("before", "after"):
            person.types("account", "new", f"ci/{name}")
        person.types("token", "ci/before", "--for", "720h")
        person.types("backup", "--all", str(copy), "--data-dir", str(data))
        person.types("token", "ci/before", "--for", "1000h")
        person.types("token", "ci/after", "--for", "720h")
        server.stop()
    recorded = tokens_of(data)

    person.types("restore", str(copy), "--data-dir", str(data))

    assert len(recorded) == 2
    assert tokens_of(data) == recorded


def test_without_the_old_database_no_key_in_use_seems_free(person: Person, tmp_path: Path) -> None:
    """Tokens and certificates of after the backup are recorded nowhere."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_server(data) as server:
        person.types("ca", "new", "web", "--signer", "example.com/web")
        person.types("backup", "--all", str(copy), "--data-dir", str(data))
        server.stop()
    shutil.rmtree(data)

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, *NO_CONTROLLERS, port=server.port) as again, admin(again) as calls:
        keys = list(calls.items(f"/apis/{ORCH.identity}/v1beta1/signingkeys"))

    in_a_month = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=29)
    until = {key["metadata"]["name"]: key["status"]["dependents"]["unknownUntil"] for key in keys}
    assert {"tokens-1", "web-1"} <= until.keys()
    assert min(until.values()) > f"{in_a_month:%Y-%m-%dT%H:%M:%SZ}"
