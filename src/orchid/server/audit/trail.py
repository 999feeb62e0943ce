"""Audit: what happened, for the record. One event per stage of a request.

`AuditTrail` is what the chain tells; `NoAudit` forgets it all, `PolicyAudit` writes what the policy
asks for (policy.py) to the log (log_file.py), in the event form of the reference.

    RequestReceived    the caller is known; nothing has been done yet
    ResponseStarted    a watch has begun; or nobody was authenticated, which is the only event then
    ResponseComplete   the answer is made, or the watch has ended
    Panic              something went wrong that nobody foresaw

Never recorded, at any level: headers other than the user agent and the addresses; the bodies of
what holds credentials; query parameters that the API does not know; the token that a caller
presented, wherever else they put it; and what has the shape of a token or a private key.
"""

import ipaddress
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from orchid.engine.interfaces import Clock
from orchid.engine.request import Target
from orchid.server.audit.event import (
    AuditEvent,
    AuditObjectReference,
    AuditOutcome,
    AuthenticationMetadata,
)
from orchid.server.audit.log_file import AuditLog
from orchid.server.audit.policy import (
    LEVEL_NAMES,
    NOTHING,
    PANIC,
    REQUEST_RECEIVED,
    RESPONSE_COMPLETE,
    RESPONSE_STARTED,
    Level,
    Plan,
    Policy,
)
from orchid.server.exchange import NOWHERE, Exchange
from orchid.server.sockets.messages import HttpRequest, Peer, Response, Stream
from orchid.telemetry import MASK, masked_bytes
from orchid.wire.codec import yaml_text
from orchid.wire.codec.documents import encode
from orchid.wire.errors import InternalError
from orchid.wire.meta import Object
from orchid.wire.naming import Naming
from orchid.wire.status import Status
from orchid.wire.struct import replace
from orchid.wire.user import UserInfo

T = TypeVar("T")

LONGEST_AGENT = 1024
MOST_SOURCES = 100
SHORTEST_TOKEN = 8  # to hide less than this would hide half the record
LONGEST_SIGN = 24  # so much of a token is looked for first; the whole is seldom there

# What the API knows of; other parameters may be anybody's secrets.
PARAMETERS = frozenset(
    {
        "allowWatchBookmarks", "continue", "dryRun", "exclude", "export", "fieldManager",
        "fieldSelector", "fieldValidation", "force", "gracePeriodSeconds", "includeObject",
        "labelSelector", "limit", "orphanDependents", "pretty", "propagationPolicy",
        "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout",
        "timeoutSeconds", "uid", "verbose", "watch",
    }
)  # fmt: skip
TELLING_FIELDS = frozenset({"token", "password", "privateKey", "clientSecret", "stringData"})


class AuditTrail(Protocol):
    def begin(self, exchange: Exchange) -> None:
        """The caller is known; nothing has been done yet. Raises if this cannot be recorded."""

    def complete(self, exchange: Exchange, answer: Response | Stream) -> None:
        """The answer is made (or, for a stream, begins)."""


class NoAudit:
    """Keep no record."""

    def begin(self, exchange: Exchange) -> None:
        return None

    def complete(self, exchange: Exchange, answer: Response | Stream) -> None:
        return None


_NOBODY = UserInfo()
_PANICKED = AuditOutcome(
    status="Failure",
    message="the request failed inside the server",
    reason="InternalError",
    code=500,
)


class PolicyAudit:
    """Record what the policy asks for. The counts are for the metrics page."""

    def __init__(
        self,
        policy: Policy,
        log: AuditLog,
        names: Naming,
        clock: Clock,
        is_confidential: Callable[[Target], bool],
    ) -> None:
        self._policy = policy
        self._log = log
        self._clock = clock
        self._is_confidential = is_confidential
        self._api_version = f"{names.audit}/v1"
        self._decision_key = f"{names.authorization}/decision"
        self._reason_key = f"{names.authorization}/reason"
        self.events = 0
        self.rejected = 0
        self.levels = [0] * len(LEVEL_NAMES)

    @property
    def errors(self) -> int:
        return self._log.errors

    def begin(self, exchange: Exchange) -> None:
        caller = exchange.observed.caller
        plan = self._plan(exchange, caller.user if caller else None)
        exchange.observed.audit_plan = plan
        if plan.level is Level.NONE:
            return
        if self._log.full:
            self.rejected += 1
            exchange.observed.audit_plan = NOTHING
            raise InternalError("failed to store audit event")
        if REQUEST_RECEIVED not in plan.omitted_stages:
            event = self._event(exchange, plan, REQUEST_RECEIVED)
            self._put(event, exchange.http)

    def complete(self, exchange: Exchange, answer: Response | Stream) -> None:
        plan = exchange.observed.audit_plan
        if plan is None:
            return self._nobody(exchange, answer)
        if plan.level is Level.NONE:
            return None
        if exchange.observed.panicked:
            return self._end(exchange, plan, PANIC, _PANICKED)
        outcome = _outcome(exchange.observed.status, answer.status)
        if isinstance(answer, Stream):
            self._end(exchange, plan, RESPONSE_STARTED, outcome)
            return self._when_closed(exchange, plan, answer, outcome)
        return self._end(exchange, plan, RESPONSE_COMPLETE, outcome)

    def _nobody(self, exchange: Exchange, answer: Response | Stream) -> None:
        """The request ended before anybody was authenticated."""
        if exchange.located is NOWHERE:
            return
        plan = self._plan(exchange, None)
        if plan.level is Level.NONE or RESPONSE_STARTED in plan.omitted_stages:
            return
        event = self._event(exchange, plan, RESPONSE_STARTED)
        outcome = _outcome(exchange.observed.status, answer.status)
        self._put(replace(event, response_status=outcome), exchange.http)

    def _plan(self, exchange: Exchange, user: UserInfo | None) -> Plan:
        target = exchange.located.target
        plan = self._policy.plan(user, target)
        if plan.level > Level.METADATA and self._is_confidential(target):
            plan = plan._replace(level=Level.METADATA)
        self.levels[plan.level] += 1
        return plan

    def _when_closed(
        self, exchange: Exchange, plan: Plan, stream: Stream, outcome: AuditOutcome
    ) -> None:
        if RESPONSE_COMPLETE in plan.omitted_stages:
            return
        # A watch lasts: keep the finished event instead of everything it was made from.
        event = self._completed(exchange, plan, RESPONSE_COMPLETE, outcome)
        hidden = presented_token(exchange.http)

        def closed() -> None:
            self._write(replace(event, stage_timestamp=micro_time(self._clock.now())), hidden)

        stream.on_close(closed)

    def _end(self, exchange: Exchange, plan: Plan, stage: str, outcome: AuditOutcome) -> None:
        if stage not in plan.omitted_stages:
            self._put(self._completed(exchange, plan, stage, outcome), exchange.http)

    # -- making events -----------------------------------------------------------------------

    def _event(self, exchange: Exchange, plan: Plan, stage: str) -> AuditEvent:
        """The event of a stage before anything was done."""
        http, target, caller = exchange.http, exchange.located.target, exchange.observed.caller
        received = micro_time(exchange.now)
        return AuditEvent(
            kind="Event",
            api_version=self._api_version,
            level=LEVEL_NAMES[plan.level],
            audit_id=exchange.audit_id,
            stage=stage,
            request_uri=shown_uri(http),
            verb=target.verb,
            user=_NOBODY if caller is None else caller.user,
            source_ips=source_ips(http),
            user_agent=shown_agent(http),
            object_ref=reference(target, exchange.observed.sent),
            request_received_timestamp=received,
            stage_timestamp=(
                received if stage is REQUEST_RECEIVED else micro_time(self._clock.now())
            ),
        )

    def _completed(
        self, exchange: Exchange, plan: Plan, stage: str, outcome: AuditOutcome
    ) -> AuditEvent:
        """The event of a stage at which the answer is known."""
        request = exchange.request
        impersonated = request is not None and request.real_user is not None
        return replace(
            self._event(exchange, plan, stage),
            impersonated_user=request.user if request is not None and impersonated else None,
            authentication_metadata=authentication_metadata(exchange),
            response_status=outcome,
            request_object=request_object(exchange, plan),
            response_object=response_object(exchange, plan),
            annotations=self._annotations(exchange),
        )

    def _annotations(self, exchange: Exchange) -> dict[str, str]:
        found = dict(exchange.observed.caller.notes) if exchange.observed.caller else {}
        decision = exchange.observed.decision
        if decision is not None:
            found[self._decision_key] = "allow" if decision.allowed else "forbid"
            found[self._reason_key] = decision.reason
        if exchange.request is not None and exchange.request.audit_annotations:
            for key, value in exchange.request.audit_annotations.items():
                found.setdefault(key, value)
        return found

    # -- writing them ------------------------------------------------------------------------

    def _put(self, event: AuditEvent, http: HttpRequest) -> None:
        self._write(event, presented_token(http))

    def _write(self, event: AuditEvent, hidden: str) -> None:
        self.events += 1
        self._log.put(rendered(event, hidden))


def rendered(event: AuditEvent, hidden: str) -> bytes:
    """An event as one line, without the token that the caller presented."""
    try:
        data = encode(event)
    except UnicodeEncodeError:  # a path may escape bytes that are no text
        event = with_texts(event, _printable)
        data = encode(event)
    if hidden:
        sign = hidden[:LONGEST_SIGN]
        if (sign.encode() if sign.isascii() and sign.isalnum() else as_json(sign)) in data:
            data = encode(with_texts(event, without(hidden)))
    return masked_bytes(data) + b"\n"


def with_texts(event: AuditEvent, change: Callable[[str], str]) -> AuditEvent:
    """Change every text that the caller chose.

    Who they are and where they come from is not among those: nobody may hide that by presenting it
    as a token.
    """
    return replace(
        event,
        audit_id=change(event.audit_id),
        request_uri=change(event.request_uri),
        user_agent=change(event.user_agent),
        verb=change(event.verb),
        impersonated_user=_changed(event.impersonated_user, change),
        object_ref=_changed(event.object_ref, change),
        response_status=_changed(event.response_status, change),
        request_object=_changed_raw(event.request_object, change),
        response_object=_changed_raw(event.response_object, change),
        annotations={key: change(value) for key, value in event.annotations.items()},
    )


def _changed(part: T, change: Callable[[str], str]) -> T:
    if part is None:
        return part
    return msgspec.convert(changed_texts(msgspec.to_builtins(part), change), type(part))


def changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: changed_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [changed_texts(item, change) for item in value]
    return value


def _changed_raw(raw: msgspec.Raw | None, change: Callable[[str], str]) -> msgspec.Raw | None:
    return None if raw is None else msgspec.Raw(change(bytes(raw).decode()).encode())


def without(token: str) -> Callable[[str], str]:
    """Take a token out of a text, also where the text is JSON."""
    escaped = as_json(token).decode()
    return lambda text: text.replace(token, MASK).replace(escaped, MASK)


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def as_json(text: str) -> bytes:
    """A text as it stands within JSON."""
    return encode(_printable(text))[1:-1]


# --- the parts of an event ------------------------------------------------------------------------


def authentication_metadata(exchange: Exchange) -> AuthenticationMetadata | None:
    constraint = exchange.observed.impersonation_constraint
    return AuthenticationMetadata(constraint) if constraint else None


def micro_time(moment: datetime) -> datetime:
    """A time that is written with its six digits after the second, which readers insist on."""
    return moment if moment.microsecond else moment.replace(microsecond=1)


def shown_uri(http: HttpRequest) -> str:
    """Path and query; of parameters that the API does not know, only the names."""
    if not http.query:
        return http.path
    return f"{http.path}?{'&'.join(map(_shown_pair, http.query.split('&')))}"


def _shown_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    if name in PARAMETERS:
        return pair
    return f"{name}={MASK}" if equals else MASK


def shown_agent(http: HttpRequest) -> str:
    agent = http.headers.get("user-agent", "")
    return agent if len(agent) <= LONGEST_AGENT else f"{agent[:LONGEST_AGENT]}...TRUNCATED"


def source_ips(http: HttpRequest) -> tuple[str, ...]:
    """What proxies say of where the request comes from, and then what we see ourselves."""
    peer = peer_address(http.peer)
    forwarded = http.headers.get("x-forwarded-for", "")
    real = http.headers.get("x-real-ip", "")
    if not forwarded and not real:
        return (peer,) if peer else ()
    found = []
    for text in forwarded.split(",", MOST_SOURCES)[:MOST_SOURCES]:
        address = _address(text)
        if address:
            found.append(address)
    address = _address(real)
    if address and address not in found:
        found.append(address)
    if peer and found[-1:] != [peer]:
        found.append(peer)
    return tuple(found)


def peer_address(peer: Peer) -> str:
    return peer.address.rpartition(":")[0].strip("[]")


def _address(text: str) -> str:
    """An address in its usual form; empty if it is none, so that nothing else gets in."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""


def reference(target: Target, sent: object) -> AuditObjectReference | None:
    """The object a request is about; what the path leaves open is in what was sent."""
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


def request_object(exchange: Exchange, plan: Plan) -> msgspec.Raw | None:
    """What was sent: the object, or a patch as it came."""
    if (
        plan.level < Level.REQUEST
        or exchange.observed.decision is None
        or not exchange.observed.decision.allowed
    ):
        return None
    if exchange.observed.sent is not None:
        return tidied(encode(exchange.observed.sent), plan)
    target, body = exchange.located.target, exchange.http.body
    if target.verb != "patch" or not target.is_resource or not body:
        return None
    try:
        value, _ = yaml_text.load(body)
    except (yaml_text.YamlError, ValueError, RecursionError):
        return None
    return tidied(encode(value), plan)


def response_object(exchange: Exchange, plan: Plan) -> msgspec.Raw | None:
    if plan.level < Level.REQUEST_RESPONSE or exchange.observed.shown is None:
        return None
    return tidied(exchange.observed.shown, plan)


_TELLING = tuple(f'"{name}"'.encode() for name in sorted(TELLING_FIELDS))


def tidied(data: bytes, plan: Plan) -> msgspec.Raw | None:
    """A body as it is recorded: on one line, without telling fields, perhaps without owners."""
    omits = plan.omits_managed_fields and b'"managedFields"' in data
    if not omits and b"\n" not in data and not any(name in data for name in _TELLING):
        return msgspec.Raw(data)
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(encode(_tidy(value, omits)))


def _tidy(value: Any, omits_managed_fields: bool) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if key in TELLING_FIELDS and item else _tidy(item, omits_managed_fields)
            for key, item in value.items()
            if not (omits_managed_fields and key == "managedFields")
        }
    if isinstance(value, list):
        return [_tidy(item, omits_managed_fields) for item in value]
    return value


def presented_token(http: HttpRequest) -> str:
    """The credential of the Authorization header, if it is what the caller is judged by.

    One who shows a certificate, or a token elsewhere, could write here what they want to have
    hidden from the record.
    """
    given = http.headers.get("authorization")
    if given is None or http.peer.certificate or "sec-websocket-protocol" in http.headers:
        return ""
    token = given.partition(" ")[2].strip()
    return token if len(token) >= SHORTEST_TOKEN else ""
