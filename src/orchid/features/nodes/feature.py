"""What a node may do, and certificates for the Pods on it.

Uses       rights, objects, accounts, certificates
Read first authorizers/node.py
"""

from collections.abc import Iterable

from orchid.features.nodes.authorizers.node import NodeAuthorizer
from orchid.features.nodes.policies.node_restriction import NodeRestriction
from orchid.features.nodes.roles import roles
from orchid.kernel.context import AuthorizerOffer, Context
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.feature import Feature


def _authorizers(context: Context) -> Iterable[AuthorizerOffer]:
    yield AuthorizerOffer("Node", lambda: NodeAuthorizer(context.naming, context.feed))


def _policies(context: Context) -> Iterable[AdmissionPolicy]:
    yield NodeRestriction(context.naming, context.feed, context.authorizer)


FEATURE = Feature(
    name="nodes",
    roles=roles,
    authorizers=_authorizers,
    policies=_policies,
    documentation="access.md",
)
