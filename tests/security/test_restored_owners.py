"""A restore brings back an owner, which gets nothing of the one that had its name meanwhile."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orchid.kernel.terminal.connection import CommandRefused, ServerConnection
from orchid.kernel.wire.naming import ORCH
from tests.e2e.person import Person
from tests.e2e.serving import running_server
from tests.security.test_restored_decisions import admin

IDENTITY = f"/apis/{ORCH.identity}/v1beta1"
AUTHORITY = f"{IDENTITY}/certificateauthorities/web"
ACCOUNT = "/api/v1/namespaces/ci/serviceaccounts/deployer"
PATIENCE = 30.0


@pytest.fixture
def person(tmp_path: Path) -> Person:
    (tmp_path / "home").mkdir()
    return Person(tmp_path / "home", tmp_path / "data" / "admin.kubeconfig")


def until(look: Callable[[], Any]) -> Any:
    """Wait until a look finds something."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, "nothing was found in time"
        time.sleep(0.05)
    return found


def keys_of(calls: ServerConnection) -> list[dict[str, Any]]:
    found = calls.items(f"{IDENTITY}/signingkeys")
    return [key for key in found if key["spec"].get("authority") == "web"]


def ready(calls: ServerConnection) -> dict[str, Any] | None:
    found: dict[str, Any] = calls.get(AUTHORITY)
    conditions = found.get("status", {}).get("conditions", [])
    is_ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
    return found if is_ready else None


def owned(person: Person, calls: ServerConnection, user: str) -> tuple[dict[str, Any], str]:
    """An authority and an account, with all that belongs to them."""
    spec = {"signerName": f"{user}.example.com/web", "key": {}, "subject": {"commonName": user}}
    calls.post(AUTHORITY.rpartition("/")[0], {"metadata": {"name": "web"}, "spec": spec})
    authority = until(lambda: ready(calls))
    person.types("account", "new", "ci/deployer")
    return authority, person.types("token", "ci/deployer", "--for", "1h").stdout


def is_gone(calls: ServerConnection, place: str) -> bool:
    try:
        calls.get(place)
    except CommandRefused as refusal:
        return refusal.status == 404
    return False


def test_a_restored_owner_gets_nothing_of_the_next_one(person: Person, tmp_path: Path) -> None:
    """Neither keys and roots of the next authority, nor tokens of the next account."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_server(data) as server, admin(server) as calls:
        first, token = owned(person, calls, "alice")
        person.types("backup", "--all", str(copy), "--data-dir", str(data))
        for place in (AUTHORITY, ACCOUNT):
            calls.delete(place)
        until(lambda: is_gone(calls, AUTHORITY) and not keys_of(calls))
        until(lambda: is_gone(calls, f"{IDENTITY}/publishedbundles/web"))
        second, later = owned(person, calls, "bob")
        server.stop()

    person.types("restore", str(copy), "--data-dir", str(data))
    with running_server(data, port=server.port) as again, admin(again) as calls:
        found, keys = until(lambda: ready(calls)), keys_of(calls)
        bundles = list(calls.items(f"/apis/{ORCH.certificates}/v1beta1/clustertrustbundles"))
        person.types("token", "show", "--verify", given=token)
        refused = person.gets("token", "show", "--verify", given=later, code=1)

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert found["metadata"]["uid"] == first["metadata"]["uid"]
    assert found["status"]["certificate"] == first["status"]["certificate"]
    owners = {key["metadata"]["ownerReferences"][0]["uid"] for key in keys}
    assert owners == {first["metadata"]["uid"]}
    subjects = {
        one.subject.rfc4514_string()
        for bundle in bundles
        for one in x509.load_pem_x509_certificates(bundle["spec"]["trustBundle"].encode())
    }
    assert "CN=alice" in subjects
    assert "CN=bob" not in subjects
    assert "error" in refused["review"]


def test_a_secret_that_was_replaced_is_named(person: Person, tmp_path: Path) -> None:
    """It is sealed: that it is another one of the name is not visible, and the first is back."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    place = "/api/v1/namespaces/default/secrets"
    with running_server(data) as server, admin(server) as calls:
        for name in ("replaced", "kept"):
            calls.post(place, {"metadata": {"name": name}, "stringData": {"key": "of the thief"}})
        person.types("backup", str(copy), "--data-dir", str(data))
        calls.delete(f"{place}/replaced")
        calls.post(place, {"metadata": {"name": "replaced"}, "stringData": {"key": "new"}})
        server.stop()

    shown = person.types("restore", str(copy), "--data-dir", str(data), "--dry-run").stdout

    assert "changed after the backup, and as before again:" in shown
    assert "default/replaced" in shown
    assert "default/kept" not in shown
