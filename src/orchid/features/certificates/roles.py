"""Default roles: who may request certificates, approve them, and read the inventory."""

from orchid.kernel.wire.default_roles import FETCH, INVENTORY, REQUESTER, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule

REQUESTS = "certificatesigningrequests"


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    requesting = rule(("create", *READ), naming.certificates, (REQUESTS,))
    return (
        # A window in which to renew a certificate that the client has already.
        public(
            "system:renewal-information-reader",
            urls("/renewal-info/*", verbs=FETCH),
        ),
        DefaultRole("system:node-bootstrapper", (requesting,)),
        *(_node_client(naming, word) for word in ("nodeclient", "selfnodeclient")),
        *(
            _approver(naming, signer)
            for signer in (
                naming.legacy_signer,
                naming.node_serving_signer,
                naming.client_signer,
                naming.node_client_signer,
            )
        ),
        DefaultRole(REQUESTER, (requesting,)),
        DefaultRole(INVENTORY, (rule(READ, naming.identity, ("issuedcertificates",)),)),
    )


def _node_client(naming: Naming, word: str) -> DefaultRole:
    """The right to have a request for the certificate of a node approved at once."""
    group = naming.certificates
    asked = rule(("create",), group, (f"{REQUESTS}/{word}",))
    return DefaultRole(f"system:{group}:{REQUESTS}:{word}", (asked,))


def _approver(naming: Naming, signer: str) -> DefaultRole:
    group, word = naming.certificates, signer.partition("/")[2]
    approve = rule(("approve",), group, ("signers",), signer)
    return DefaultRole(f"system:{group}:{word}-approver", (approve,))
