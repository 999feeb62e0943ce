"""Webhook: another server decides by a SubjectAccessReview; its decision is cached for a while.

Start with `WebhookSettings` and `Webhook.authorize`. Decisions are cached per request attributes,
allowed ones longer than others, both in limited number; failures are never cached. A server that
does not respond has no opinion, unless the settings say that a failure denies. Conditions
(conditions.py) may exclude requests.

The HTTPS call (TLS, credentials, limits) is in kernel/outbound/https_client.py, retries are in
kernel/access/json_endpoint.py.
"""

import functools
from collections import OrderedDict
from typing import Any, Protocol

import msgspec

from orchid.features.rights.authorizers.conditions import Conditions, ConditionsFailed
from orchid.features.rights.authorizers.metrics import AuthorizationMetrics
from orchid.features.rights.authorizers.review_spec import spec_of
from orchid.features.rights.kinds.self_subject_rules_review import (
    RuleLister,
    SubjectRulesReviewStatus,
)
from orchid.kernel.access.json_endpoint import patiently
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.engine.interfaces import Authorizer, Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.failures import CallFailed, TimedOut
from orchid.kernel.outbound.https_client import TIMEOUT
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire
from orchid.kernel.wire.user import UserInfo

MOST_CACHED = 8192
LARGEST_CACHED = 10_000  # characters that the client chose
VERSIONS = ("v1", "v1beta1")
GATEWAY_TIMEOUT = 504

_NOT_ASKED = Decision(Verdict.NO_OPINION)


class JsonCall(Protocol):
    """A server that takes and returns JSON, or raises CallFailed."""

    async def post(self, body: bytes) -> bytes: ...


class WebhookSettings(msgspec.Struct, frozen=True):
    version: str = "v1beta1"
    allowed_seconds: float = 300.0
    refused_seconds: float = 30.0
    denies_on_failure: bool = False
    kubeconfig: str = ""  # the file with its URL and credentials
    timeout: float = TIMEOUT
    conditions: tuple[str, ...] = ()  # expressions that must all hold for a call

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            supported = ", ".join(f'"{version}"' for version in VERSIONS)
            raise ValueError(
                f'unsupported authorization webhook version "{self.version}", '
                f"supported versions are {supported}"
            )


class _Status(Wire):
    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _Answer(Wire):
    status: _Status | None = None


_encode = msgspec.json.Encoder(order="deterministic").encode


class Unanswered(Exception):
    """A call without a review. The message may be shown; the result is for the metrics."""

    def __init__(self, text: str, result: str = "error") -> None:
        super().__init__(text)
        self.result = result


class Webhook:
    def __init__(
        self,
        naming: Naming,
        remote: JsonCall,
        monotonic: Monotonic,
        settings: WebhookSettings | None = None,
        *,
        name: str = "default",
        conditions: Conditions | None = None,
        metrics: AuthorizationMetrics | None = None,
    ) -> None:
        self._settings = settings or WebhookSettings()
        self._on_failure = Verdict.DENY if self._settings.denies_on_failure else Verdict.NO_OPINION
        self._api_version = f"{naming.authorization}/{self._settings.version}"
        self._remote = remote
        self._name = name
        self._conditions = conditions
        self._metrics = metrics or AuthorizationMetrics()
        self._monotonic = monotonic
        self._answers: OrderedDict[bytes, tuple[float, Decision]] = OrderedDict()

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        if self._conditions is not None:
            try:
                if not self._conditions.hold(user, target):
                    return _NOT_ASKED
            except ConditionsFailed as failure:
                return Decision(self._on_failure, error=str(failure))
        spec = spec_of(user, target, self._settings.version)
        key = _encode(spec)
        cached = self._answers.get(key)
        if cached is not None and cached[0] > self._monotonic():
            self._answers.move_to_end(key)
            return cached[1]
        try:
            decision = await self._ask(spec)
        except Unanswered as failure:
            if self._on_failure is Verdict.NO_OPINION:
                self._metrics.failed_open.count(self._name, failure.result)
            return Decision(self._on_failure, error=f"authorization webhook failed: {failure}")
        if chosen_by_caller(target) <= LARGEST_CACHED:
            self._store(key, decision)
        return decision

    def rules_for(self, user: UserInfo, namespace: str) -> SubjectRulesReviewStatus:
        return SubjectRulesReviewStatus(
            incomplete=True,
            evaluation_error="webhook authorizer does not support user rule resolution",
        )

    async def _ask(self, spec: dict[str, Any]) -> Decision:
        review = {
            "kind": "SubjectAccessReview",
            "apiVersion": self._api_version,
            "metadata": {},
            "spec": spec,
            "status": {"allowed": False},
        }
        call = functools.partial(self._call, _encode(review))
        try:
            return decision_of((await patiently(call)).status)
        except CallFailed as failure:
            raise Unanswered(str(failure), result_of(failure)) from None

    async def _call(self, body: bytes) -> _Answer:
        """One call, counted by its result."""
        started, result = self._monotonic(), "canceled"
        try:
            answer = foreign.decode(await self._remote.post(body), _Answer)
            result = "success"
        except CallFailed as failure:
            result = result_of(failure)
            raise
        finally:
            self._metrics.called(self._name, result, self._monotonic() - started)
        return answer

    def _store(self, key: bytes, decision: Decision) -> None:
        settings = self._settings
        keep = settings.allowed_seconds if decision.allowed else settings.refused_seconds
        if keep <= 0:
            return
        self._answers[key] = (self._monotonic() + keep, decision)
        self._answers.move_to_end(key)
        if len(self._answers) > MOST_CACHED:
            self._answers.popitem(last=False)


def decision_of(status: _Status | None) -> Decision:
    status = status or _Status()
    if status.allowed and status.denied:
        error = "webhook subject access review returned both allow and deny response"
        return Decision(Verdict.DENY, status.reason, error)
    if status.denied:
        return Decision(Verdict.DENY, status.reason)
    return Decision(Verdict.ALLOW if status.allowed else Verdict.NO_OPINION, status.reason)


def result_of(failure: CallFailed) -> str:
    """The label of a failure in metrics."""
    late = isinstance(failure, TimedOut) or getattr(failure, "status", 0) == GATEWAY_TIMEOUT
    return "timeout" if late else "error"


def chosen_by_caller(target: Target) -> int:
    return sum(len(part) for part in msgspec.structs.astuple(target) if isinstance(part, str))


_: type[Authorizer] = Webhook
__: type[RuleLister] = Webhook
