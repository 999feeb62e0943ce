"""Secrets at rest: a canary is in no file, in no core and not in etcd; keys change without loss."""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import ServerConnection
from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server, ServerFailed, running_server
from tests.unit.kernel.store import etcd_process

CANARY = "canary-7c1d9a3e55"
SECRETS = "/api/v1/namespaces/vault/secrets"


def orchid(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "orchid", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def administrator(server: Server) -> Iterator[ServerConnection]:
    found = kubeconfig_file.find(server.kubeconfig, {})
    with closing(ServerConnection(kubeconfig_file.load(found), found)) as connection:
        yield connection


def keep(server: Server) -> None:
    body = {"metadata": {"name": "s"}, "stringData": {"password": CANARY}}
    with administrator(server) as connection:
        connection.post(SECRETS, body)


def kept(server: Server) -> str:
    with administrator(server) as connection:
        data = connection.get(f"{SECRETS}/s")["data"]
    return base64.b64decode(data["password"]).decode()


def holds_canary(directory: Path) -> list[str]:
    """The files that hold the canary, as it was sent or in base64."""
    words = (CANARY.encode(), base64.b64encode(CANARY.encode())[:-4])
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path.name for path in files if any(word in path.read_bytes() for word in words)]


def configuration(*keys: str) -> str:
    listed = "\n".join(
        f"      - {{name: {name}, secret: {base64.b64encode(name[:1].encode() * 16).decode()}}}"
        for name in keys
    )
    return (
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
        f"- resources: [secrets]\n  providers:\n  - aesgcm:\n      keys:\n{listed}\n"
        "  - identity: {}\n"
    )


def test_a_secret_is_in_no_file_of_the_data_directory(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Not in the database, its log or a backup; and a backup leaves the key out unless asked."""
    server = start_server()
    keep(server)
    data = ("--data-dir", str(server.data_dir))

    copied = orchid("backup", str(tmp_path / "copy.db"), *data)
    with_key = orchid("backup", str(tmp_path / "whole.db"), *data, "--with-encryption-key")

    assert (copied.returncode, with_key.returncode) == (0, 0), copied.stderr + with_key.stderr
    assert holds_canary(server.data_dir) == []
    assert holds_canary(tmp_path) == []
    assert kept(server) == CANARY
    keys = [path.name for path in tmp_path.iterdir() if path.name.endswith(".yaml")]
    assert keys == ["whole.db.encryption.yaml"]
    assert (tmp_path / keys[0]).stat().st_mode & 0o777 == 0o600


def test_a_secret_is_in_no_core_of_a_crash(tmp_path: Path) -> None:
    """The core limit of the parent is unlimited; a crash of the server leaves no core file."""
    shell = ("bash", "-c", 'ulimit -c unlimited && cd "$0" && exec "$@"', str(tmp_path))
    with running_server(tmp_path / "data", launcher=shell) as server:
        keep(server)
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        os.kill(server.pid, signal.SIGABRT)
        code = server.process.wait(20)

    allowed = re.search(r"Max core file size +(\w+) +(\w+)", limits)
    assert allowed is not None
    assert allowed.groups() == ("0", "0")
    assert code == -signal.SIGABRT
    assert list(tmp_path.glob("core*")) == []
    assert holds_canary(tmp_path) == []


def test_a_backup_with_its_key_is_readable_elsewhere(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Restored into an empty directory, the secret is there."""
    server = start_server()
    keep(server)
    copy, elsewhere = tmp_path / "whole.db", tmp_path / "elsewhere"
    flags = ("--data-dir", str(server.data_dir), "--with-encryption-key")
    assert orchid("backup", str(copy), *flags).returncode == 0

    restored = orchid("restore", str(copy), "--data-dir", str(elsewhere))

    assert restored.returncode == 0, restored.stderr
    with running_server(elsewhere) as other:
        assert kept(other) == CANARY


def test_keys_change_without_losing_anything(tmp_path: Path) -> None:
    """Old key, both, rewrite, new key alone: at every step the secret can be read.

    The server rewrites, too, and may be first.
    """
    data, file = tmp_path / "data", tmp_path / "encryption.yaml"
    flags = ("--encryption-provider-config", str(file))

    def serving(*keys: str) -> AbstractContextManager[Server]:
        file.write_text(configuration(*keys))
        file.chmod(0o600)
        return running_server(data, *flags)

    with serving("old") as server:
        keep(server)
    with serving("new", "old") as server:
        first = orchid("rewrite", "--kubeconfig", str(server.kubeconfig))
        second = orchid("rewrite", "--kubeconfig", str(server.kubeconfig))
    with serving("new") as server:
        found = kept(server)

    assert first.stdout.endswith("written again\n"), first.stderr
    assert second.stdout.endswith(" 0 written again\n")
    assert found == CANARY


def test_a_key_is_added_and_retired_by_commands_while_the_server_runs(tmp_path: Path) -> None:
    """`retire` is refused while values depend on the key; the server never restarts."""
    data = tmp_path / "data"
    file = data / "encryption.yaml"
    with running_server(data) as server:
        keep(server)
        access = ("--kubeconfig", str(server.kubeconfig))
        flags = (*access, "--file", str(file))
        unused = (*access, "--file", str(shutil.copy(file, tmp_path)))
        only = orchid("key", "retire", "sealing/key1", *unused)
        orchid("key", "rotate", "sealing", *unused)
        early = orchid("key", "retire", "sealing/key1", *unused)
        added = orchid("key", "rotate", "sealing", *flags)
        retired = orchid("key", "retire", "sealing/key1", *flags, "--wait", "60s")
        shown = orchid("key", "show", "sealing", *access)
        found = kept(server)
    with running_server(data) as server:
        later = kept(server)

    assert (only.returncode, "is the only key" in only.stderr) == (2, True)
    assert added.stdout == f"added key2 to {file}\n", added.stderr
    assert early.returncode == 1
    assert "values of secrets are sealed with it" in early.stderr
    assert retired.returncode == 0, retired.stderr
    assert "backups written before" in retired.stderr
    assert "key1" not in file.read_text()
    assert "key1" in (data / "encryption.yaml.key1").read_text()
    assert (data / "encryption.yaml.key1").stat().st_mode & 0o777 == 0o600
    assert re.search(r"key2 +\d+ secrets +1 of 1 +1 of 1", shown.stdout), shown.stdout
    assert (found, later) == (CANARY, CANARY)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Pod", "EncryptionConfiguration"),
        (configuration(), "at least one key"),
        (configuration("a").replace("secret: ", "secret: AA"), "bytes, not|must be base64"),
        (configuration("a").replace("[secrets]", "[secretz]"), "names no resource"),
        (configuration("a").replace("aesgcm", "aescbc"), "unknown field"),
    ],
    ids=["no-document", "no-key", "short-key", "unknown-resource", "unknown-provider"],
)
def test_a_wrong_configuration_stops_the_start(tmp_path: Path, text: str, complaint: str) -> None:
    """With a sentence that says what is wrong, and without a key in it."""
    file = tmp_path / "encryption.yaml"
    file.write_text(text)
    file.chmod(0o600)

    flags = ("--encryption-provider-config", str(file))
    with (
        pytest.raises(ServerFailed, match=complaint) as failure,
        running_server(tmp_path / "data", *flags),
    ):
        pass

    assert "Traceback" not in str(failure.value)
    assert base64.b64encode(b"a" * 16).decode() not in str(failure.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """As for every key."""
    file = tmp_path / "encryption.yaml"
    file.write_text(configuration("a"))
    file.chmod(0o644)

    flags = ("--encryption-provider-config", str(file))
    with (
        pytest.raises(ServerFailed, match=r"encryption\.yaml"),
        running_server(tmp_path / "data", *flags),
    ):
        pass


@pytest.mark.system_package("etcd")
def test_a_secret_is_not_in_etcd(tmp_path: Path) -> None:
    """With a file, what two servers share in etcd is sealed, and both can read it."""
    file = tmp_path / "encryption.yaml"
    file.write_text(configuration("shared"))
    file.chmod(0o600)
    with etcd_process.running() as etcd:
        urls = ",".join(etcd.urls)
        flags = ("--etcd-servers", urls, "--encryption-provider-config", str(file))
        with running_server(tmp_path / "one", *flags) as one:
            keep(one)
            with running_server(tmp_path / "two", *flags) as two:
                found = kept(two)

        assert found == CANARY
        assert holds_canary(etcd.directory) == []
