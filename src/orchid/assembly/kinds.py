"""Every kind of this server. A new kind is one line here, beside its own file."""

import dataclasses
from collections.abc import Callable
from typing import Any

from orchid.access.authorizers.union import Union
from orchid.approval.explaining import Explainer
from orchid.engine.interfaces import TokenAuthenticator
from orchid.engine.kind import Endpoint, Kind
from orchid.engine.offload import Offload
from orchid.issuance.metrics.credentials import IssuanceMetrics
from orchid.issuance.token_issuer import TokenIssuer
from orchid.kinds import (
    acme_account,
    acme_order,
    approval_policy,
    approval_review,
    certificate_authority,
    certificate_search,
    certificate_signing_request,
    cluster,
    cluster_trust_bundle,
    config_map,
    console_session,
    credential_revocation,
    event,
    issued_certificate,
    lease,
    namespace,
    node,
    pod_certificate_request,
    published_bundle,
    role,
    role_binding,
    secret,
    self_subject_review,
    self_subject_rules_review,
    service_account,
    signing_key,
    subject_access_review,
    token_exchange_policy,
    token_exchange_review,
    token_request,
    token_review,
)
from orchid.kinds.pod import pod
from orchid.wire.naming import Naming

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
    return [
        service_account.declare(names),
        namespace.declare(names),
        secret.declare(names),
        config_map.declare(names),
        pod.declare(names),
        node.declare(names),
        event.declare(names),
        lease.declare(names),
        certificate_signing_request.declare(names),
        pod_certificate_request.declare(names),
        cluster_trust_bundle.declare(names),
        *role.declare(names),
        *role_binding.declare(names),
        approval_policy.declare(names),
        issued_certificate.declare(names),
        certificate_authority.declare(names),
        credential_revocation.declare(names),
        published_bundle.declare(names),
        cluster.declare(names),
        signing_key.declare(names),
        acme_account.declare(names),
        acme_order.declare(names),
        token_exchange_policy.declare(names),
        console_session.declare(names),
    ]


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
