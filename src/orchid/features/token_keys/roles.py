"""Default roles: who may fetch the keys of tokens, and who replaces them."""

from orchid.kernel.wire.default_roles import DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule

OPENID_URLS = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
)


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    operate = ("activate", "create", "patch", "retire", "update", *READ)
    return (
        # Relying parties fetch the keys without credentials; nothing in them is secret.
        public("system:service-account-issuer-discovery", urls(*OPENID_URLS)),
        # Importing or revoking a key takes more: see docs/rotation.md.
        DefaultRole("system:key-operator", (rule(operate, naming.identity, ("signingkeys",)),)),
    )
