"""Audit: one event per stage of a request.

The chain calls `AuditTrail`, if auditing is enabled; `PolicyAudit` writes events according to the
policy (policy.py) to the log (log_file.py), in the format of Kubernetes.

    RequestReceived    the user is authenticated; nothing has been done yet
    ResponseStarted    a watch has begun; or the only event of an unauthenticated request
    ResponseComplete   the response is complete, or the watch has ended
    Panic              an unexpected exception

Never recorded, at any level: headers other than the user agent and the addresses, and the bodies of
confidential kinds. Redaction of the rest: redaction.py.
"""

import ipaddress
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.request import Target
from orchid.kernel.http.messages import HttpRequest, Peer, Response, Stream
from orchid.kernel.server.audit.event import (
    AuditEvent,
    AuditObjectReference,
    AuditOutcome,
    AuthenticationMetadata,
)
from orchid.kernel.server.audit.log_file import AuditLog
from orchid.kernel.server.audit.policy import (
    LEVEL_NAMES,
    NOTHING,
    PANIC,
    REQUEST_RECEIVED,
    RESPONSE_COMPLETE,
    RESPONSE_STARTED,
    AuditLevel,
    Plan,
    Policy,
)
from orchid.kernel.server.audit.redaction import presented_token, rendered, shown_uri, tidied
from orchid.kernel.server.parse import NO_PATH
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.errors import InternalError
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.status import Status
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo

LONGEST_AGENT = 1024
MOST_SOURCES = 100
LARGE_BYTES = 32 * 1024  # of bodies; larger ones are prepared in a thread


class AuditTrail(Protocol):
    def begin(self, state: RequestState) -> None:
        """The user is authenticated; nothing has been done yet. Raises if this cannot be
        recorded.
        """

    def complete(self, state: RequestState, answer: Response | Stream) -> None:
        """The response is complete (or, for a stream, begins)."""


_NOBODY = UserInfo()
_PANICKED = AuditOutcome(
    status="Failure",
    message="the request failed inside the server",
    reason="InternalError",
    code=500,
)


class PolicyAudit:
    """Record according to the policy. The counts are for the metrics page."""

    def __init__(
        self,
        policy: Policy,
        log: AuditLog,
        naming: Naming,
        clock: Clock,
        is_confidential: Callable[[Target], bool],
    ) -> None:
        self._policy = policy
        self._log = log
        self._clock = clock
        self._is_confidential = is_confidential
        self._api_version = f"{naming.audit}/v1"
        self._decision_key = f"{naming.authorization}/decision"
        self._reason_key = f"{naming.authorization}/reason"
        self.events = 0
        self.rejected = 0
        self.levels = [0] * len(LEVEL_NAMES)

    @property
    def errors(self) -> int:
        return self._log.errors

    def begin(self, state: RequestState) -> None:
        caller = state.caller
        plan = self._plan(state, caller.user if caller else None)
        state.audit_plan = plan
        if plan.level is AuditLevel.NONE:
            return
        if self._log.full:
            self.rejected += 1
            state.audit_plan = NOTHING
            raise InternalError("failed to store audit event")
        if REQUEST_RECEIVED not in plan.omitted_stages:
            event = self._event(state, plan, REQUEST_RECEIVED)
            self._write(event, presented_token(state.http))

    def complete(self, state: RequestState, answer: Response | Stream) -> None:
        plan = state.audit_plan
        if plan is None:
            return self._nobody(state, answer)
        if plan.level is AuditLevel.NONE:
            return None
        if state.panicked:
            return self._end(state, plan, PANIC, _PANICKED)
        outcome = _outcome(state.status, answer.status)
        if isinstance(answer, Stream):
            self._end(state, plan, RESPONSE_STARTED, outcome)
            return self._when_closed(state, plan, answer, outcome)
        return self._end(state, plan, RESPONSE_COMPLETE, outcome)

    def _nobody(self, state: RequestState, answer: Response | Stream) -> None:
        """The event of a request that ended before authentication."""
        if state.path is NO_PATH:
            return
        plan = self._plan(state, None)
        if plan.level is AuditLevel.NONE or RESPONSE_STARTED in plan.omitted_stages:
            return
        event = self._event(state, plan, RESPONSE_STARTED)
        outcome = _outcome(state.status, answer.status)
        self._write(replace(event, response_status=outcome), presented_token(state.http))

    def _plan(self, state: RequestState, user: UserInfo | None) -> Plan:
        target = state.target
        plan = self._policy.plan(user, target)
        if plan.level > AuditLevel.METADATA and self._is_confidential(target):
            plan = plan._replace(level=AuditLevel.METADATA)
        self.levels[plan.level] += 1
        return plan

    def _when_closed(
        self, state: RequestState, plan: Plan, stream: Stream, outcome: AuditOutcome
    ) -> None:
        if RESPONSE_COMPLETE in plan.omitted_stages:
            return
        # A watch stays open for long: keep the finished event instead of its inputs.
        event = self._completed(state, plan, RESPONSE_COMPLETE, outcome)
        token = presented_token(state.http)

        def closed() -> None:
            self._write(replace(event, stage_timestamp=micro_time(self._clock.now())), token)

        stream.on_close(closed)

    def _end(self, state: RequestState, plan: Plan, stage: str, outcome: AuditOutcome) -> None:
        if stage in plan.omitted_stages:
            return None
        event = self._completed(state, plan, stage, outcome)
        token, size = presented_token(state.http), bodies_size(state, plan)
        if not size:
            return self._write(event, token)
        self.events += 1

        def line() -> bytes:
            return rendered(with_bodies(event, state, plan), token)

        if size > LARGE_BYTES:
            return self._log.put_later(line, size)
        return self._log.put(line())

    # -- making events -----------------------------------------------------------------------

    def _event(self, state: RequestState, plan: Plan, stage: str) -> AuditEvent:
        """The event of a stage before anything was done."""
        http, target, caller = state.http, state.target, state.caller
        received = micro_time(state.now)
        return AuditEvent(
            kind="Event",
            api_version=self._api_version,
            level=LEVEL_NAMES[plan.level],
            audit_id=state.audit_id,
            stage=stage,
            request_uri=shown_uri(http),
            verb=target.verb,
            user=_NOBODY if caller is None else caller.user,
            source_ips=source_ips(http),
            user_agent=shown_agent(http),
            object_ref=reference(target, state.sent),
            request_received_timestamp=received,
            stage_timestamp=(
                received if stage is REQUEST_RECEIVED else micro_time(self._clock.now())
            ),
        )

    def _completed(
        self, state: RequestState, plan: Plan, stage: str, outcome: AuditOutcome
    ) -> AuditEvent:
        """The event of a stage with a response, without bodies."""
        request = state.request
        impersonated = request is not None and request.real_user is not None
        return replace(
            self._event(state, plan, stage),
            impersonated_user=request.user if request is not None and impersonated else None,
            authentication_metadata=authentication_metadata(state),
            response_status=outcome,
            annotations=self._annotations(state),
        )

    def _annotations(self, state: RequestState) -> dict[str, str]:
        annotations = dict(state.caller.notes) if state.caller else {}
        decision = state.decision
        if decision is not None:
            annotations[self._decision_key] = "allow" if decision.allowed else "forbid"
            annotations[self._reason_key] = decision.reason
        if state.request is not None and state.request.audit_annotations:
            for key, value in state.request.audit_annotations.items():
                annotations.setdefault(key, value)
        return annotations

    # -- writing them ------------------------------------------------------------------------

    def _write(self, event: AuditEvent, token: str) -> None:
        self.events += 1
        self._log.put(rendered(event, token))


# --- the parts of an event ------------------------------------------------------------------------


def authentication_metadata(state: RequestState) -> AuthenticationMetadata | None:
    constraint = state.impersonation_constraint
    return AuthenticationMetadata(constraint) if constraint else None


def micro_time(moment: datetime) -> datetime:
    """A time that is written with six digits after the second, as parsers require."""
    return moment if moment.microsecond else moment.replace(microsecond=1)


def shown_agent(http: HttpRequest) -> str:
    agent = http.headers.get("user-agent", "")
    return agent if len(agent) <= LONGEST_AGENT else f"{agent[:LONGEST_AGENT]}...TRUNCATED"


def source_ips(http: HttpRequest) -> tuple[str, ...]:
    """The client addresses that proxies report, then that of the peer."""
    peer = peer_address(http.peer)
    forwarded = http.headers.get("x-forwarded-for", "")
    real = http.headers.get("x-real-ip", "")
    if not forwarded and not real:
        return (peer,) if peer else ()
    sources = []
    for text in forwarded.split(",", MOST_SOURCES)[:MOST_SOURCES]:
        address = _address(text)
        if address:
            sources.append(address)
    address = _address(real)
    if address and address not in sources:
        sources.append(address)
    if peer and sources[-1:] != [peer]:
        sources.append(peer)
    return tuple(sources)


def peer_address(peer: Peer) -> str:
    return peer.address.rpartition(":")[0].strip("[]")


def _address(text: str) -> str:
    """An address in canonical form; empty if it is invalid."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""


def reference(target: Target, sent: object) -> AuditObjectReference | None:
    """The object of a request, from the path and, where that is incomplete, the body."""
    if not target.is_resource:
        return None
    name, namespace, uid, version = target.name, target.namespace, "", ""
    if isinstance(sent, Object):
        meta = sent.metadata
        name, namespace = name or meta.name, namespace or meta.namespace
        uid, version = meta.uid, meta.resource_version
    return AuditObjectReference(
        target.resource, namespace, name, uid, target.group, target.version, version,
        target.subresource,
    )  # fmt: skip


def _outcome(status: Status | None, code: int) -> AuditOutcome:
    if status is None:
        return AuditOutcome(code=code)
    return AuditOutcome(
        status=status.status,
        message=status.message,
        reason=status.reason,
        details=status.details,
        code=code,
    )


def bodies_size(state: RequestState, plan: Plan) -> int:
    """The size of the bodies to record; 0 if none."""
    if plan.level < AuditLevel.REQUEST:
        return 0
    body = state.http.body
    size = len(body) + (len(state.shown or b"") if plan.level > AuditLevel.REQUEST else 0)
    is_yaml = state.target.verb == "patch" and body[:1] not in (b"{", b"[")
    return size + LARGE_BYTES if is_yaml else size  # small YAML may expand to much


def with_bodies(event: AuditEvent, state: RequestState, plan: Plan) -> AuditEvent:
    return replace(
        event,
        request_object=request_object(state, plan),
        response_object=response_object(state, plan),
    )


def request_object(state: RequestState, plan: Plan) -> msgspec.Raw | None:
    """The request body: the object, or a patch as sent."""
    if plan.level < AuditLevel.REQUEST or state.decision is None or not state.decision.allowed:
        return None
    if state.sent is not None:
        return tidied(encode(state.sent), plan)
    target, body = state.target, state.http.body
    if target.verb != "patch" or not target.is_resource or not body:
        return None
    try:
        value, _ = yaml_text.load(body)
    except (yaml_text.YamlError, ValueError, RecursionError):
        return None
    return tidied(encode(value), plan)


def response_object(state: RequestState, plan: Plan) -> msgspec.Raw | None:
    if plan.level < AuditLevel.REQUEST_RESPONSE or state.shown is None:
        return None
    return tidied(bytes(state.shown), plan)
