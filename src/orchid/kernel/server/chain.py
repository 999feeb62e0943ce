"""The path of a request, from the listener to its response. The first file to read.

    parse the target -> authenticate (401) -> impersonate (403) -> find a seat (429)
    -> authorize (403) -> a page, or dispatch to a kind's verb -> respond

Audit and metrics see each request and its response. failures.py turns errors into responses.
"""

import asyncio
import logging
from math import inf

from orchid.kernel.access.impersonation.impersonation import Impersonation
from orchid.kernel.base.arrival import ARRIVAL, Arrival
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.seat import SEAT
from orchid.kernel.base.telemetry import MASK
from orchid.kernel.engine.interfaces import Authenticator, Authorizer, Rejected
from orchid.kernel.engine.request import Request
from orchid.kernel.http.messages import CallerStatus, HttpRequest, Response, Stream
from orchid.kernel.server.audit.redaction import presented_token
from orchid.kernel.server.audit.trail import AuditTrail
from orchid.kernel.server.authorize import refuse_unless_allowed
from orchid.kernel.server.dispatch import Dispatch
from orchid.kernel.server.failures import FORESEEN, TIMEOUT, NoSuchPage, panicked, refused
from orchid.kernel.server.fairness import READ_VERBS, Fairness, Flow
from orchid.kernel.server.memory.head_facts import HeadFacts, facts_of
from orchid.kernel.server.memory.paths import PathCache
from orchid.kernel.server.metrics.requests import RequestMetrics
from orchid.kernel.server.open_watches import OpenWatches
from orchid.kernel.server.pages import custom_resources
from orchid.kernel.server.pages.site import Pages
from orchid.kernel.server.request_state import RequestState, audit_ids
from orchid.kernel.wire.errors import NoSuchRoute, Timeout, Unauthorized
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.options import duration
from orchid.kernel.wire.user import ANONYMOUS

log = logging.getLogger(__name__)

UNANSWERED = Response(0)


class Chain:
    """All steps, passed in by the assembly."""

    def __init__(
        self,
        *,
        naming: Naming,
        clock: Clock,
        authenticator: Authenticator,
        impersonation: Impersonation,
        authorizer: Authorizer,
        fairness: Fairness,
        watches: OpenWatches,
        pages: Pages,
        dispatch: Dispatch,
        audit: AuditTrail | None,
        metrics: RequestMetrics,
        request_timeout: float = 60.0,
    ) -> None:
        self._naming = naming
        self._clock = clock
        self._monotonic = clock.monotonic
        self._audit_ids = audit_ids()
        self._parse = PathCache().parse
        self._authenticator = authenticator
        self._impersonation = impersonation
        self._authorizer = authorizer
        self._fairness = fairness
        self._watches = watches
        self._pages = pages
        self._dispatch = dispatch
        self._audit = audit
        self._metrics = metrics
        self._request_timeout = request_timeout
        self._logs_requests = log.isEnabledFor(logging.DEBUG)

    async def __call__(self, http: HttpRequest) -> Response | Stream:
        started = http.waited_since or self._monotonic()
        head: HeadFacts = http.memo.facts or facts_of(http)
        # The client's own id, so that it can find its request again.
        audit_id = head.audit_id or next(self._audit_ids)
        state = RequestState(http, head, audit_id, self._clock.now(), started)
        arrival = Arrival(started)
        ARRIVAL.set(arrival)
        answer: Response | Stream = UNANSWERED
        try:
            try:
                answer = await self._answered(state)
            except FORESEEN as refusal:
                answer = refused(state, refusal, self._naming)
        except asyncio.CancelledError:  # the deadline; the listener responds instead
            late = Timeout("request did not complete within the allotted timeout").status()
            state.status, answer = late, TIMEOUT
            raise
        except BaseException as problem:
            answer = panicked(state, problem)
        finally:
            arrival.moment = inf  # it is over
            if answer is not UNANSWERED:
                if self._audit is not None:
                    self._audit.complete(state, answer)
                took = self._monotonic() - started - state.waited
                self._metrics.observe(state, answer, took)
                if self._logs_requests:
                    log.debug("request.answered", extra=_log_fields(state, answer, took))
        return answer

    async def _answered(self, state: RequestState) -> Response | Stream:
        """Authenticate and impersonate; then find a seat, and continue."""
        http = state.http
        state.path, state.query = self._parse(http)
        state.target = target = state.path.target
        http.timeout = self._request_timeout
        if state.query:
            self._shorten_deadline(state)
        state.caller = caller = await self._authenticator.authenticate(http)
        if caller is None:
            raise Unauthorized
        user = caller.user
        if user.username != ANONYMOUS:
            http.peer.known = True
        if self._audit is not None:
            self._audit.begin(state)
        if state.head.impersonates:
            acting = await self._impersonation.apply(user, http, target)
            if acting is not None:
                user, state.impersonation_constraint = acting
        real_user = None if user is caller.user else caller.user
        state.request = request = Request(
            target, user, state.now, real_user=real_user, warnings=state.warnings
        )
        if real_user is None:
            request.certificate = caller.certificate
        request.key_id = caller.key_id
        if caller.notes:
            request.audit_annotations.update(caller.notes)
        if caller.warnings:
            state.warnings.extend(caller.warnings)
        flow = self._fairness.flow_of(user, target, http.peer.address)
        state.extra_headers += flow.headers
        if not flow.enter():
            await flow.wait()
        try:
            return await self._allowed(state, request, flow)
        finally:
            flow.leave()

    async def _allowed(
        self, state: RequestState, request: Request, flow: Flow
    ) -> Response | Stream:
        """Authorize; then a page, or a kind's verb."""
        user, target, fairness = request.user, request.target, self._fairness
        reads = target.verb in READ_VERBS
        fairness.reading += reads
        fairness.writing += not reads
        mark = SEAT.set(flow)
        try:
            state.decision = decision = await self._authorizer.authorize(user, target)
            if not decision.allowed:
                refuse_unless_allowed(decision, user, target)
            if not target.is_resource:
                page = self._pages.answer(state)
                return page if isinstance(page, Response) else await page
            answer = await self._dispatch(state, request)
            if isinstance(answer, Stream):
                self._watches.follow(answer, state.http, target, user)
            return answer
        except NoSuchRoute:
            if custom_resources.is_listed(target):
                return custom_resources.empty_list(state)
            if self._pages.is_served(target.path):
                raise
            raise NoSuchPage from None
        finally:
            SEAT.reset(mark)
            fairness.reading -= reads
            fairness.writing -= not reads

    async def recognize(self, http: HttpRequest) -> CallerStatus:
        """Authenticate from the headers, before reading the body. Runs again later."""
        try:
            caller = await self._authenticator.authenticate(http)
        except Rejected:
            caller = None
        if caller is None:
            return CallerStatus.REFUSED
        if caller.user.username == ANONYMOUS:
            return CallerStatus.UNKNOWN
        http.peer.known = True
        return CallerStatus.KNOWN

    def _shorten_deadline(self, state: RequestState) -> None:
        """`?timeout=5s` may shorten the deadline of a request, never lengthen it."""
        http, texts = state.http, state.query.get("timeout")
        if texts and texts[0] and state.target.verb != "watch":
            asked = duration(texts[0])
            if 0 < asked < http.timeout:
                http.timeout = asked


def _log_fields(state: RequestState, answer: Response | Stream, took: float) -> dict[str, object]:
    """Fields of the debug log line of a request: never its query, headers or bodies.

    The presented token is removed from text of the client.
    """
    http, caller, token = state.http, state.caller, presented_token(state.http)
    shown = {"method": http.method, "path": http.path, "audit_id": state.audit_id}
    if token:
        shown = {name: text.replace(token, MASK) for name, text in shown.items()}
    return {
        "method": shown["method"],
        "path": shown["path"],
        "status": answer.status,
        "user": caller.user.username if caller is not None else "",
        "ms": round(took * 1000, 1),
        "audit_id": shown["audit_id"],
    }
