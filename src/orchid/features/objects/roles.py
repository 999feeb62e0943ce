"""Default roles: who may read and write Secrets, ConfigMaps, Pods, Events and Leases."""

from orchid.kernel.wire.default_roles import EDIT, VIEW, DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, WRITE, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    events = (CORE, naming.events)
    return (
        DefaultRole(
            VIEW,
            (
                rule(READ, CORE, ("configmaps", "namespaces", "pods", "pods/status")),
                rule(READ, events, ("events",)),
            ),
        ),
        DefaultRole(
            EDIT,
            (
                rule(READ, CORE, ("secrets",)),
                rule(WRITE, CORE, ("configmaps", "pods", "secrets")),
                rule(WRITE, events, ("events",)),
                rule((*READ, *WRITE), naming.coordination, ("leases",)),
            ),
        ),
    )
