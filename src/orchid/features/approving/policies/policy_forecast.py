"""A dry run of a certificate request returns the decision of policies as warnings.

Start with `PolicyForecast.review`. For a request with `dryRun=All` the warnings say whether it
would be approved, denied or left, with the objections of each policy that selects it. It refuses
nothing, and adds no warnings to requests that are stored: the controller decides on these.
"""

from typing import Any, Final

from orchid.features.approval.deciding import Outcome
from orchid.features.approval.explaining import Explainer, Explanation, RequestedTerms
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.meta import Object

FORECASTS: Final = {
    Outcome.APPROVE: "policies would approve this request",
    Outcome.DENY: "policies would deny this request",
    Outcome.LEAVE: "policies would leave this request undecided",
}
MOST_WARNINGS: Final = 16


class PolicyForecast(AdmissionPolicy):
    reviews = (CertificateSigningRequest,)

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Object | None) -> None:
        if new is None or old is not None or not request.options.dry_run:
            return
        spec = new.spec
        asked = RequestedTerms(
            spec.request or b"",
            spec.signer_name,
            spec.usages,
            spec.expiration_seconds,
            request.user,
            request.real_user.username if request.real_user else "",
        )
        try:
            explanation = await self._explainer.explain(asked)
        except Refusal:
            return  # validation refuses the request
        warn_of(explanation, request)


def warn_of(explanation: Explanation, request: Request) -> None:
    request.warn(f"{FORECASTS[explanation.decision.outcome]}: {explanation.decision.message}")
    selecting = [answer for answer in explanation.answers if answer.verdict.selected]
    for answer in selecting[:MOST_WARNINGS]:
        verdict = answer.verdict
        if not verdict.allowed:
            request.warn(f"policy {verdict.policy.name}: {verdict.message}")
        elif not answer.usable:
            request.warn(f"policy {verdict.policy.name}: allows it, but you may not use it")
