"""The state of one request while it passes through the chain.

The chain creates a `RequestState` and passes it from step to step.
"""

import itertools
import math
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from orchid.kernel.engine.interfaces import Authenticated, Decision
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.http.messages import HttpRequest
from orchid.kernel.server.audit.policy import Plan
from orchid.kernel.server.memory.head_facts import HeadFacts
from orchid.kernel.server.negotiate import PLAIN, Form, wants_pretty
from orchid.kernel.server.parse import NO_PATH, NO_QUERY, ParsedPath, Query
from orchid.kernel.wire.status import Status


class RequestState(msgspec.Struct, eq=False):
    """A request, its target, its user, and the format of the response."""

    http: HttpRequest
    head: HeadFacts
    audit_id: str
    now: datetime
    arrived: float = math.inf  # on the monotonic clock
    path: ParsedPath = NO_PATH
    target: Target = NO_PATH.target
    query: Query = NO_QUERY
    request: Request | None = None  # once the user is authenticated
    form: Form = PLAIN
    extra_headers: bytes = b""
    warnings: list[str] = []
    # For audit and metrics; no decision depends on these.
    caller: Authenticated | None = None  # as authenticated, before impersonation
    impersonation_constraint: str = ""  # the verb that allowed a constrained impersonation
    decision: Decision | None = None  # of the authorizer
    sent: Any = None  # the object in the body, once it is decoded
    shown: bytes | bytearray | None = None  # the response as JSON, in any format
    status: Status | None = None  # the response, if it is a Status
    waited: float = 0.0  # seconds that the client requested to wait; not counted as latency
    panicked: bool = False  # it failed with an unexpected exception
    audit_plan: Plan | None = None  # once the user is authenticated

    __repr__ = object.__repr__  # shows no field: there are tokens in it

    @property
    def accept(self) -> str:
        return self.head.client.accept

    @property
    def pretty(self) -> bool:
        given = self.query.get("pretty")
        return wants_pretty(given[0], "") if given and given[0] else self.head.client.indented


def audit_ids() -> Iterator[str]:
    """Ids in the form of a UUID: random digits of this process, and a counter.

    They are unique, but not secret.
    """
    uid = str(uuid.uuid4())
    # The counter starts in the lower half of its range, so it never overflows.
    return map((uid[:24] + "{:012x}").format, itertools.count(int(uid[24:], 16) >> 1))
