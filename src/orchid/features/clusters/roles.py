"""Default roles: who may read Clusters."""

from orchid.kernel.wire.default_roles import INVENTORY, DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (DefaultRole(INVENTORY, (rule(READ, naming.identity, ("clusters",)),)),)
