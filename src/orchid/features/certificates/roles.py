"""Default roles: who may request certificates, approve them, and read the inventory."""

from orchid.kernel.wire.default_roles import FETCH, INVENTORY, REQUESTER, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule

REQUESTS = "certificatesigningrequests"


def roles(names: Naming) -> tuple[DefaultRole, ...]:
    requesting = rule(("create", *READ), names.certificates, (REQUESTS,))
    return (
        # A window in which to renew a certificate that the client has already.
        public(
            "system:renewal-information-reader",
            urls("/renewal-info/*", verbs=FETCH),
        ),
        DefaultRole("system:node-bootstrapper", (requesting,)),
        *(_node_client(names, word) for word in ("nodeclient", "selfnodeclient")),
        *(
            _approver(names, signer)
            for signer in (
                names.legacy_signer,
                names.node_serving_signer,
                names.client_signer,
                names.node_client_signer,
            )
        ),
        DefaultRole(REQUESTER, (requesting,)),
        DefaultRole(INVENTORY, (rule(READ, names.identity, ("issuedcertificates",)),)),
    )


def _node_client(names: Naming, word: str) -> DefaultRole:
    """The right to have a request for the certificate of a node approved at once."""
    group = names.certificates
    asked = rule(("create",), group, (f"{REQUESTS}/{word}",))
    return DefaultRole(f"system:{group}:{REQUESTS}:{word}", (asked,))


def _approver(names: Naming, signer: str) -> DefaultRole:
    group, word = names.certificates, signer.partition("/")[2]
    approve = rule(("approve",), group, ("signers",), signer)
    return DefaultRole(f"system:{group}:{word}-approver", (approve,))
