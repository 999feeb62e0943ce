"""The credential and the files of a cluster's API server."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.assembly.features import CONTROLLERS
from orchid.cli import main
from orchid.features.clusters.commands import cluster_checks
from orchid.features.clusters.commands.cluster_setup import account_name
from orchid.kernel.terminal.findings import Finding, good
from orchid.kernel.terminal.output import USAGE
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors

KUBECONFIG = """
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: t}}]
current-context: a
"""


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES])
def test_no_cluster_gets_the_account_of_a_controller(naming: Naming) -> None:
    """A cluster named `inventory` must not get a token of `cluster-inventory`: it may read the
    kubeconfigs of all other clusters."""
    before, after = account_name("\0").split("\0")
    for controller in CONTROLLERS:
        account = controller.account_name(naming)
        middle = account.removeprefix(before).removesuffix(after)
        could_be = account_name(middle) == account and not label_errors(middle, prefix=False)
        assert not could_be, f"a cluster named {middle!r} gets the account {account}"


def test_the_account_of_a_cluster_has_a_valid_name() -> None:
    assert not subdomain_errors(account_name("prod-1"))


@pytest.mark.parametrize("name", ["Prod", "a.b", "", "-x", "x" * 64])
def test_a_name_that_no_cluster_can_have_is_refused_first(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its account is created, which would stay."""
    mine, theirs = tmp_path / "orchid", tmp_path / "cluster"
    for file in (mine, theirs):
        file.write_text(KUBECONFIG)
    words = ["--orchid-kubeconfig", str(mine), "--kubeconfig", str(theirs)]

    assert main(["cluster", "add", *words, "--", name]) == USAGE
    assert "cannot be the name of a cluster" in capsys.readouterr().err


def test_calls_are_counted_after_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which makes the first calls of a new cluster: it would be reported as never called."""
    server: Any = SimpleNamespace(naming=ORCH, get=lambda _: {"metadata": {}, "spec": {}, **status})
    status: dict[str, Any] = {}

    def proof(*_: object) -> Iterator[Finding]:
        status["status"] = {"lastCall": "2026-01-01T00:00:00Z", "calls": 4}
        yield good("a revoked token got 403")

    monkeypatch.setattr(cluster_checks, "_revocation", proof)
    for one in ("_version", "_issuer", "_authorities"):
        monkeypatch.setattr(cluster_checks, one, lambda *_: ())

    found = dict(cluster_checks.examined(server, server, "prod"))

    assert found["calls"].state == "good"
