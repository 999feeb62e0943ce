"""One request on its way through the chain: what the steps know of it so far.

`Exchange` is made by the chain and handed from step to step. `Observed` is the part that audit and
metrics look at when the answer is there; nothing decides by it.
"""

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from orchid.engine.interfaces import Authenticated, Decision, SystemRandomness
from orchid.engine.request import Request, Target
from orchid.server.audit.policy import Plan
from orchid.server.memory.head_memo import HeadFacts
from orchid.server.negotiate import PLAIN, Form, wants_pretty
from orchid.server.parse import NO_QUERY, Located, Query
from orchid.server.sockets.messages import HttpRequest
from orchid.wire.status import Status

_LAST_DIGITS = [f"{number:02x}" for number in range(256)]
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


class Exchange(msgspec.Struct, eq=False):
    """A request, where it goes, who asks, and how the answer is to look."""

    http: HttpRequest
    head: HeadFacts
    audit_id: str
    now: datetime
    located: Located = NOWHERE
    query: Query = NO_QUERY
    request: Request | None = None  # once the caller is known
    form: Form = PLAIN
    extra_headers: bytes = b""
    warnings: list[str] = []
    observed: Observed = msgspec.field(default_factory=Observed)

    __repr__ = object.__repr__  # shows no field: there are tokens in it

    @property
    def accept(self) -> str:
        return self.head.accept

    @property
    def pretty(self) -> bool:
        given = self.query.get("pretty")
        return wants_pretty(given[0], "") if given and given[0] else self.head.indented


def audit_ids() -> Iterator[str]:
    """Ids in the form of a UUID: a random beginning for this process, and a count.

    They are unique, but not secret. To format the whole number takes four times as long as to add
    its last digits, which calls no function written in Python.
    """
    uid = SystemRandomness().uid()
    # The count starts below half of what fits into the digits, so it will not run over.
    counted = itertools.count(int(uid[24:34], 16) >> 1)
    beginnings = (f"{uid[:24]}{many:010x}" for many in counted)
    return itertools.chain.from_iterable(
        map(beginning.__add__, _LAST_DIGITS) for beginning in beginnings
    )
