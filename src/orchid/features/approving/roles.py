"""Default roles: who may approve certificate requests, and ask how a policy decides."""

from orchid.kernel.wire.default_roles import REQUESTER, DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    group, requests = naming.certificates, "certificatesigningrequests"
    explained = rule(("create",), naming.identity, ("approvalreviews",))
    return (
        DefaultRole(REQUESTER, (explained,)),
        # A role of your own with resourceNames limits approving to some signers.
        DefaultRole(
            "certificate-approver",
            (
                rule(READ, group, (requests,)),
                rule(("update",), group, (f"{requests}/approval",)),
                rule(("approve",), group, ("signers",)),
                explained,
                rule(READ, naming.identity, ("approvalpolicies", "certificateauthorities")),
            ),
        ),
    )
