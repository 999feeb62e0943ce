"""Default roles: who may use ACME, and whose certificates it may request."""

from orchid.kernel.wire.default_roles import DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    request = rule(("create",), naming.certificates, ("certificatesigningrequests",))
    return (
        # ACME requests are signed with the keys of their accounts.
        public(
            "system:acme-client",
            urls("/acme/*", verbs=("get", "head", "post")),
        ),
        # ACME clients get their certificates from /acme/, and read no requests.
        DefaultRole("acme-requester", (request,)),
    )
