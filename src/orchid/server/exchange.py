"""One request on its way through the chain: what the steps know of it so far.

`Exchange` is made by the chain and handed from step to step. `Observed` is the part that audit and
metrics look at when the answer is there; nothing decides by it.
"""

import itertools
from datetime import datetime
from typing import Any

from orchid.engine.interfaces import Authenticated, Decision, SystemRandomness
from orchid.engine.request import Request, Target
from orchid.server.audit.policy import Plan
from orchid.server.head_facts import FACTS, HeadFacts, facts_of
from orchid.server.negotiate import PLAIN, Form, wants_pretty
from orchid.server.parse import Located, Query
from orchid.server.sockets.messages import HttpRequest
from orchid.wire.status import Status

NO_QUERY: Query = {}
NOWHERE = Located(Target(verb=""))


class Observed:
    """What happened, for audit and metrics."""

    caller: Authenticated | None = None  # who authenticated, whomever they act for
    impersonation_constraint: str = ""  # the verb that let them act as another, if constrained
    decision: Decision | None = None  # whether they may
    sent: Any = None  # the object in the body, once it is decoded
    shown: bytes | None = None  # the answer as JSON, whatever its form
    status: Status | None = None  # the answer, if it is a Status
    panicked: bool = False  # it failed in a way that nobody foresaw
    audit_plan: Plan | None = None  # what is to be recorded, once the caller is known


class Exchange:
    """A request, where it goes, who asks, and how the answer is to look."""

    located: Located = NOWHERE
    query: Query = NO_QUERY
    request: Request | None = None  # once the caller is known
    form: Form = PLAIN
    extra_headers: bytes = b""

    def __init__(self, http: HttpRequest, audit_id: str, now: datetime) -> None:
        self.http = http
        self.head: HeadFacts = http.head_memo.get(FACTS) or facts_of(http)
        # The client's own id, so that it finds its request again.
        self.audit_id = self.head.audit_id or audit_id
        self.now = now
        self.warnings: list[str] = []
        self.observed = Observed()

    @property
    def accept(self) -> str:
        return self.head.accept

    @property
    def pretty(self) -> bool:
        given = self.query.get("pretty")
        return wants_pretty(given[0], "") if given and given[0] else self.head.indented


class AuditIds:
    """Ids in the form of a UUID: a random beginning for this process, and a count."""

    def __init__(self) -> None:
        uid = SystemRandomness().uid()
        self._head = uid[:24]
        # Half of all numbers with so many digits lie ahead: it will not come to the end of them.
        self._count = itertools.count(int(uid[24:], 16) >> 1)

    def next(self) -> str:
        """One that no other has; nobody needs to be unable to guess it."""
        return f"{self._head}{next(self._count):012x}"
