"""Default roles: who may use service accounts, and ask for reviews of tokens."""

from orchid.kernel.wire.default_roles import DELEGATOR, EDIT, VIEW, DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, WRITE, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (
        DefaultRole(VIEW, (rule(READ, CORE, ("serviceaccounts",)),)),
        DefaultRole(
            EDIT,
            (
                rule(("impersonate",), CORE, ("serviceaccounts",)),
                rule(WRITE, CORE, ("serviceaccounts",)),
                rule(("create",), CORE, ("serviceaccounts/token",)),
            ),
        ),
        DefaultRole(DELEGATOR, (rule(("create",), naming.authentication, ("tokenreviews",)),)),
    )
