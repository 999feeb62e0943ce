"""Webhook: ask another server, with a SubjectAccessReview, and remember its answer for a while.

Start with `WebhookSettings` and `Webhook.authorize`. Answers are kept per question, allowed ones
longer than others, both within a bounded number; failures are never kept. A server that does not
answer has no opinion, unless the settings say that silence means no.

How the call is made (TLS, credentials, retries, sizes) is https_client.py's business.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from orchid.access.https_client import OutboundFailed
from orchid.engine.interfaces import Authorizer, Decision, Verdict
from orchid.engine.request import Target
from orchid.kinds.self_subject_rules_review import RuleLister, SubjectRulesReviewStatus
from orchid.wire.errors import BadRequest
from orchid.wire.naming import Naming
from orchid.wire.selection import FieldMatcher, LabelMatcher, Operator
from orchid.wire.struct import Wire
from orchid.wire.user import UserInfo

MOST_REMEMBERED = 8192
LARGEST_REMEMBERED = 10_000  # characters that the caller chose
VERSIONS = ("v1", "v1beta1")

_OPERATORS = {
    Operator.IN: "In",
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.ABSENT: "DoesNotExist",
}


class JsonCall(Protocol):
    """A server that takes JSON and answers with JSON, or raises OutboundFailed."""

    async def post_patiently(self, body: bytes) -> bytes: ...


@dataclass(frozen=True)
class WebhookSettings:
    version: str = "v1beta1"
    allowed_seconds: float = 300.0
    refused_seconds: float = 30.0
    denies_on_failure: bool = False

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


_decode = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class Webhook:
    def __init__(
        self,
        names: Naming,
        remote: JsonCall,
        settings: WebhookSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or WebhookSettings()
        self._api_version = f"{names.authorization}/{self._settings.version}"
        self._remote = remote
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, Decision]] = OrderedDict()

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        spec = spec_of(user, target, self._settings.version)
        key = _encode(spec)
        known = self._answers.get(key)
        if known is not None and known[0] > self._clock():
            self._answers.move_to_end(key)
            return known[1]
        try:
            decision = await self._ask(spec)
        except (OutboundFailed, msgspec.DecodeError) as failure:
            verdict = Verdict.DENY if self._settings.denies_on_failure else Verdict.NO_OPINION
            return Decision(verdict, error=f"authorization webhook failed: {sayable(failure)}")
        if chosen_by_caller(target) <= LARGEST_REMEMBERED:
            self._remember(key, decision)
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
        return decision_of(_decode(await self._remote.post_patiently(_encode(review))).status)

    def _remember(self, key: bytes, decision: Decision) -> None:
        settings = self._settings
        keep = settings.allowed_seconds if decision.allowed else settings.refused_seconds
        if keep <= 0:
            return
        self._answers[key] = (self._clock() + keep, decision)
        self._answers.move_to_end(key)
        if len(self._answers) > MOST_REMEMBERED:
            self._answers.popitem(last=False)


def decision_of(status: _Status | None) -> Decision:
    status = status or _Status()
    if status.allowed and status.denied:
        error = "webhook subject access review returned both allow and deny response"
        return Decision(Verdict.DENY, status.reason, error)
    if status.denied:
        return Decision(Verdict.DENY, status.reason)
    return Decision(Verdict.ALLOW if status.allowed else Verdict.NO_OPINION, status.reason)


def sayable(failure: Exception) -> str:
    """What of a failure may be told: a decoding error quotes what was received."""
    return str(failure) if isinstance(failure, OutboundFailed) else "the answer is no review"


def chosen_by_caller(target: Target) -> int:
    return sum(len(part) for part in target if isinstance(part, str))


def spec_of(user: UserInfo, target: Target, version: str) -> dict[str, Any]:
    """The question, with empty members left out."""
    spec: dict[str, Any] = {
        "user": user.username,
        "groups" if version == "v1" else "group": user.groups,
        "uid": user.uid,
        "extra": user.extra,
    }
    if not target.is_resource:
        spec["nonResourceAttributes"] = filled({"path": target.path, "verb": target.verb})
        return filled(spec)
    spec["resourceAttributes"] = filled(
        {
            "namespace": target.namespace,
            "verb": target.verb,
            "group": target.group,
            "version": target.version,
            "resource": target.resource,
            "subresource": target.subresource,
            "name": target.name,
            "fieldSelector": field_conditions(target.field_selector),
            "labelSelector": label_conditions(target.label_selector),
        }
    )
    return filled(spec)


def filled(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def field_conditions(text: str) -> dict[str, Any]:
    """A field selector as requirements; an unreadable one is left out, which asks for more."""
    try:
        terms = FieldMatcher.parse(text).terms
    except BadRequest:
        return {}
    conditions = [
        {"key": term.field, "operator": "In" if term.operator == "=" else "NotIn",
         "values": [term.value]}
        for term in terms
    ]  # fmt: skip
    return {"requirements": conditions} if conditions else {}


def label_conditions(text: str) -> dict[str, Any]:
    try:
        requirements = LabelMatcher.parse(text).requirements
    except BadRequest:
        return {}
    conditions = [
        filled(
            {
                "key": requirement.key,
                "operator": _OPERATORS[requirement.operator],
                "values": requirement.values,
            }
        )
        for requirement in requirements
        if requirement.operator in _OPERATORS
    ]
    return {"requirements": conditions} if conditions else {}


_: type[Authorizer] = Webhook
__: type[RuleLister] = Webhook
