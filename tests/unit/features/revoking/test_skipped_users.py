"""`orchid revoke … --cluster`: credentials that the API server never asks about are warned of."""

import pytest

from orchid.features.clusters.commands import cluster_setup
from orchid.features.revoking.commands import cluster_targets


@pytest.mark.parametrize(
    ("user", "warned"),
    [
        ("alice", False),
        ("system:kube-scheduler", True),
        ("system:apiserver", True),
        ("system:node:worker-1", True),
    ],
)
def test_a_user_that_is_skipped(
    user: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_targets._of_user(user)
    assert ("does not ask about" in capsys.readouterr().err) is warned


@pytest.mark.parametrize(
    ("account", "warned"),
    [("kube-system/coredns", True), ("ci/builder", False), ("kube-systems/x", False)],
)
def test_an_account_that_is_skipped(
    account: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_targets._of_account(account)
    assert ("does not ask about" in capsys.readouterr().err) is warned


@pytest.mark.parametrize(
    ("subject", "warning"),
    [
        ("CN=alice,O=web", ""),
        ("CN=admin,O=system:masters", "asks nobody about system:masters"),
        ("O=system:nodes,CN=system:node:a", "does not ask about nodes"),
    ],
)
def test_a_certificate_that_is_skipped(
    subject: str, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is revoked all the same: the configuration may be another."""
    spec = {"subject": subject, "serialNumber": "a", "sha256": "b"}

    cluster_targets._recorded(spec)

    said = capsys.readouterr().err
    assert warning in said
    assert bool(said) is bool(warning)


def test_the_warnings_are_about_what_the_configuration_skips() -> None:
    """Whatever the match conditions name, a user is warned of, and nothing else."""
    text = cluster_setup.configuration("Deny", 36, "/etc/orchid")
    conditions = [line for line in text.splitlines() if "- expression:" in line]
    for user in cluster_targets.SKIPPED_USERS:
        assert f"'{user}'" in conditions[0]
    assert conditions[0].count("'") == 2 * len(cluster_targets.SKIPPED_USERS)
    assert "'system:serviceaccounts:kube-system'" in conditions[1]
    assert "'system:nodes'" in conditions[2]
    assert len(conditions) == 3
