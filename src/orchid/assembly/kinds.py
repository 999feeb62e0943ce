"""Every kind of this server: those that its features store, and those that act."""

import dataclasses
from collections.abc import Callable
from typing import Any

from orchid.assembly.features import FEATURES
from orchid.features.accounts.kinds import service_account, token_request, token_review
from orchid.features.accounts.token_issuer import TokenIssuer
from orchid.features.approval.explaining import Explainer
from orchid.features.approving.kinds import approval_review
from orchid.features.certificates.credentials_metrics import IssuanceMetrics
from orchid.features.certificates.kinds import (
    certificate_search,
)
from orchid.features.exchange.kinds import token_exchange_policy, token_exchange_review
from orchid.features.objects.kinds import node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.rights.authorizers.union import Union
from orchid.features.rights.kinds import (
    role,
    role_binding,
    self_subject_rules_review,
    subject_access_review,
)
from orchid.features.sign_in.kinds import self_subject_review
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.interfaces import TokenAuthenticator
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.wire.naming import Naming

# A change of one of these may remove permissions, so open watches are checked again.
PERMISSION_KINDS = (
    service_account.ServiceAccount,
    secret.Secret,
    pod.Pod,
    node.Node,
    role.Role,
    role.ClusterRole,
    role_binding.RoleBinding,
    role_binding.ClusterRoleBinding,
    token_exchange_policy.TokenExchangePolicy,
)

# Creating one of these revokes a credential.
REVOKING_KINDS = (credential_revocation.CredentialRevocation,)


def stored_kinds(names: Naming) -> list[Kind[Any]]:
    """Every kind that is stored."""
    return [kind for feature in FEATURES for kind in feature.stored_kinds(names)]


def served_kinds(
    names: Naming,
    stored: list[Kind[Any]],
    *,
    tokens: TokenAuthenticator,
    api_audiences: tuple[str, ...],
    issuer: TokenIssuer,
    authorizer: Union,
    issuance: IssuanceMetrics,
    explainer: Explainer,
    exchange_explainer: Callable[[], token_exchange_review.ExchangeExplainer | None],
    offload: Offload,
    searcher: certificate_search.Searcher,
    monotonic: Callable[[], float],
) -> list[Kind[Any]]:
    """Every kind that clients see: stored kinds, and acting ones."""
    token = issuance.counting(token_request.declare(names, issuer))
    endpoints = {service_account.ServiceAccount: token}
    return [
        *(_with_endpoint(kind, endpoints.get(kind.type)) for kind in stored),
        *token_review.declare(names, tokens, api_audiences, monotonic),
        self_subject_review.declare(names),
        *subject_access_review.declare(names, authorizer),
        self_subject_rules_review.declare(names, authorizer),
        approval_review.declare(names, explainer, offload),
        certificate_search.declare(names, searcher),
        token_exchange_review.declare(names, exchange_explainer),
    ]


def _with_endpoint(kind: Kind[Any], endpoint: Endpoint | None) -> Kind[Any]:
    """A kind with the endpoint that another file declares for it."""
    if endpoint is None:
        return kind
    return dataclasses.replace(kind, endpoints=(*kind.endpoints, endpoint))
