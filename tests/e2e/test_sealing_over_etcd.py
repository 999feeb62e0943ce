"""Two servers over etcd change their sealing key: one file after the other, and no restart."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.serving import running_server, sealing_flags
from tests.e2e.test_encryption_at_rest import CANARY, keep, kept, orchid
from tests.unit.kernel.store import etcd_process


@pytest.mark.system_package("etcd")
def test_two_servers_change_their_key_one_by_one(tmp_path: Path) -> None:
    """The old key is needed until both have the new one; the Secret is readable on both."""
    flag, shared = sealing_flags(tmp_path)
    files = [Path(shutil.copy(shared, tmp_path / name)) for name in ("one.yaml", "two.yaml")]
    with etcd_process.running() as etcd:
        flags = ("--etcd-servers", etcd.urls[0], flag)
        with (
            running_server(tmp_path / "one", *flags, str(files[0])) as one,
            running_server(tmp_path / "two", *flags, str(files[1])) as two,
        ):
            keep(one)
            access = ("--kubeconfig", str(one.kubeconfig))
            retire = ("key", "retire", "sealing/tests", *access, "--wait", "90s", "--file")
            added = orchid("key", "rotate", "sealing", *access, "--file", str(files[0]))
            early = orchid(*retire[:-2], "3s", "--file", str(files[0]))
            shutil.copy(files[0], files[1])
            retired = [orchid(*retire, str(file)) for file in reversed(files)]
            found = [kept(one), kept(two)]

    assert added.stdout.startswith("added key1 to"), added.stderr
    assert early.returncode == 1
    assert "values of secrets are sealed with it" in early.stderr
    assert [one.returncode for one in retired] == [0, 0], retired
    assert found == [CANARY, CANARY]


@pytest.mark.system_package("etcd")
def test_a_server_without_the_keys_does_not_start(tmp_path: Path) -> None:
    """It would serve, and could not read one Secret: after a migration, for example."""
    with etcd_process.running() as etcd:
        flags = ("--etcd-servers", etcd.urls[0])
        with running_server(tmp_path / "one", *flags, *sealing_flags(tmp_path)) as one:
            keep(one)
        refused = orchid("serve", "--data-dir", str(tmp_path / "two"), *flags)

    assert refused.returncode == 2
    assert "--encryption-provider-config: the store has Secrets that are sealed" in refused.stderr
    assert "serves" not in refused.stdout
