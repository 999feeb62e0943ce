"""Default roles: who may read trust bundles."""

from orchid.kernel.wire.default_roles import FETCH, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.user import AUTHENTICATED


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (
        # The certificates of authorities are public.
        public(
            "system:published-bundle-reader",
            urls("/trust/*", verbs=FETCH),
        ),
        # Every authenticated user may read trust anchors; in Kubernetes only service accounts may.
        DefaultRole(
            "system:cluster-trust-bundle-discovery",
            (rule(READ, naming.certificates, ("clustertrustbundles",)),),
            groups=(AUTHENTICATED,),
        ),
    )
