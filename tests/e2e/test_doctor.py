"""`orchid doctor` beside a running server."""

import base64
import contextlib
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.tlog.checkpoints import Checkpoint
from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.outside_issuer import write_configuration
from tests.e2e.person import Person
from tests.e2e.serving import (
    POLL_SECONDS,
    READY_SECONDS,
    Server,
    ServerFailed,
    free_port,
    running_server,
    start,
)

ADMIN = tokens_by_user()["admin"]
PATIENCE = 60.0
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
REVOCATION = {
    "metadata": {"name": "any"},
    "spec": {"certificate": {"sha256": "0" * 64}},
}
ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"


def examined(server: Server, *flags: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the worst finding of each check."""
    listen = ("--listen", f"127.0.0.1:{server.port}", "--data-dir", str(server.data_dir))
    done = subprocess.run(
        [sys.executable, "-m", "orchid", "doctor", "-o", "json", *listen, *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    order = ["good", "note", "soon", "wrong"]
    found = sorted(json.loads(done.stdout)["findings"], key=lambda each: order.index(each["state"]))
    return done.returncode, {each["check"]: each for each in found}


def test_the_keys_of_an_outside_issuer_are_fetched(tmp_path: Path) -> None:
    """As the server fetches them; an algorithm that is not accepted is named."""
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    own = ("--service-account-issuer", issuer, "--controllers", "")
    flags = ("--oidc-issuer-url", issuer, "--oidc-client-id", "a")
    trusted = ("--oidc-ca-file", str(tmp_path / "first" / "ca.crt"))
    with (
        running_server(tmp_path / "first", *own, port=port),
        running_server(tmp_path / "second", "--controllers", "") as second,
    ):
        _, good = examined(second, *flags, *trusted, "--oidc-signing-algs", "ES256")
        code, bad = examined(second, *flags, *trusted)
        _, strange = examined(second, *flags)
        _, none = examined(second)
        file = write_configuration(tmp_path / "exchange.json", {"url": issuer, "audiences": ["x"]})
        _, exchanged = examined(second, "--token-exchange-config", file)

    found = [each["outside issuers"]["state"] for each in (good, bad, strange)]
    assert found == ["good", "wrong", "wrong"]
    assert code == 1
    assert "are for ES256, and only RS256 is accepted" in bad["outside issuers"]["text"]
    assert "TLS failed" in strange["outside issuers"]["text"]
    assert "TLS failed" in exchanged["outside issuers"]["text"]
    assert "outside issuers" not in none


def test_nothing_is_wrong_with_a_good_server(tmp_path: Path) -> None:
    """Every check says good, the store is whole in use; a copy of it has no server that runs."""
    with running_server(tmp_path / "data") as server:
        admin = ("--kubeconfig", str(server.kubeconfig))
        command = [sys.executable, "-m", "orchid", "ca", "new", "a", "--signer", "example.com/a"]
        subprocess.run([*command, *admin], check=True, capture_output=True, timeout=60)
        code, found = examined(server)
        copy = tmp_path / "copy"
        command = [sys.executable, "-m", "orchid", "backup", "--all", str(copy), "--data-dir"]
        subprocess.run([*command, str(server.data_dir)], check=True, timeout=60)
        _, beside = examined(server, "--data-dir", str(copy))

    good = ("store", "server", "version", "server clock", "issuer", "secrets", "roles", "ledger")
    good += ("settings", "grants")
    assert code == 0
    assert {found[check]["state"] for check in good} == {"good"}
    assert beside["server"]["text"] == "no server has the store open: only its files were checked"
    assert "issuer" not in beside


def test_a_missing_role_and_an_unreachable_issuer_are_reported(tmp_path: Path) -> None:
    """The missing role is named, and an issuer that cannot be reached is a finding."""
    issuer = ("--service-account-issuer", "https://127.0.0.1:1")
    flags = ("--token-auth-file", str(TOKENS), *issuer)
    with (
        running_server(tmp_path / "data", *flags) as server,
        Https(server.port) as client,
    ):
        client.send("DELETE", f"{ROLES}/system:monitoring", token=ADMIN)
        code, found = examined(server, *issuer)

    assert code == 1
    assert "clusterroles/system:monitoring" in found["roles"]["text"]
    assert "restart" in found["roles"]["advice"]
    assert found["issuer"]["state"] == "wrong"
    assert "https://127.0.0.1:1 cannot be reached" in found["issuer"]["text"]


@pytest.mark.system_package("faketime")
def test_a_server_whose_clock_is_behind_is_named(tmp_path: Path) -> None:
    """By the Date of its refusal; what needs the credential is not asked again and again."""
    with running_server(tmp_path / "data"):
        pass
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    late = {"LD_PRELOAD": str(library), "FAKETIME": "-3d", "DONT_FAKE_MONOTONIC": "1"}
    with running_server(tmp_path / "data", env=late) as server:
        code, found = examined(server)
        log = (tmp_path / "data.log").read_text()

    wrong = {check: one["text"] for check, one in found.items() if one["state"] == "wrong"}
    assert code == 1
    assert wrong.keys() == {"server", "server clock"}
    assert "does not accept" in wrong["server"]
    assert "3d behind this one" in wrong["server clock"]
    assert "clock.behind" in log


def test_a_full_disk_is_a_condition_and_ends(tmp_path: Path) -> None:
    """The server stays ready for reads; log, status, metric and doctor say what is wrong."""
    with running_server(tmp_path / "data") as server:
        before, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (60_000, hard))
        until(lambda: status(server)["conditions"] == ["DiskFull"])
        is_ready, (code, found) = status(server)["ready"], examined(server)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (before, hard))
        until(lambda: status(server)["conditions"] == [])
        log = server.log_text()

    assert is_ready
    assert code == 1
    assert found["conditions"]["text"] == "the server reports DiskFull"
    assert "disk.full" in log
    assert "condition.ended condition=DiskFull" in log


def status(server: Server) -> dict[str, Any]:
    """What `orchid status` says."""
    command = [sys.executable, "-m", "orchid", "status", "-o", "json"]
    done = subprocess.run(
        [*command, "--kubeconfig", str(server.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_until_alive(server: Server) -> None:
    """Wait for a server that will never be ready."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), Https(server.port) as client:
            if client.send("GET", "/livez").status == 200:
                return
        time.sleep(POLL_SECONDS)
    raise ServerFailed(server.with_log("was not alive in time"))


def test_secrets_encrypted_with_a_lost_key_are_reported(tmp_path: Path) -> None:
    """A server with another key than the store was written with runs, and cannot read them."""
    flags = ("--token-auth-file", str(TOKENS))
    secrets = "/api/v1/namespaces/default/secrets"
    with running_server(tmp_path / "data", *flags) as server, Https(server.port) as client:
        client.send("POST", secrets, {"metadata": {"name": "sealed"}}, token=ADMIN)
    file = tmp_path / "data" / "encryption.yaml"
    secret = base64.b64encode(bytes(32)).decode()
    file.write_text(re.sub(r'"secret": "[^"]+"', f'"secret": "{secret}"', file.read_text()))
    server = start(tmp_path / "data", *flags)
    try:
        wait_until_alive(server)
        code, found = examined(server)
        server.stop()
    finally:
        server.kill()

    assert code == 1
    assert "is not ready: informer-sync" in found["server"]["text"]
    assert found["secrets"]["state"] == "wrong"
    assert "default/sealed" in found["secrets"]["text"]
    assert "--encryption-provider-config" in found["secrets"]["advice"]


def test_a_running_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """The lock of the store shows that a server runs; the settings have another address."""
    with running_server(tmp_path / "data") as server:
        text = server.kubeconfig.read_text()
        server.kubeconfig.write_text(text.replace(str(server.port), "1"))
        code, found = examined(server)

    assert code == 1
    assert "has the store open, but does not answer" in found["server"]["text"]


def test_a_ledger_that_was_rolled_back_is_reported(tmp_path: Path) -> None:
    """An old database in the place of the newer one, and what to do about it."""
    database = tmp_path / "data" / "orchid.db"
    flags = ("--token-auth-file", str(TOKENS))
    with running_server(tmp_path / "data", *flags):
        pass
    shutil.copy(database, tmp_path / "old.db")
    with running_server(tmp_path / "data", *flags) as server, Https(server.port) as client:
        before = entries(client)
        client.send("POST", REVOCATIONS, REVOCATION, token=ADMIN)
        until(lambda: entries(client) > before)
    shutil.copy(tmp_path / "old.db", database)

    with running_server(tmp_path / "data", *flags) as server:
        code, found = examined(server)

    assert code == 1
    assert found["ledger"]["state"] == "wrong"
    assert "rolled back" in found["ledger"]["text"]
    assert "orchid ledger accept" in found["ledger"]["advice"]


def test_the_current_length_of_the_ledger_is_reported(tmp_path: Path) -> None:
    """As its checkpoint has it, however old the server's last look is."""
    with (
        running_server(tmp_path / "data", "--token-auth-file", str(TOKENS)) as server,
        Https(server.port) as client,
    ):
        before = logged(client)
        client.send("POST", REVOCATIONS, REVOCATION, token=ADMIN)
        until(lambda: logged(client) > before)
        at_first = logged(client)
        _, found = examined(server)
        at_last = logged(client)

    entries = re.search(r"has (\d+) entries", found["ledger"]["text"])
    assert entries
    assert at_first <= int(entries[1]) <= at_last


def test_roles_of_accounts_that_do_not_exist_are_reported(tmp_path: Path) -> None:
    """With the command that removes each; those that exist, users and groups are no findings."""
    with running_server(tmp_path / "data") as server:
        person = Person(tmp_path, server.kubeconfig)
        person.types("account", "new", "ci/there")
        person.types("grant", "view", "--account", "ci/there", "--user", "jane", "--group", "devs")
        _, before = examined(server)
        person.types("grant", "edit", "--account", "ci/gone", "--namespace", "ci")
        code, found = examined(server)

        command = found["grants"]["advice"]
        person.types(*command.split()[1:])
        _, after = examined(server)

    assert before["grants"]["state"] == after["grants"]["state"] == "good"
    assert (code, found["grants"]["state"]) == (0, "soon")
    assert "is bound to ci/gone, which does not exist" in found["grants"]["text"]
    assert command == "orchid revoke-grant edit --account ci/gone --namespace ci"


def logged(client: Https) -> int:
    """How many entries the ledger has by its checkpoint."""
    page = client.send("GET", "/ledger/checkpoint", token=ADMIN)
    return Checkpoint.claimed(page.body).size if page.status == 200 else 0


def entries(client: Https) -> int:
    """How many entries the server knows the ledger to have."""
    text = client.send("GET", "/metrics", token=ADMIN).body.decode()
    [line] = [line for line in text.splitlines() if line.startswith("orchid_ledger_entries ")]
    return int(float(line.split()[1]))


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)
