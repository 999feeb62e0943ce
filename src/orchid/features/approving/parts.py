"""The parts of approving: the explainer of policies, and the rules about approvals."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from orchid.features.approval.case import SignerTerms, TermsOf
from orchid.features.approval.platform_signers import signer_terms
from orchid.features.approving.kinds import approval_review
from orchid.features.approving.policies.four_eyes import FourEyes
from orchid.features.approving.policies.kept_approvals import KeptApprovals
from orchid.features.approving.policies.policy_forecast import PolicyForecast
from orchid.features.approving.policy_explainer import PolicyExplainer
from orchid.features.approving.settings import ApprovingSettings
from orchid.features.authorities.kinds.certificate_authority import profile
from orchid.features.authorities.policies.own_signers import AuthoritiesOf
from orchid.features.authorities.settings import AuthoritySettings
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind


def _four_eyes(context: Context) -> bool:
    """Whether the creator of a request may not approve it."""
    return not context.settings.given.of(ApprovingSettings).approve_own_requests


def _explainer(context: Context) -> PolicyExplainer:
    authorities = context.settings.given.of(AuthoritySettings)
    longest = authorities.cluster_signing_duration.delta
    return PolicyExplainer(
        context.naming,
        context.feed,
        context.authorizer,
        _terms_of(signer_terms(context.naming, longest), context.port(SignerAuthorities).of),
        offload=context.offload,
        clock=context.clock,
        four_eyes=_four_eyes(context),
    )


def _terms_of(platform: TermsOf, authorities_of: AuthoritiesOf) -> TermsOf:
    """The terms of each signer: of the platform, and of CertificateAuthorities."""

    def own(signer: str) -> SignerTerms | None:
        authorities = authorities_of(signer)
        return SignerTerms(profile(authorities[0]), timedelta.max) if authorities else None

    return lambda signer: platform(signer) or own(signer)


PARTS = (ServerPart(PolicyExplainer, _explainer),)


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    if _four_eyes(context):
        yield FourEyes(context.feed)
    refuse = context.port(Revocations).refuse_action
    yield KeptApprovals(context.naming, context.feed, context.authorizer, refuse)
    yield PolicyForecast(context.port(PolicyExplainer))


def served_kinds(context: Context) -> Iterable[Kind[Any]]:
    explainer = context.port(PolicyExplainer)
    yield approval_review.declare(context.naming, explainer, context.offload)
