"""Default roles: who may revoke credentials, and fetch revocation lists."""

from orchid.kernel.wire.default_roles import FETCH, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, rule
from orchid.kernel.wire.user import AUTHENTICATED


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    revocations = ("credentialrevocations",)
    inventory = (*revocations, "clusters", "issuedcertificates")
    return (
        # A CRL is signed and public.
        public(
            "system:revocation-list-reader",
            urls("/crl/*", verbs=FETCH),
        ),
        # The holder of a certificate may revoke it. Other revocations need the verb revoke: see
        # policies/revocation_permission.py.
        DefaultRole(
            "system:own-certificate-revoker",
            (rule(("create",), naming.identity, revocations),),
            groups=(AUTHENTICATED,),
        ),
        DefaultRole(
            "credential-revoker",
            (
                rule(READ, naming.identity, inventory),
                rule(("create", "delete"), naming.identity, revocations),
                rule(("revoke",), naming.certificates, ("signers",)),
                rule(("revoke",), CORE, ("serviceaccounts", "users")),
                rule(("revoke",), naming.identity, ("clusters",)),
            ),
        ),
    )
