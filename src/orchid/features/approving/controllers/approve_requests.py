"""Decide on certificate requests: of nodes, for own SPIFFE IDs, and those that a policy selects.

Reads   certificatesigningrequests without a decision, and approvalpolicies
        issuedcertificates of nodes: a token bound to a host leads to one live certificate
Asks    SubjectAccessReview: may the requester create .../nodeclient, or .../selfnodeclient?
        may the requester use that policy?
Writes  /approval: the condition Approved; Denied if a policy says so
Never   decides before every policy is loaded, nor by one that is not Ready; a request that no
        policy selects and no node sent is left to a person

approval/ evaluates policies, with the certificate that would be signed. A decision is final, so the
policies behind it are checked again before it is written. A request that is left is evaluated again
when a policy changes.

A request that depends on slow rules moves to the queue of slow_requests.py, so that no other
request waits for it.
"""

import asyncio
import logging
from collections.abc import Iterator

from orchid.features.approval.case import REQUEST_SAMPLE, Case, SignerTerms, TermsOf, case_of
from orchid.features.approval.deciding import (
    APPROVING_ACCOUNT,
    BY_POLICY,
    MOST_SLOW,
    Outcome,
    PolicyDecision,
    decide,
    judge_all,
)
from orchid.features.approval.issuing_terms import within_chain
from orchid.features.approval.platform_signers import platform_profiles, signer_terms
from orchid.features.approving.controllers.follow_policies import PolicyFollower
from orchid.features.approving.controllers.slow_requests import SlowRequests
from orchid.features.authorities.controllers.follow_authorities import AuthorityFollower
from orchid.features.authorities.settings import AuthoritySettings
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.hosts.controllers.host_certificates import MOST_RENEWALS, HostCertificates
from orchid.features.rights.kinds.subject_access_review import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.profiles import RENEWAL, Profile, recognise_node_client
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.runtime.context import (
    ControllerContext,
)
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import WARNING, EventRecorder
from orchid.kernel.runtime.loop import Controller, Start, TryAgain
from orchid.kernel.wire.errors import ApiError, Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, may_record_events, rule
from orchid.kernel.wire.request_conditions import APPROVED, DENIED, REQUESTER_REVOKED
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import HOSTS, NODE_PREFIX, UserInfo

log = logging.getLogger(__name__)

BY_NODE = "AutoApproved"
BY_IDENTITY = "OwnIdentity"
LOOK_AGAIN_SECONDS = 30.0  # a missing permission may be granted without an event
_CONDITIONS = b'"conditions":[{'

REQUESTS = ListSelection(CertificateSigningRequest)


class ApproveRequests(Controller[CertificateSigningRequest]):
    name = "csrapproving"
    workers = 16

    def __init__(
        self,
        client: Client,
        naming: Naming,
        *,
        node_client: Profile,
        terms_of: TermsOf,
        clock: Clock,
        events: EventRecorder,
    ) -> None:
        super().__init__(client, REQUESTS)
        self._naming = naming
        self._node_client = node_client
        self._terms_of = terms_of
        self._clock = clock
        self._events = events
        self._signer = node_client.signer_name.encode()
        self.policies = PolicyFollower(client, clock)
        self.authorities = AuthorityFollower(client)
        self.hosts = HostCertificates(client, node_client.signer_name)
        self._evaluator = Evaluator(REQUEST_SAMPLE)
        self._reconsider = asyncio.Event()
        self._slow = SlowRequests(self._decide_slowly)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slow.run())
            await super().run()

    # -- events ------------------------------------------------------------------------------

    async def follow(self, start: Start) -> None:
        self.policies.forget()
        self.authorities.forget()
        self.hosts.forget()
        start(self.hosts.follow(self._host_changed))
        start(self.policies.follow(self._reconsider.set))
        start(self.authorities.follow(lambda authority: self._reconsider.set()))
        await self.policies.all_loaded.wait()
        await self.authorities.all_loaded.wait()
        await self.hosts.all_loaded.wait()
        start(self._look_again())
        await super().follow(start)

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        # Decided requests and those of others are not decoded: there may be thousands of them.
        data = bytes(event.data)
        may_decide = self.policies.any or self.authorities.any_trust_domain
        is_open = may_decide and _CONDITIONS not in data
        if self._signer in data:
            self.hosts.take_request(event)
        if event.type == DELETED or self._signer in data or is_open:
            super().take(event)

    def _host_changed(self, user: str) -> None:
        for name in self.hosts.waiting(user):
            self.queue.add(("", name))

    async def _look_again(self) -> None:
        """Queue every undecided request, once after any number of changed policies."""
        while True:
            await self._reconsider.wait()
            self._reconsider.clear()
            async for request in self._client.scan(REQUESTS):
                if not request.is_decided:
                    self.queue.add((request.namespace, request.name), request)

    # -- decision ----------------------------------------------------------------------------

    async def reconcile(self, request: CertificateSigningRequest) -> float | None:
        if request.is_decided or request.is_issued:
            return None
        case = self._case(request)
        if case is None:
            return None
        ways = list(self._recognised(request))
        if ways and self._is_by_host_token(request):
            return await self._approve_host(request, ways)
        for subresource, message in ways:
            if await self._may_ask(request, subresource):
                return await self._approve_node(request, subresource, message)
        if self._is_own_identity(request, case):
            text = "The requester asks for its own SPIFFE ID."
            await self._write(request, APPROVED, BY_IDENTITY, text)
            return None
        again = await self._by_policy(request, case)
        if ways:
            recognised = " ".join(subresource for subresource, _ in ways)
            raise TryAgain(
                f'recognized csr "{request.name}" as [{recognised}] '
                "but subject access review was not approved"
            )
        return again

    def _is_own_identity(self, csr: CertificateSigningRequest, case: Case) -> bool:
        """Whether an X.509-SVID is requested for the requester's own ID; the case checks that."""
        terms = self._terms_of(csr.spec.signer_name) or self.authorities.terms(csr.spec.signer_name)
        return terms is not None and bool(terms.profile.trust_domain) and not case.obstacles

    def _is_by_host_token(self, csr: CertificateSigningRequest) -> bool:
        return HOSTS in csr.spec.groups or self._naming.bound_node_name in csr.spec.extra

    async def _approve_host(
        self, csr: CertificateSigningRequest, ways: list[tuple[str, str]]
    ) -> float | None:
        """Approve the first certificate of the host that a token is bound to, or leave it."""
        user = signing_request.parse_once(csr.spec.request or b"").subject.common_name
        bound = csr.spec.extra.get(self._naming.bound_node_name, ())
        if user not in [NODE_PREFIX + name for name in bound]:
            names = ", ".join(bound) or "no host"
            self._leave(csr, "OtherHost", f"The token is bound to {names}, not to {user}.")
            return None
        subresource, message = ways[-1]
        if not await self._may_ask(csr, subresource):
            raise TryAgain(f"the requester of {csr.name} may not create {subresource}")
        if other := self.hosts.claim(user, csr, self._clock.now()):
            text = f"{user} has {other}, with another key. To replace it, revoke it first."
            self._leave(csr, "HostHasCertificate", text)
            return LOOK_AGAIN_SECONDS
        await self._write_reserved(user, csr, message)
        return None

    async def _approve_node(
        self, csr: CertificateSigningRequest, subresource: str, message: str
    ) -> float | None:
        """Approve the request of a node; its own renewals within a limit."""
        user = csr.spec.username
        if subresource != RENEWAL:
            await self._write(csr, APPROVED, BY_NODE, message)
        elif self.hosts.renew(user, csr, self._clock.now()):
            await self._write_reserved(user, csr, message)
        else:
            text = f"{user} got {MOST_RENEWALS} certificates within an hour."
            self._leave(csr, "TooManyRenewals", text)
            return LOOK_AGAIN_SECONDS
        return None

    async def _write_reserved(
        self, user: str, csr: CertificateSigningRequest, message: str
    ) -> None:
        try:
            await self._write(csr, APPROVED, BY_NODE, message)
        except BaseException:
            self.hosts.release(user, csr)
            raise

    def _leave(self, csr: CertificateSigningRequest, reason: str, message: str) -> None:
        self._events.record(self.name, csr, reason, message, type_=WARNING)

    async def _by_policy(
        self, csr: CertificateSigningRequest, case: Case, slow: int = 0
    ) -> float | None:
        """Decide, or leave it undecided; return the seconds after which to check again.

        `slow`: the number of policies whose slow rules are evaluated. With 0, a request that
        depends on slow rules is moved to their queue.
        """
        candidates = self.policies.loaded.candidates(case.signer_name, case.user)
        verdicts = await judge_all(case, candidates, self._evaluator, slow)
        for verdict in verdicts:
            if verdict.policy.exceeded:
                await self.policies.pause(verdict.policy)
        usable: dict[str, bool] = {}

        async def may_use(name: str) -> bool:
            if name not in usable:
                usable[name] = await self._may(csr, self._use(name))
            return usable[name]

        refusals: list[str] = []
        decision = await decide(verdicts, may_use)
        while decision.by is not None:
            policy = decision.by.policy
            if not await self.policies.is_current(policy):
                raise TryAgain(f"policy {policy.name} has changed meanwhile")
            try:
                await self._write(csr, APPROVED, BY_POLICY, decision.message)
            except Forbidden as refusal:  # four eyes: another policy may still approve it
                usable[policy.name] = False
                refusals.append(str(refusal))
                decision = await decide(verdicts, may_use)
            else:
                return None
        if not slow and any(verdict.unfinished for verdict in verdicts):
            self._slow.add(csr)
            return None
        return await self._not_approved(csr, decision, refusals)

    async def _decide_slowly(self, name: str) -> None:
        """Decide on a request with its slow rules; if that fails, it is queued again."""
        again: float | None = LOOK_AGAIN_SECONDS
        try:
            request = await self._client.find(CertificateSigningRequest, name)
            if request is None or request.is_decided or request.is_issued:
                return
            case = self._case(request)
            if case is not None:
                again = await self._by_policy(request, case, MOST_SLOW)
        except (TryAgain, ApiError, CallFailed) as problem:
            log.info("controller.slow_rules_wait", extra={"object": name, "why": str(problem)})
        if again is not None:
            self.queue.add_after(("", name), again)

    async def _not_approved(
        self, csr: CertificateSigningRequest, decision: PolicyDecision, refusals: list[str]
    ) -> float | None:
        """Deny a request or leave it; return the seconds after which to check again."""
        message = " ".join((decision.message, *refusals))
        if decision.outcome is Outcome.DENY:
            if not await self.policies.all_current():
                raise TryAgain("policies have changed meanwhile")
            await self._write(csr, DENIED, BY_POLICY, message)
        elif decision.selected:
            self._events.record(self.name, csr, "NotApproved", message, type_=WARNING)
            return LOOK_AGAIN_SECONDS if decision.may_change else None
        return None

    def _case(self, csr: CertificateSigningRequest) -> Case | None:
        """The request as policies evaluate it; None if it is malformed: a person has to decide."""
        spec = csr.spec
        try:
            return case_of(
                spec.request or b"",
                signer_name=spec.signer_name,
                usages=spec.usages,
                expiration_seconds=spec.expiration_seconds,
                user=UserInfo(
                    username=spec.username, uid=spec.uid, groups=spec.groups, extra=spec.extra
                ),
                now=self._clock.now(),
                terms_of=self._signer_terms,
            )
        except Refusal:
            return None

    def _recognised(self, csr: CertificateSigningRequest) -> Iterator[tuple[str, str]]:
        """The approvals of a node's request: the required permission, and the message."""
        for way in recognise_node_client(
            self._node_client,
            signing_request.parse_once(csr.spec.request or b""),
            csr.spec.usages,
            signer_name=csr.spec.signer_name,
            username=csr.spec.username,
            agent=self._naming.agent,
        ):
            yield way.subresource, way.message

    async def _write(
        self, csr: CertificateSigningRequest, type_: str, reason: str, message: str
    ) -> None:
        decided = csr.with_condition(type_, reason, message)
        try:
            await self._client.update(decided, "approval")
        except Forbidden as refusal:
            if not refusal.has_cause(REQUESTER_REVOKED):
                raise
            await self._write(csr, DENIED, REQUESTER_REVOKED, str(refusal))
        else:
            self._events.record(self.name, csr, reason, message)

    # -- permissions -------------------------------------------------------------------------

    async def _may_ask(self, csr: CertificateSigningRequest, subresource: str) -> bool:
        asked = ResourceAttributes(
            verb="create",
            group=self._naming.certificates,
            version="*",
            resource="certificatesigningrequests",
            subresource=subresource,
        )
        return await self._may(csr, asked)

    def _use(self, policy: str) -> ResourceAttributes:
        return ResourceAttributes(
            verb="use",
            group=self._naming.identity,
            version="*",
            resource="approvalpolicies",
            name=policy,
        )

    async def _may(self, csr: CertificateSigningRequest, asked: ResourceAttributes) -> bool:
        spec = csr.spec
        question = SubjectAccessReview(
            spec=SubjectAccessReviewSpec(
                user=spec.username,
                uid=spec.uid,
                groups=spec.groups,
                extra=spec.extra,
                resource_attributes=asked,
            )
        )
        return (await self._client.create(question)).status.allowed

    def _signer_terms(self, signer: str) -> SignerTerms | None:
        """The terms of a signer: of the platform, or of a CertificateAuthority."""
        terms = self._terms_of(signer)
        if terms is None:
            return self.authorities.terms(signer)
        authority = self.authorities.of(signer)
        if authority is None:
            return terms
        return replace(terms, profile=within_chain(terms.profile, authority.status.certificate))


def platform_terms(context: ControllerContext) -> TermsOf:
    """The profiles of the platform's signers, within the constraints of chains in files."""
    longest = context.settings(AuthoritySettings).cluster_signing_duration.delta
    rules = signer_terms(context.naming, longest)

    def terms_of(name: str) -> SignerTerms | None:
        terms, signer = rules(name), context.signers.get(name)
        if terms is None or signer is None:
            return terms
        return replace(terms, profile=terms.profile.within(signer.authority().limits))

    return terms_of


def build(client: Client, context: ControllerContext, events: EventRecorder) -> ApproveRequests:
    naming = context.naming
    return ApproveRequests(
        client,
        naming,
        node_client=platform_profiles(naming)[naming.node_client_signer],
        terms_of=platform_terms(context),
        clock=context.clock,
        events=events,
    )


CONTROLLER = ControllerDeclaration(
    name="csrapproving",
    long_name="certificatesigningrequest-approving-controller",
    account=APPROVING_ACCOUNT,
    rights=lambda naming: (
        rule(READ, naming.certificates, ("certificatesigningrequests",)),
        rule(("update",), naming.certificates, ("certificatesigningrequests/approval",)),
        # A policy may select any signer; the permission to write policies limits which.
        rule(("approve",), naming.certificates, ("signers",)),
        rule(
            READ,
            naming.identity,
            ("approvalpolicies", "certificateauthorities", "issuedcertificates"),
        ),
        rule(("update",), naming.identity, ("approvalpolicies/status",)),
        rule(("create",), naming.authorization, ("subjectaccessreviews",)),
        may_record_events(naming),
    ),
    build=build,
)
