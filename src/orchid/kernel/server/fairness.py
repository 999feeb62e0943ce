"""Priority and fairness: limits of concurrent requests, shared between users.

Start with `Fairness.flow_of`: it finds the flow of a request, which is one user at one priority
level. Levels have seats of their own and lend some to the others; without a free seat, requests
wait in a short queue of their flow, flows are served in turn, and requests beyond the queue get
429. So a client that sends too much delays only its own requests. Levels, schemas and shares follow
the defaults of Kubernetes; they are not objects here, and cannot be changed.

Seats limit how many requests may await something concurrently. The scarcest resource is the
processor, and there is one event loop: while that is late, each user has only a few seats
(`feel_lag`).

Without waiting requests, a request costs a few additions. Watches take a seat only while they open.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from math import ceil, inf
from typing import Final, NamedTuple

from orchid.kernel.base.metrics import Family, Sample
from orchid.kernel.base.rate_limits import network_of
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODES,
    UNAUTHENTICATED,
    UserInfo,
)

READ_VERBS: Final = frozenset({"get", "list", "watch", "head"})
PROBES: Final = frozenset({"/healthz", "/livez", "/readyz"})
LEASES: Final = "leases"
MOST_QUEUED_PER_FLOW: Final = 50
MOST_QUEUED: Final = 1_000  # at one level
MOST_PARKED_PER_FLOW, MOST_PARKED = 500, 5_000  # requests that wait for a revision
MOST_FLOWS: Final = 10_000  # cached
LATE_FROM, LATE_UNTIL = 0.05, 0.01  # seconds that the event loop is late
MOST_PER_FLOW_LATE: Final = 4


class Overloaded(Exception):
    """No seat for this request now."""


class LevelDefault(NamedTuple):
    """A priority level: its share of all seats, and the percentage that others may borrow."""

    name: str
    shares: int
    lends: int


LEVELS: Final = (
    LevelDefault("leader-election", 10, 0),
    LevelDefault("system", 30, 33),
    LevelDefault("workload-high", 40, 50),
    LevelDefault("workload-low", 100, 90),
    LevelDefault("global-default", 20, 50),
    LevelDefault("catch-all", 5, 0),
)
EXEMPT: Final = "exempt"


class Pool:
    """The seats that levels lend each other, and the number of waiting requests."""

    __slots__ = ("levels", "parked", "patience", "queued", "size", "taken")

    def __init__(self, size: int, patience: float) -> None:
        self.size = size
        self.patience = patience  # seconds that a request waits for a seat
        self.taken = 0
        self.queued = 0
        self.parked = 0
        self.levels: list[PriorityLevel] = []

    def hand_out(self) -> None:
        """Assign free seats to waiting requests, level by level, flow by flow."""
        for level in self.levels:
            level.hand_out()


class PriorityLevel:
    """One priority level."""

    __slots__ = (
        "borrowed",
        "calm_per_flow",
        "most_per_flow",
        "name",
        "own",
        "pool",
        "queued",
        "rejected",
        "rotation",
        "taken",
    )

    def __init__(self, name: str, own: float, pool: Pool) -> None:
        self.name = name
        self.own = own  # seats that are not lent
        self.pool = pool
        self.calm_per_flow = inf if own == inf else max(1, (own + pool.size) // 2)
        self.most_per_flow = self.calm_per_flow
        self.taken = 0
        self.borrowed = 0
        self.queued = 0
        # flows with waiting requests, in the order of their turns
        self.rotation: deque[Flow] = deque()
        self.rejected: dict[str, int] = {}

    def has_seat(self) -> bool:
        return self.taken < self.own or self.pool.taken < self.pool.size

    def take(self) -> None:
        if self.taken >= self.own:
            self.borrowed += 1
            self.pool.taken += 1
        self.taken += 1

    def give_back_borrowed(self) -> None:
        self.borrowed -= 1
        self.pool.taken -= 1

    def hand_out(self) -> None:
        looked = 0
        while looked < len(self.rotation) and self.has_seat():
            flow = self.rotation.popleft()
            if flow.taken >= self.most_per_flow:
                self.rotation.append(flow)
                looked += 1
                continue
            flow.admit_next()
            if flow.waiting:
                self.rotation.append(flow)

    def reject(self, reason: str) -> Overloaded:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return Overloaded()


class Flow:
    """The requests of one user at one level; each is in a seat, in the queue, or parked."""

    __slots__ = ("headers", "level", "parked", "taken", "waiting")

    def __init__(self, level: PriorityLevel, headers: bytes) -> None:
        self.level = level
        self.headers = headers  # with the flow schema and the level
        self.taken = 0
        self.parked = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_idle(self) -> bool:
        return not (self.taken or self.parked or self.waiting)

    def enter(self) -> bool:
        """Take a seat if there is one and no other request waits for it."""
        level = self.level
        if level.queued or self.taken >= level.most_per_flow:
            return False
        if level.taken < level.own:
            level.taken += 1
        elif level.has_seat():
            level.take()
        else:
            return False
        self.taken += 1
        return True

    def leave(self) -> None:
        self.taken -= 1
        level = self.level
        level.taken -= 1
        if level.borrowed:
            level.give_back_borrowed()
        if level.pool.queued:
            level.pool.hand_out()

    # Waiting for a seat

    async def wait(self) -> None:
        """Wait for a seat; raises Overloaded if the queue is full, or after a timeout."""
        level = self.level
        if len(self.waiting) >= MOST_QUEUED_PER_FLOW or level.queued >= MOST_QUEUED:
            raise level.reject("queue-full")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._enqueue(waiter)
        timer = loop.call_later(level.pool.patience, self._give_up, waiter)
        level.pool.hand_out()  # a flow at its limit may be ahead of one that is not
        try:
            await waiter
        except BaseException:
            self._withdraw(waiter)
            raise
        finally:
            timer.cancel()

    def admit_next(self) -> None:
        """Give a seat to the first request that still waits."""
        while self.waiting:
            waiter = self.waiting.popleft()
            self._count_queued(-1)
            if not waiter.done():
                self.level.take()
                self.taken += 1
                waiter.set_result(None)
                return

    def _enqueue(self, waiter: "asyncio.Future[None]") -> None:
        if not self.waiting:
            self.level.rotation.append(self)
        self.waiting.append(waiter)
        self._count_queued(1)

    def _give_up(self, waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_exception(self.level.reject("time-out"))

    def _withdraw(self, waiter: "asyncio.Future[None]") -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)
            self._count_queued(-1)
            if not self.waiting:
                self.level.rotation.remove(self)
        elif not waiter.cancelled() and waiter.exception() is None:
            self.leave()  # the request was cancelled when it got its seat

    def _count_queued(self, change: int) -> None:
        self.level.queued += change
        self.level.pool.queued += change

    # Waiting for something else (kernel/base/scheduling/seat.py)

    def require_room_to_wait(self) -> None:
        if self.parked >= MOST_PARKED_PER_FLOW or self.level.pool.parked >= MOST_PARKED:
            raise self.level.reject("parked")

    def park(self) -> None:
        self.parked += 1
        self.level.pool.parked += 1
        self.leave()

    def unpark(self) -> None:
        self.parked -= 1
        self.level.pool.parked -= 1
        self.taken += 1
        self.level.take()

    # The work of several requests

    def occupy(self, more: int) -> None:
        self.taken += more
        for _ in range(more):
            self.level.take()

    def vacate(self, more: int) -> None:
        for _ in range(more):
            self.leave()


class FlowSchema(NamedTuple):
    """The requests of a level."""

    name: str
    level: str
    matches: Callable[[UserInfo, Target], bool]


def default_schemas(naming: Naming) -> tuple[FlowSchema, ...]:
    """The flow schemas in order; the first that matches a request applies."""
    system_accounts = f"system:serviceaccounts:{naming.system_namespace}"

    def in_group(group: str) -> Callable[[UserInfo, Target], bool]:
        return lambda user, _: group in user.groups

    def anybody(user: UserInfo, _: Target) -> bool:
        return AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups

    return (
        FlowSchema("exempt", EXEMPT, in_group(MASTERS)),
        FlowSchema("probes", EXEMPT, lambda _, target: target.path in PROBES),
        FlowSchema(
            "system-leader-election",
            "leader-election",
            lambda user, target: target.resource == LEASES and system_accounts in user.groups,
        ),
        FlowSchema("system-nodes", "system", in_group(NODES)),
        FlowSchema(
            f"{naming.system_namespace}-service-accounts",
            "workload-high",
            in_group(system_accounts),
        ),
        FlowSchema("service-accounts", "workload-low", in_group("system:serviceaccounts")),
        FlowSchema("global-default", "global-default", anybody),
        FlowSchema("catch-all", "catch-all", lambda _user, _target: True),
    )


class Fairness:
    """All levels, and the cached flows."""

    def __init__(
        self,
        naming: Naming,
        reading: int,
        writing: int,
        *,
        patience: float = 15.0,
        by_address: Iterable[str] = (),
    ) -> None:
        """Share so many seats for reads and writes together; 0 for either means no limit.

        `by_address`: paths on which anonymous callers have a flow for each client address,
        because their credential is in the body.
        """
        self._special = PROBES.union(by_address)
        seats = reading + writing if reading and writing else 0
        self._schemas = default_schemas(naming)
        self.levels = {level.name: level for level in made_levels(seats, patience)}
        self._headers = {
            schema.name: _headers(naming, uuid.uuid4(), level_uid)
            for level_uid, level in ((uuid.uuid4(), level) for level in self.levels)
            for schema in self._schemas
            if schema.level == level
        }
        self._flows: dict[tuple[str, tuple[str, ...], str], Flow] = {}
        self.reading = self.writing = 0  # requests in progress
        self._is_late = False

    def flow_of(self, user: UserInfo, target: Target, address: str = "") -> Flow:
        """The flow of a request; `address` is that of the client, with its port."""
        resource, path = target.resource, target.path
        special = ""
        if not resource and path in self._special:
            if path in PROBES:
                special = path
            elif user.username == ANONYMOUS:
                special = f"{path} {network_of(address)}"
        key = (user.username, user.groups, LEASES if resource == LEASES else special)
        flow = self._flows.get(key)
        return self._new_flow(key, user, target) if flow is None else flow

    def _new_flow(
        self, key: tuple[str, tuple[str, ...], str], user: UserInfo, target: Target
    ) -> Flow:
        if len(self._flows) >= MOST_FLOWS:
            self._flows = {
                flow_key: flow for flow_key, flow in self._flows.items() if not flow.is_idle
            }
        schema = next(candidate for candidate in self._schemas if candidate.matches(user, target))
        flow = self._flows[key] = Flow(self.levels[schema.level], self._headers[schema.name])
        return flow

    def feel_lag(self, late: float) -> None:
        """Record how late the event loop is; users get fewer seats while it is late."""
        if late > LATE_FROM and not self._is_late:
            self._set_late(True)
        elif late < LATE_UNTIL and self._is_late:
            self._set_late(False)

    def _set_late(self, late_loop: bool) -> None:
        self._is_late = late_loop
        pool = self.levels[EXEMPT].pool
        for level in pool.levels:  # the exempt level is not among them
            calm = level.calm_per_flow
            level.most_per_flow = min(calm, MOST_PER_FLOW_LATE) if late_loop else calm
        pool.hand_out()

    def families(self) -> Iterable[Family]:
        """The metrics."""
        levels = self.levels.values()
        yield Family(
            "apiserver_current_inflight_requests",
            "gauge",
            "Requests in progress.",
            [
                Sample((("request_kind", "readOnly"),), self.reading),
                Sample((("request_kind", "mutating"),), self.writing),
            ],
        )
        yield Family(
            "apiserver_flowcontrol_current_executing_requests",
            "gauge",
            "Requests in a seat, by priority level.",
            [Sample((("priority_level", level.name),), level.taken) for level in levels],
        )
        yield Family(
            "apiserver_flowcontrol_current_inqueue_requests",
            "gauge",
            "Requests that wait for a seat, by priority level.",
            [Sample((("priority_level", level.name),), level.queued) for level in levels],
        )
        yield Family(
            "apiserver_flowcontrol_rejected_requests_total",
            "counter",
            "Requests refused for lack of a seat, by priority level and reason.",
            [
                Sample((("priority_level", level.name), ("reason", reason)), count)
                for level in levels
                for reason, count in level.rejected.items()
            ],
        )


def made_levels(seats: int, patience: float) -> list[PriorityLevel]:
    """Share seats among the levels; 0 means no limit."""
    shares = sum(default.shares for default in LEVELS)
    nominal = [ceil(seats * default.shares / shares) for default in LEVELS]
    lent = [count * default.lends // 100 for count, default in zip(nominal, LEVELS, strict=True)]
    pool = Pool(sum(lent), patience)
    pool.levels = [
        PriorityLevel(default.name, count - part if seats else inf, pool)
        for default, count, part in zip(LEVELS, nominal, lent, strict=True)
    ]
    return [PriorityLevel(EXEMPT, inf, pool), *pool.levels]


def _headers(naming: Naming, schema: uuid.UUID, level: uuid.UUID) -> bytes:
    """Two headers that Kubernetes clients find on every response past the limits."""
    return (
        f"X-{naming.flow_header}-Pf-Flowschema-Uid: {schema}\r\n"
        f"X-{naming.flow_header}-Pf-Prioritylevel-Uid: {level}\r\n"
    ).encode()
