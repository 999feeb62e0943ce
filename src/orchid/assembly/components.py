"""The components that use the API with accounts of their own: their accounts, rights and roles."""

from orchid.assembly.features import FEATURES, IDENTITIES
from orchid.features.rights.bootstrap import (
    LEADER_ELECTION,
    BootstrapPolicy,
    ControllerRights,
    bootstrap_policy,
)
from orchid.kernel.server.in_process.clients import LEADER
from orchid.kernel.wire.naming import Naming


def controller_accounts(naming: Naming) -> dict[str, str]:
    """The service account, in the system namespace, of each component."""
    accounts = {each.name: each.account_name(naming) for each in IDENTITIES}
    return {**accounts, LEADER: LEADER_ELECTION}


def controller_rights(naming: Naming) -> list[ControllerRights]:
    """The permissions of each component, for the bootstrap policy."""
    everywhere = [
        ControllerRights(each.account_name(naming), each.rights(naming), each.in_system_namespace)
        for each in IDENTITIES
    ]
    at_home = [
        ControllerRights(each.account_name(naming), rules, in_system_namespace=True)
        for each in IDENTITIES
        if (rules := each.rights_at_home(naming))
    ]
    return everywhere + at_home


def default_policy(naming: Naming) -> BootstrapPolicy:
    """The roles and bindings of a new server: those of all features, and of all components."""
    declared = (role for feature in FEATURES for role in feature.roles(naming))
    return bootstrap_policy(naming, declared, controller_rights(naming))
