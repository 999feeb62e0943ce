"""Exchange of a token of another issuer for a token of an account.

Start with `TokenExchanger.exchange`. The order: verify the token, limit its subject, refuse a
revoked one, find the policies, choose account and audiences, and sign. A refusal has two texts: one
for the holder of the token, which names only values of the token, and one for the audit record,
which names the policy and the rule.
"""

from collections.abc import Callable
from datetime import datetime
from math import ceil
from typing import Final, NoReturn

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import TokenRequest, TokenRequestSpec
from orchid.features.accounts.token_issuer import Bound, TokenIssuer
from orchid.features.exchange.judging import PolicyJudge
from orchid.features.exchange.kinds.token_exchange_policy import (
    UNTIL_SUBJECT,
    agreement_annotation,
    agrees,
    reserved_namespaces,
)
from orchid.features.exchange.policy_index import (
    ExchangePolicyIndex,
    IndexedPolicy,
    TooManyPolicies,
)
from orchid.features.exchange.subject_tokens import (
    RETRY_AFTER,
    InvalidSubject,
    KeysUnavailable,
    SubjectToken,
    SubjectTokens,
)
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Counter
from orchid.kernel.base.rate_limits import RateLimit
from orchid.kernel.credentials.token_claims import Actor, ExchangeClaims, Payload, Reference
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming

PER_MINUTE: Final = 600  # exchanges of one subject
MOST_REASONS: Final = 4  # policies named in an audit record
ISSUED, INVALID, REFUSED, TARGET, LIMITED = (
    "issued",
    "invalid_token",
    "refused",
    "invalid_target",
    "limited",
)
UNAVAILABLE: Final = "unavailable"
OTHER: Final = "other"


class ExchangeRefused(Exception):
    """No token: the outcome, the text for the holder, and the reason for the audit record."""

    def __init__(self, outcome: str, text: str, *, reason: str = "", retry_after: int = 0) -> None:
        super().__init__(text)
        self.subject: SubjectToken | None = None  # once it is verified
        self.outcome, self.text, self.reason = outcome, text, reason or text
        self.retry_after = retry_after


class AccountUnusable(Exception):
    """The account of a policy cannot be used; the message is for readers of the policy."""


class WantedToken(msgspec.Struct, frozen=True):
    """The parameters of an exchange."""

    subject_token: str
    account: tuple[str, str] | None = None  # namespace and name
    audiences: tuple[str, ...] = ()
    seconds: int = 0  # 0: as long as the policy allows

    __repr__ = object.__repr__  # shows no field: there is a token in it


class ExchangedToken(msgspec.Struct, frozen=True):
    """The issued token and its origin."""

    token: str
    credential_id: str
    seconds: int
    subject: SubjectToken
    policy: IndexedPolicy

    __repr__ = object.__repr__  # shows no field: there is a token in it


class TokenExchanger:
    def __init__(
        self,
        naming: Naming,
        subjects: SubjectTokens,
        feed: Feed,
        issuer: TokenIssuer,
        *,
        policies: ExchangePolicyIndex,
        judge: PolicyJudge,
        revocations: Revocations,
        username_of: Callable[[str, Payload], str],
        clock: Clock,
    ) -> None:
        """`username_of`: the user of an issuer and claims, if it authenticates users."""
        self._annotation = agreement_annotation(naming)
        self._reserved = reserved_namespaces(naming)
        self._subjects = subjects
        self._accounts = feed.of(ServiceAccount)
        self._issuer = issuer
        self._policies = policies
        self._judge = judge
        self._revocations = revocations
        self._username_of = username_of
        self._clock = clock
        self._limit: RateLimit[tuple[str, str]] = RateLimit(PER_MINUTE, 60.0, clock.monotonic)
        self.exchanges = Counter(
            "orchid_token_exchanges_total",
            "Exchanges of outside tokens by issuer and outcome.",
            "issuer",
            "outcome",
        )

    async def exchange(self, requested: WantedToken) -> ExchangedToken:
        """Issue a token; raises ExchangeRefused."""
        try:
            issued = await self._exchanged(requested)
        except ExchangeRefused as refusal:
            issuer = self._subjects.issuer_of(requested.subject_token) or OTHER
            self.exchanges.count(issuer, refusal.outcome)
            raise
        self.exchanges.count(issued.subject.issuer, ISSUED)
        return issued

    async def _exchanged(self, requested: WantedToken) -> ExchangedToken:
        subject = await self.verified(requested.subject_token)
        try:
            return await self._exchanged_for(subject, requested)
        except ExchangeRefused as refusal:
            refusal.subject = subject
            raise

    async def _exchanged_for(self, subject: SubjectToken, requested: WantedToken) -> ExchangedToken:
        wait = self._limit.wait_for((subject.issuer, subject.subject))
        if wait:
            text = f"the subject {subject.subject!r} exchanges too many tokens"
            raise ExchangeRefused(LIMITED, text, retry_after=ceil(wait))
        await self._policies.fresh()
        user = self._user(subject)
        now = self._clock.now()
        matching = await self._matching(subject, requested.account, now)
        try:
            account = self.account_of(matching[0])
        except AccountUnusable as problem:
            _refuse(subject, str(problem), requested.account)
        policy, audiences = _chosen(subject, matching, requested.audiences)
        seconds = self._lifetime(subject, policy, requested.seconds, now)
        request = TokenRequest(
            metadata=ObjectMeta(
                namespace=policy.namespace, name=policy.spec.account, uid=account.identity.uid
            ),
            spec=TokenRequestSpec(audiences=audiences, expiration_seconds=seconds),
        )
        issued_at = subject.issued_at if user else 0
        policy_of = Reference(policy.name, policy.uid)
        origin = ExchangeClaims(subject.jti, policy_of, user, issued_at)
        bound = Bound(exchange=origin, actor=Actor(subject.issuer, subject.subject))
        issued = await self._issuer.sign(request, bound, now)
        return ExchangedToken(issued.token, issued.credential_id, seconds, subject, policy)

    async def verified(self, token: str) -> SubjectToken:
        try:
            return await self._subjects.verify(token)
        except InvalidSubject as refusal:
            raise ExchangeRefused(INVALID, str(refusal)) from None
        except KeysUnavailable:
            text = "the keys of the issuer are not available now"
            raise ExchangeRefused(UNAVAILABLE, text, retry_after=RETRY_AFTER) from None

    async def usable(self, token: str) -> SubjectToken:
        """A verified token that is not revoked; raises ExchangeRefused."""
        subject = await self.verified(token)
        await self._policies.fresh()
        self._user(subject)
        return subject

    def _user(self, subject: SubjectToken) -> str:
        """The user of a token, or "". A revoked token or user is refused, as by the API."""
        user = self._username_of(subject.issuer, subject.claims)
        try:
            self._revocations.refuse_outside_token(subject.issuer, subject.claims, user)
        except Rejected as refusal:
            text = f"the subject token is refused: {refusal}"
            raise ExchangeRefused(INVALID, text) from None
        return user

    async def _matching(
        self, subject: SubjectToken, account: tuple[str, str] | None, now: datetime
    ) -> list[IndexedPolicy]:
        """The policies that allow the exchange, all of one account."""
        try:
            candidates = self._policies.candidates(subject.issuer, subject.claims, account)
        except TooManyPolicies:
            _refuse(subject, "too many policies compare claims of this token", account)
        allowed, refusals = [], []
        for policy in candidates:
            refusal = await self._judge.refusal(policy, subject.claims, now)
            if refusal:
                refusals.append(refusal)
            else:
                allowed.append(policy)
        if not allowed:
            refusals = refusals or await self._near_refusals(subject, account, now)
            _refuse(subject, _reasons(refusals), account)
        if any(policy.account != allowed[0].account for policy in allowed[1:]):
            text = "policies allow several accounts; name one with ?account=NAMESPACE/NAME"
            raise ExchangeRefused(REFUSED, text, reason=_named(allowed))
        return allowed

    async def _near_refusals(
        self, subject: SubjectToken, account: tuple[str, str] | None, now: datetime
    ) -> list[str]:
        """Why policies of a named account refuse a token that none of them may match."""
        if account is None:
            return []
        near = self._policies.some_of_account(subject.issuer, account, MOST_REASONS)
        return [await self._judge.refusal(policy, subject.claims, now) for policy in near]

    def account_of(self, policy: IndexedPolicy) -> Entry[ServiceAccount]:
        """The account of a policy; raises AccountUnusable."""
        namespace, name = policy.account
        entry = self._accounts.get(namespace, name)
        if namespace in self._reserved:
            raise AccountUnusable(f"{namespace} is a namespace of the system")
        if entry is None or entry.identity.deletion_timestamp is not None:
            raise AccountUnusable(f"there is no account {namespace}/{name}")
        if not agrees(entry.meta.annotations.get(self._annotation, "")):
            annotation = f"{self._annotation}: outside"
            text = f"the account {namespace}/{name} does not have the annotation {annotation}"
            raise AccountUnusable(text)
        return entry

    def _lifetime(
        self, subject: SubjectToken, policy: IndexedPolicy, requested: int, now: datetime
    ) -> int:
        """The shortest of all limits, in seconds."""
        seconds = min(
            policy.lifetime,
            requested or policy.lifetime,
            self._issuer.longest_seconds or policy.lifetime,
        )
        if policy.spec.until == UNTIL_SUBJECT:
            seconds = max(1, min(seconds, int(subject.expires - now.timestamp())))
        return seconds


def _chosen(
    subject: SubjectToken, policies: list[IndexedPolicy], audiences: tuple[str, ...]
) -> tuple[IndexedPolicy, tuple[str, ...]]:
    """The first policy that allows all audiences; the first audience if none is wanted."""
    if not audiences:
        return policies[0], policies[0].spec.audiences[:1]
    for policy in policies:
        if set(audiences) <= set(policy.spec.audiences):
            return policy, tuple(dict.fromkeys(audiences))
    text = f"no policy allows the subject {subject.subject!r} a token for these audiences"
    raise ExchangeRefused(TARGET, text, reason=f"{_named(policies)}: audiences")


def _refuse(subject: SubjectToken, reason: str, account: tuple[str, str] | None) -> NoReturn:
    """Refuse by policy: the text is the same whatever the reason."""
    named = f"the account {'/'.join(account)}" if account else "any account"
    raise ExchangeRefused(
        REFUSED,
        f"no policy lets the subject {subject.subject!r} of the issuer {subject.issuer!r} "
        f"get a token of {named}",
        reason=reason,
    )


def _reasons(refusals: list[str]) -> str:
    return "; ".join(refusals[:MOST_REASONS]) or "no policy compares a claim that the token has"


def _named(policies: list[IndexedPolicy]) -> str:
    return ", ".join(str(policy) for policy in policies[:MOST_REASONS])
