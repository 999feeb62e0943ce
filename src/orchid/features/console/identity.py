"""The account of the server's console, for sessions. Its pages have the rights of their user."""

from orchid.kernel.runtime.declaration import ComponentIdentity
from orchid.kernel.wire.policy_rules import rule

IDENTITY = ComponentIdentity(
    name="console",
    account="console",
    rights=lambda naming: (
        rule(("create", "delete", "get", "list", "update"), naming.identity, ("consolesessions",)),
    ),
)
