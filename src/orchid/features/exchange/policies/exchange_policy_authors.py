"""Authors of a TokenExchangePolicy cannot grant tokens that they could not issue.

Writing a policy needs `create` on `serviceaccounts/token` of its account, at every change; deleting
one needs no more than the verb. A policy for a subject that others can obtain later causes a
warning; a server with --token-exchange-strict refuses it.
"""

from collections.abc import Callable, Collection
from typing import Any

from orchid.features.approval.outside_subjects import advice, takeover_risks
from orchid.features.exchange.kinds.token_exchange_policy import SPEC, TokenExchangePolicy
from orchid.features.rights.policies.role_escalation import without_upkeep
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import forbidden
from orchid.kernel.wire.text import quote

OFF = "token exchange is off: the server was started without --token-exchange-config"


class ExchangePolicyAuthors(AdmissionPolicy):
    reviews = (TokenExchangePolicy,)

    def __init__(
        self,
        authorizer: Authorizer,
        issuers: Callable[[], Collection[str]],
        *,
        is_on: bool,
        is_strict: bool,
    ) -> None:
        """`issuers`: those whose tokens can be exchanged."""
        self._authorizer = authorizer
        self._issuers = issuers
        self._is_on = is_on
        self._is_strict = is_strict

    async def review(
        self,
        request: Request,
        kind: Kind[Any],
        new: TokenExchangePolicy | None,
        old: TokenExchangePolicy | None,
    ) -> None:
        if new is None or request.target.subresource:
            return
        if old is not None and without_upkeep(new) == without_upkeep(old):
            return
        await self._require_token_right(request, kind, new)
        if old is None or new.spec != old.spec:
            self._refuse_risks(kind, new)
            self._warn(request, new)

    async def _require_token_right(
        self, request: Request, kind: Kind[Any], new: TokenExchangePolicy
    ) -> None:
        target = Target(
            verb="create",
            is_resource=True,
            version="v1",
            resource="serviceaccounts",
            subresource="token",
            namespace=request.namespace,
            name=new.spec.account,
        )
        if not (await self._authorizer.authorize(request.user, target)).allowed:
            account = quote(f"{request.namespace}/{new.spec.account}")
            text = f"user may not create tokens of the account {account} (serviceaccounts/token)"
            raise Forbidden(kind.about(new.name), text)

    def _refuse_risks(self, kind: Kind[Any], new: TokenExchangePolicy) -> None:
        if self._is_strict:
            risks = takeover_risks(new.spec.issuer, new.spec.claims)
            problems = [forbidden(SPEC / "claims", risk) for risk in risks]
            if problems:
                raise Invalid(kind.about_kind(new.name), problems)

    def _warn(self, request: Request, new: TokenExchangePolicy) -> None:
        spec = new.spec
        risks = () if self._is_strict else takeover_risks(spec.issuer, spec.claims)
        for text in (*risks, *advice(spec.issuer, spec.claims)):
            request.warn(f"spec.claims: {text}")
        if not self._is_on:
            request.warn(OFF)
        elif spec.issuer not in self._issuers():
            request.warn("spec.issuer: not an issuer of this server's --token-exchange-config")
