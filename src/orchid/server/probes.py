"""Probes: requests for health pages, which come again and again on the same connection.

One that was answered on the whole way (chain.py) is remembered beside its head. When the very same
request comes again, the listener has it answered here, without a coroutine and most of the steps:
what it asks for, how and by whom is known. Whether they may is asked as ever, the limits hold, and
the page is made anew. Whatever is out of the ordinary goes the whole way.

While requests are recorded one by one, all of them do: with an audit log, or a log level of debug.
"""

from typing import Final

import msgspec

from orchid.access.authenticators.anonymous import NOBODY
from orchid.clock import Clock
from orchid.engine.interfaces import Authenticated, PromptAuthorizer
from orchid.server.exchange import Exchange, audit_ids
from orchid.server.fairness import Flow
from orchid.server.head_facts import HeadFacts
from orchid.server.health import Page
from orchid.server.metrics.requests import RequestMetrics
from orchid.server.parse import Located, Query
from orchid.server.sockets.messages import HttpRequest, Response

KNOWN = "known probes"  # in a head's memo, by their targets
MOST_OF_A_HEAD = 8


class KnownProbe(msgspec.Struct, eq=False):
    """What is known of a request before it comes."""

    method: str
    head: HeadFacts
    located: Located
    query: Query
    caller: Authenticated
    flow: Flow
    page: Page

    __repr__ = object.__repr__  # shows no field: there may be secrets in it


_NONE: Final[dict[str, KnownProbe]] = {}


class Probes:
    """All that a known probe needs."""

    def __init__(
        self,
        pages: dict[str, Page],
        *,
        clock: Clock,
        authorizer: PromptAuthorizer,
        metrics: RequestMetrics,
        recorded: bool,
    ) -> None:
        """`recorded`: every request is told of, as only the whole way does."""
        self._pages = {} if recorded else pages
        self._clock = clock
        self._monotonic = clock.monotonic
        self._audit_ids = audit_ids()
        self._authorizer = authorizer
        self._metrics = metrics

    def answer(self, http: HttpRequest) -> Response | None:
        """Answer a request that came before; None if it has to go the whole way."""
        of_this_head: dict[str, KnownProbe] = http.head_memo.get(KNOWN, _NONE)
        known = of_this_head.get(http.target)
        if known is None or known.method != http.method:
            return None
        started, caller, flow, head = self._monotonic(), known.caller, known.flow, known.head
        decision = self._authorizer.at_once(caller.user, known.located.target)
        if decision is None or not flow.enter():
            return None
        audit_id = head.audit_id or next(self._audit_ids)
        exchange = Exchange(http, head, audit_id, self._clock.now(), known.located, known.query)
        exchange.extra_headers = flow.headers
        exchange.observed.caller, exchange.observed.decision = caller, decision
        try:
            answer = known.page(exchange)
            self._metrics.observe(exchange, answer, self._monotonic() - started)
        except Exception:
            return None  # the whole way meets it again, and tells it
        finally:
            flow.leave()
        return answer

    def remember(self, exchange: Exchange, flow: Flow) -> None:
        """Keep what is known of a request that was answered, if it is a probe of a lasting caller.

        Nothing is kept for callers whose credential can be taken back: they are judged each time.
        """
        http, located, caller = exchange.http, exchange.located, exchange.observed.caller
        page = self._pages.get(located.target.path)
        if page is None or caller is None or exchange.head.impersonates:
            return
        lasts = caller.stands is True or caller is NOBODY
        if lasts and http.peer.certificate is None and not (caller.notes or caller.warnings):
            probes: dict[str, KnownProbe] = http.head_memo.setdefault(KNOWN, {})
            if len(probes) == MOST_OF_A_HEAD:
                probes.clear()
            probes[http.target] = KnownProbe(
                http.method, exchange.head, located, exchange.query, caller, flow, page
            )
