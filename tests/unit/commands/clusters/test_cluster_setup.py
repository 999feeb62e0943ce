"""The credential and the files of a cluster's API server."""

import pytest

from orchid.commands.clusters.cluster_setup import account_name
from orchid.controllers.running import CONTROLLERS
from orchid.wire.naming import KUBERNETES, ORCH, Naming
from orchid.wire.rules.names import label_errors, subdomain_errors


@pytest.mark.parametrize("names", [ORCH, KUBERNETES])
def test_no_cluster_gets_the_account_of_a_controller(names: Naming) -> None:
    """A cluster named `inventory` must not get a token of `cluster-inventory`: it may read the
    kubeconfigs of all other clusters."""
    before, after = account_name("\0").split("\0")
    for controller in CONTROLLERS:
        account = controller.account_name(names)
        middle = account.removeprefix(before).removesuffix(after)
        could_be = account_name(middle) == account and not label_errors(middle, prefix=False)
        assert not could_be, f"a cluster named {middle!r} gets the account {account}"


def test_the_account_of_a_cluster_has_a_valid_name() -> None:
    assert not subdomain_errors(account_name("prod-1"))
