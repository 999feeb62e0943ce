"""The roles and bindings of a new server: those of all features, and of all controllers."""

from orchid.assembly.controllers.controlling import controller_rights
from orchid.assembly.features import FEATURES
from orchid.features.rights.bootstrap import BootstrapPolicy, bootstrap_policy
from orchid.kernel.wire.naming import Naming


def default_policy(names: Naming) -> BootstrapPolicy:
    declared = (role for feature in FEATURES for role in feature.roles(names))
    return bootstrap_policy(names, declared, controller_rights(names))
