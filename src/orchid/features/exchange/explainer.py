"""Explanation of an exchange, for readers of the policies
(features/exchange/kinds/token_exchange_review.py).
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from orchid.features.exchange.exchanger import AccountUnusable, ExchangeRefused, TokenExchanger
from orchid.features.exchange.judging import ExchangeVerdict, PolicyJudge, differences
from orchid.features.exchange.kinds.token_exchange_review import (
    ExchangeExplainer,
    TokenExchangeCheck,
    TokenExchangeReviewSpec,
    TokenExchangeReviewStatus,
    TokenExchangeVerdict,
)
from orchid.features.exchange.policy_index import (
    MOST_CANDIDATES,
    ExchangePolicyIndex,
    IndexedPolicy,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import ErrorSubject, Forbidden
from orchid.kernel.wire.naming import Naming

MOST_EXPLAINED: Final = 32  # policies in a result
PORTION: Final = 50  # policies before other requests are served
POLICIES: Final = "tokenexchangepolicies"


class PolicyExchangeExplainer:
    def __init__(
        self,
        naming: Naming,
        exchanger: TokenExchanger,
        policies: ExchangePolicyIndex,
        judge: PolicyJudge,
        *,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        self._group = naming.identity
        self._exchanger = exchanger
        self._policies = policies
        self._judge = judge
        self._authorizer = authorizer
        self._clock = clock

    async def explain(
        self, spec: TokenExchangeReviewSpec, request: Request
    ) -> TokenExchangeReviewStatus:
        await self._require_list(request)
        issuer, claims, subject = spec.issuer, spec.claims, spec.claims.get("sub", "")
        if spec.token:
            try:
                token = await self._exchanger.usable(spec.token)
            except ExchangeRefused as refusal:
                return TokenExchangeReviewStatus(message=refusal.text)
            issuer, claims, subject = token.issuer, dict(token.claims), token.subject
        await self._policies.fresh()
        policies = await self._chosen(request.namespace, issuer, spec.account)
        if not policies:
            text = f"no policy of this namespace is for the issuer {issuer!r} and this account"
            return TokenExchangeReviewStatus(message=text, subject=subject)
        verdicts = await self._judged(policies, claims, spec.audiences)
        return TokenExchangeReviewStatus(
            allowed=any(verdict.allowed for verdict in verdicts), subject=subject, policies=verdicts
        )

    async def _require_list(self, request: Request) -> None:
        target = Target(
            verb="list",
            is_resource=True,
            group=self._group,
            version="v1alpha1",
            resource=POLICIES,
            namespace=request.namespace,
        )
        if not (await self._authorizer.authorize(request.user, target)).allowed:
            text = f"user may not list the policies of the namespace {request.namespace!r}"
            raise Forbidden(ErrorSubject(self._group, POLICIES), text)

    async def _chosen(self, namespace: str, issuer: str, account: str) -> list[IndexedPolicy]:
        """The policies of a namespace for an issuer, and for an account if it is named."""
        policies = []
        for number, policy in enumerate(self._policies.of_namespace(namespace)):
            if not number % PORTION:
                await asyncio.sleep(0)
            if policy.spec.issuer == issuer and account in ("", policy.spec.account):
                policies.append(policy)
        return policies

    async def _judged(
        self, policies: list[IndexedPolicy], claims: Mapping[str, Any], audiences: tuple[str, ...]
    ) -> tuple[TokenExchangeVerdict, ...]:
        """The results, with the fewest failures first. Rules are evaluated for as many policies as
        an exchange evaluates: their author could otherwise keep the server busy by one request.
        """
        now, differing = self._clock.now(), []
        for number, policy in enumerate(policies):
            if not number % PORTION:
                await asyncio.sleep(0)
            differing.append((differences(policy, claims), number, policy))
        nearest = [policy for _, _, policy in sorted(differing)[:MOST_CANDIDATES]]
        verdicts = [
            self._shown(await self._judge.judge(policy, claims, now), audiences)
            for policy in nearest
        ]
        verdicts.sort(key=lambda verdict: sum(not check.allowed for check in verdict.checks))
        return tuple(verdicts[:MOST_EXPLAINED])

    def _shown(self, verdict: ExchangeVerdict, audiences: tuple[str, ...]) -> TokenExchangeVerdict:
        policy = verdict.policy
        problem = ""
        try:
            self._exchanger.account_of(policy)
        except AccountUnusable as unusable:
            problem = str(unusable)
        checks = [
            TokenExchangeCheck(
                field=finding.field,
                wanted=finding.wanted,
                seen=finding.seen,
                allowed=finding.allowed,
                message=finding.message,
            )
            for finding in verdict.checks
        ]
        if audiences:
            checks.append(_audience_check(policy, audiences))
        checks.append(TokenExchangeCheck(field="account", allowed=not problem, message=problem))
        return TokenExchangeVerdict(
            name=policy.name,
            revision=policy.revision,
            account=policy.spec.account,
            allowed=all(check.allowed for check in checks),
            checks=tuple(checks),
        )


def _audience_check(policy: IndexedPolicy, requested: tuple[str, ...]) -> TokenExchangeCheck:
    allowed = set(requested) <= set(policy.spec.audiences)
    return TokenExchangeCheck(
        field="audiences",
        wanted=", ".join(policy.spec.audiences),
        seen=", ".join(requested),
        allowed=allowed,
        message="" if allowed else "a requested audience is not one of the policy",
    )


_: type[ExchangeExplainer] = PolicyExchangeExplainer
