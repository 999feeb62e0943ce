"""Default roles: who may read revocations."""

from orchid.kernel.wire.default_roles import INVENTORY, DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule


def roles(names: Naming) -> tuple[DefaultRole, ...]:
    return (DefaultRole(INVENTORY, (rule(READ, names.identity, ("credentialrevocations",)),)),)
