"""Metrics of requests: number, duration, result.

The chain calls `CountedRequests.observe` once per request; page.py prints the counts, under the
names that Kubernetes dashboards use.

Labels come from closed sets only (verbs, our own resources and pages, status codes): a client
cannot create series by inventing names.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.metrics import Histogram
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import Verdict
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.verbs.patching import APPLY
from orchid.kernel.http.messages import Response, Stream
from orchid.kernel.server.request_state import RequestState

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
    4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
ANSWER_BYTES: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
BODY_BYTES: Final = (1e3, 1e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 2.5e6, 3e6)

# The label of each verb; other methods of non-resource paths share one name.
VERBS: Final = {
    "get": "GET",
    "head": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "post": "POST",
    "update": "PUT",
    "put": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
OTHER_VERB: Final = "other"
WATCH: Final = "WATCH"
COUNTED_TOGETHER: Final = 64  # requests; few enough for one turn of the loop
NOT_YET: Final = -1  # the size of a response that has not ended


class RequestMetrics(Protocol):
    def observe(self, state: RequestState, answer: Response | Stream, seconds: float) -> None: ...


class NoMetrics:
    def observe(self, state: RequestState, answer: Response | Stream, seconds: float) -> None:
        return None


class Labels(NamedTuple):
    """Labels of a time series; each has a closed set of values."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    dry_run: str = ""
    component: str = "apiserver"


Key = tuple[str, ...]  # the fields of Labels, or the first few; cheaper to create than Labels
# Requests with equal values are counted together: labels, name of the authenticated user, bytes of
# the body, status, bytes of the response.
RequestGroup = tuple[Key, str, int, int, int]


class Series:
    """All counts of requests with the same labels."""

    __slots__ = ("answer_bytes", "body_bytes", "codes", "open", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram(SECONDS)
        self.answer_bytes = Histogram(ANSWER_BYTES)
        self.body_bytes = Histogram(BODY_BYTES)
        self.open = 0  # streams that have not ended

    def count(self, code: int, seconds: float) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1
        self.seconds.observe(seconds)

    def fresh(self) -> "Series":
        """Reset, but streams that are open stay open."""
        series = Series()
        series.open = self.open
        return series


class CountedRequests:
    """Counts of all responses since the start or the last reset.

    A request is queued when it is complete, and counted together with others: rarely used
    histograms are cold memory, and took as long as the request's authentication.
    """

    def __init__(self, catalog: Catalog, monotonic: Monotonic, pages: Iterable[str] = ()) -> None:
        self._monotonic = monotonic
        self._resources = frozenset(_resources(catalog.kinds))
        self._pages = frozenset(pages)
        self._prefixes = tuple(page for page in self._pages if page.endswith("/"))
        self._queued: dict[RequestGroup, list[float]] = {}  # the duration of each
        self._waiting = 0  # queued requests
        self._series: dict[Key, Series] = {}
        self._authentications = {"success": 0, "failure": 0}
        self._users = {"admin": 0, "email_id": 0, "other": 0}
        self._authorizations = {"allowed": 0, "denied": 0, "no-opinion": 0, "error": 0}

    @property
    def series(self) -> dict[Key, Series]:
        self._count_queued()
        return self._series

    @property
    def authentications(self) -> dict[str, int]:
        self._count_queued()
        return self._authentications

    @property
    def users(self) -> dict[str, int]:
        self._count_queued()
        return self._users

    @property
    def authorizations(self) -> dict[str, int]:
        self._count_queued()
        return self._authorizations

    def observe(self, state: RequestState, answer: Response | Stream, seconds: float) -> None:
        key = state.path.labels or self._key(state)
        caller, decision = state.caller, state.decision
        if caller is not None and decision is not None and decision.allowed:
            allowed = caller.user.username
        else:
            allowed = ""
            self._count_access(state, answer)
        if isinstance(answer, Stream):
            size = NOT_YET
            self._follow(key, answer, seconds)
        else:
            size = len(answer.body)
        alike = key, allowed, len(state.http.body), answer.status, size
        times = self._queued.get(alike)
        if times is None:
            times = self._queued[alike] = []
        times.append(seconds)
        self._waiting += 1
        if self._waiting >= COUNTED_TOGETHER:
            self._count_queued()

    def _count_queued(self) -> None:
        queued, self._queued, self._waiting = self._queued, {}, 0
        users, all_series = self._users, self._series
        allowed = 0
        for (key, username, sent, status, size), times in queued.items():
            series, count = all_series.get(key) or self._series_of(key), len(times)
            if username:
                allowed += count
                users[user_class(username)] += count
            if sent:
                bodies = series.body_bytes
                bodies.counts[bisect_left(BODY_BYTES, sent)] += count
                bodies.sum += sent * count
            if size != NOT_YET:
                codes, timed, sized = series.codes, series.seconds, series.answer_bytes
                codes[status] = codes.get(status, 0) + count
                for seconds in times:
                    timed.counts[bisect_left(SECONDS, seconds)] += 1
                timed.sum += sum(times)
                sized.counts[bisect_left(ANSWER_BYTES, size)] += count
                sized.sum += size * count
        self._authentications["success"] += allowed
        self._authorizations["allowed"] += allowed

    def _series_of(self, key: Key) -> Series:
        return self._series.setdefault(key, Series())

    def reset(self) -> None:
        self._count_queued()
        self._series = {key: s.fresh() for key, s in self._series.items() if s.open}
        for counts in (self._authentications, self._users, self._authorizations):
            counts.update(dict.fromkeys(counts, 0))

    def _key(self, state: RequestState) -> Key:
        """The labels of a request; all unserved resources share one set."""
        target, query = state.target, state.query
        verb = VERBS.get(target.verb, OTHER_VERB)
        if not target.is_resource:
            return verb, "", "", "", self._page(target.path)
        resource = target.group, target.version, target.resource, target.subresource
        if resource not in self._resources:
            return (verb,)
        if verb == "PATCH" and state.http.headers.get("content-type", "").startswith(APPLY):
            verb = "APPLY"
        if target.name or verb == "POST":
            scope = "resource"
        else:
            scope = "namespace" if target.namespace else "cluster"
        dry_run = "All" if query and query.get("dryRun") == ["All"] else ""
        key = verb, *resource, scope, dry_run
        if not query and verb not in ("PATCH", "APPLY"):  # all else is in the path
            state.path.labels = key
        return key

    def _page(self, path: str) -> str:
        """A page with a series of its own; the pages below a prefix, which ends in /, share one."""
        if path in self._pages:
            return path
        if not path.startswith(self._prefixes):
            return ""
        return next(prefix for prefix in self._prefixes if path.startswith(prefix))

    def _count_access(self, state: RequestState, answer: Response | Stream) -> None:
        caller, decision = state.caller, state.decision
        if caller is not None:
            self._authentications["success"] += 1
            self._users[user_class(caller.user.username)] += 1
        elif answer.status == 401:  # noqa: PLR2004 -- Unauthorized
            self._authentications["failure"] += 1
        if decision is not None:
            if decision.allowed:
                result = "allowed"
            elif decision.error:
                result = "error"
            else:
                result = "denied" if decision.verdict is Verdict.DENY else "no-opinion"
            self._authorizations[result] += 1

    def _follow(self, key: Key, stream: Stream, seconds: float) -> None:
        """Count a stream when it ends; until then it counts as open."""
        started = self._monotonic() - seconds
        status = stream.status
        self._series_of(key).open += 1

        def closed() -> None:
            series = self._series[key]
            series.open -= 1
            series.count(status, self._monotonic() - started)

        stream.on_close(closed)


def user_class(username: str) -> str:
    """The class of a user: admin, email_id or other; user names would create too many series."""
    if username == "admin":
        return "admin"
    return "email_id" if "@" in username else "other"


def _resources(kinds: Iterable[Kind[Any]]) -> Iterable[tuple[str, str, str, str]]:
    """Every resource and subresource."""
    for kind in kinds:
        yield kind.group, kind.version, kind.plural, ""
        for endpoint in kind.endpoints:
            yield kind.group, kind.version, kind.plural, endpoint.name
