"""Default roles: what a node may do.

They are bound to nobody: authorizers/node.py applies the rules, to nodes only, and limited to
their own Pods.
"""

from orchid.kernel.wire.default_roles import DefaultRole
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, PolicyRule, may_record_events, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (DefaultRole("system:node", node_rules(naming), groups=()),)


def node_rules(naming: Naming) -> tuple[PolicyRule, ...]:
    """Permissions of a node itself; authorizers/node.py decides about its Pods."""
    requests = "certificatesigningrequests"
    reviews = ("subjectaccessreviews", "localsubjectaccessreviews")
    return (
        rule(("create",), naming.authentication, ("tokenreviews",)),
        rule(("create",), naming.authorization, reviews),
        rule(("create", *READ), naming.certificates, (requests,)),
        rule(("create", *READ), naming.certificates, ("podcertificaterequests",)),
        rule(READ, naming.certificates, ("clustertrustbundles",)),
        rule(("create", *READ), CORE, ("nodes",)),
        rule(("patch", "update"), CORE, ("nodes", "nodes/status")),
        rule(("create", "delete", *READ), CORE, ("pods",)),
        rule(("patch", "update"), CORE, ("pods/status",)),
        rule(("create",), CORE, ("pods/eviction",)),
        rule(READ, CORE, ("configmaps", "secrets")),
        rule(("get",), CORE, ("serviceaccounts",)),
        rule(("create",), CORE, ("serviceaccounts/token",)),
        rule(("create", "delete", "get", "patch", "update"), naming.coordination, ("leases",)),
        may_record_events(naming),
    )
