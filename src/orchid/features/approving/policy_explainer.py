"""PolicyExplainer: the decision of stored policies on a request, with reasons.

Start with `explain`. It reads policies from the feed and permissions from the authorizer, where the
controller uses the API; the evaluation is the same code (approval/). A policy is compiled on first
use, and again after a change.
"""

import functools
from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

from orchid.features.approval.case import REQUEST_SAMPLE, Case, TermsOf, case_of
from orchid.features.approval.compiled import CompiledPolicy
from orchid.features.approval.explaining import Explainer, Explanation, RequestedTerms, explain
from orchid.features.approval.terms import ApprovalPolicySpec
from orchid.features.approving.kinds.approval_policy import ApprovalPolicy, compiled, writers_in
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
)
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.requester_notes import CREATED_BY
from orchid.kernel.access.denial import forbidden
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.offload import ALWAYS, Offload
from orchid.kernel.credentials.authorities.validity import lifetime_of
from orchid.kernel.credentials.x509.requested_certificate import certified
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Authorizer
from orchid.kernel.engine.request import Target
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.errors import NotFound
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import UserInfo

T = TypeVar("T", bound=Object)

GIVEN = "(given)"  # the name of a policy that is not stored


class PolicyExplainer:
    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        terms_of: TermsOf,
        *,
        offload: Offload,
        clock: Clock,
        four_eyes: bool = True,
    ) -> None:
        """`four_eyes`: no writer of a policy may use it
        (features/approving/policies/four_eyes.py).
        """
        self._naming = naming
        self._feed = feed
        self._offload = offload
        self._authorizer = authorizer
        self._terms_of = terms_of
        self._clock = clock
        self._four_eyes = four_eyes
        self._compiler = Compiler()
        self._compiled: dict[str, CompiledPolicy] = {}
        self._evaluator = Evaluator(REQUEST_SAMPLE)

    async def explain(
        self, asked: RequestedTerms | Case, instead: ApprovalPolicySpec | None = None
    ) -> Explanation:
        case = asked if isinstance(asked, Case) else self._case(asked)
        if instead is not None:
            policy = await self._offload(
                ALWAYS, functools.partial(CompiledPolicy, GIVEN, "0", instead, self._compiler)
            )
            return await explain(case, [policy], _anybody, self._evaluator)

        behind = asked.created_by if isinstance(asked, RequestedTerms) else ""
        creators = {asked.user.username, behind}

        async def may_use(name: str) -> bool:
            if self._four_eyes and not creators.isdisjoint(self._writers(name)):
                return False
            return (await self._authorizer.authorize(asked.user, self._use(name))).allowed

        return await explain(case, await self._policies(), may_use, self._evaluator)

    def _writers(self, policy: str) -> frozenset[str]:
        entry = self._feed.of(ApprovalPolicy).get("", policy)
        return writers_in(entry.notes()) if entry else frozenset()

    def _case(self, asked: RequestedTerms) -> Case:
        return case_of(
            asked.request,
            signer_name=asked.signer_name,
            usages=asked.usages,
            expiration_seconds=asked.expiration_seconds,
            user=asked.user,
            now=self._clock.now(),
            terms_of=self._terms_of,
        )

    async def stored_request(self, name: str, caller: UserInfo) -> RequestedTerms:
        entry = await self._seen_by(caller, CertificateSigningRequest, name)
        spec = entry.object.spec
        user = UserInfo(username=spec.username, uid=spec.uid, groups=spec.groups, extra=spec.extra)
        return RequestedTerms(
            spec.request or b"",
            spec.signer_name,
            spec.usages,
            spec.expiration_seconds,
            user,
            entry.notes().get(CREATED_BY, ""),
        )

    async def issued_certificate(self, name: str, caller: UserInfo) -> Case:
        spec = (await self._seen_by(caller, IssuedCertificate, name)).object.spec
        asked = spec.requester
        user = UserInfo(username=asked.username, uid=asked.uid, groups=asked.groups)
        begin, end = spec.not_before, spec.not_after
        lifetime = lifetime_of(begin, end) if begin and end else timedelta.max
        certificate = certified(spec.certificate, spec.usages, spec.key.algorithm, lifetime)
        return Case(spec.signer_name, certificate, user, self._clock.now())

    async def _seen_by(self, caller: UserInfo, type_: type[T], name: str) -> Entry[T]:
        """A cluster-scoped object, if the caller may read it."""
        cache = self._feed.of(type_)
        kind = cache.kind
        target = kind.target("get", name)
        decision = await self._authorizer.authorize(caller, target)
        if not decision.allowed:
            raise forbidden(caller, target, decision.reason)
        await self._feed.fresh()
        entry = cache.get("", name)
        if entry is None:
            raise NotFound(kind.about(name))
        return entry

    async def _policies(self) -> list[CompiledPolicy]:
        """Every stored policy, compiled."""
        await self._feed.fresh()
        policies = []
        for policy in list(self._stored()):
            cached = self._compiled.get(policy.name)
            if cached is None or cached.revision != policy.metadata.resource_version:
                # Expressions may take long to compile.
                cached = await self._offload(
                    ALWAYS, functools.partial(compiled, policy, self._compiler)
                )
                self._compiled[policy.name] = cached
            policies.append(cached)
        self._compiled = {policy.name: policy for policy in policies}
        return policies

    def _stored(self) -> Iterator[ApprovalPolicy]:
        for entry in self._feed.of(ApprovalPolicy).scan():
            yield entry.object

    def _use(self, policy: str) -> Target:
        return Target(
            verb="use",
            is_resource=True,
            group=self._naming.identity,
            version="*",
            resource="approvalpolicies",
            name=policy,
        )


async def _anybody(_name: str) -> bool:
    return True


_: type[Explainer] = PolicyExplainer
