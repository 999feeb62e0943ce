"""Counts of requests, and the page that shows them: known names, closed labels, readable text."""

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchid.features.accounts.kinds import service_account
from orchid.features.objects.kinds import config_map
from orchid.kernel.base.metrics import packed, unpacked
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import Authenticated, Decision, Verdict
from orchid.kernel.http.messages import Chunk, HttpRequest, Peer, Response, Stream
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.memory.paths import PathCache
from orchid.kernel.server.metrics.page import Family, MetricsPage, Sample, rendered
from orchid.kernel.server.metrics.requests import COUNTED_TOGETHER, CountedRequests, Histogram
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

ACCOUNTS = "/api/v1/namespaces/ns/serviceaccounts"
CATALOG = Catalog([service_account.declare(ORCH), config_map.declare(ORCH)])
# The labels of each family, as the reference has them. The parser calls every counter `_total`.
COMMON = {"component", "group", "resource", "scope", "subresource", "verb", "version"}
LABELS = {
    "apiserver_request_total": {"code", "dry_run", *COMMON},
    "apiserver_request_duration_seconds": {"dry_run", *COMMON},
    "apiserver_request_sli_duration_seconds": COMMON,
    "apiserver_response_sizes": COMMON,
    "apiserver_longrunning_requests": COMMON,
    "apiserver_request_body_size_bytes": {"group", "resource", "verb"},
    "apiserver_current_inflight_requests": {"request_kind"},
    "apiserver_resource_objects": {"group", "resource"},
    "apiserver_storage_objects": {"resource"},
    "authentication_attempts_total": {"result"},
    "authorization_attempts_total": {"result"},
    "authenticated_user_requests_total": {"username"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
    "process_open_fds": set(),
    "process_start_time_seconds": set(),
}


class Counting:
    """Counts and their page, without a server."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.requests = CountedRequests(CATALOG, lambda: self.seconds, ("/healthz", "/metrics"))
        feed = Feed(MemoryStore(), CATALOG)
        self.page = MetricsPage(
            self.requests,
            None,
            Fairness(ORCH, 0, 0),
            feed,
            CATALOG,
            offload=Offload(),
            now=datetime(2026, 1, 2, tzinfo=UTC),
        )

    def state(self, method: str, target: str, body: bytes = b"", **headers: str) -> RequestState:
        path, _, query = target.partition("?")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        http = HttpRequest(method, target, path, query, named, Peer("10.0.0.9:1"), body=body)
        state = RequestState(http, facts_of(http), "id", datetime(2026, 1, 2, tzinfo=UTC))
        state.path, state.query = PathCache().parse(http)
        state.target = state.path.target
        return state

    def observe(
        self, method: str, target: str, answer: Response | Stream | None = None, **rest: Any
    ) -> RequestState:
        state = self.state(method, target, **rest)
        self.requests.observe(state, answer or Response(200, b"", b"x" * 5000), 0.02)
        return state

    def families(self) -> dict[str, Any]:
        return {
            sample.name: family
            for family in text_string_to_metric_families(self.page.render())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The sum of all samples of a name that have these labels."""
        return sum(
            float(sample.value)
            for sample in self.families()[name].samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
def counting() -> Counting:
    return Counting()


def test_families_have_the_names_and_labels_of_the_reference(counting: Counting) -> None:
    """Dashboards for the reference find what they look for, and Prometheus can read it."""
    counting.observe("POST", ACCOUNTS, body=b"{}")
    counting.observe("GET", f"{ACCOUNTS}?watch=1", Stream(200, b"", lambda sink: None))

    families = list(text_string_to_metric_families(counting.page.render()))

    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            name = sample.name
            if family.type == "histogram":
                name = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found.setdefault(name, set()).update(set(sample.labels) - {"le"})
    assert {name: found.get(name) for name in LABELS} == LABELS


@pytest.mark.parametrize(
    ("method", "target", "labels"),
    [
        ("GET", f"{ACCOUNTS}/a", {"verb": "GET", "scope": "resource"}),
        ("HEAD", f"{ACCOUNTS}/a", {"verb": "GET", "scope": "resource"}),
        ("GET", ACCOUNTS, {"verb": "LIST", "scope": "namespace"}),
        ("GET", "/api/v1/serviceaccounts", {"verb": "LIST", "scope": "cluster"}),
        ("POST", ACCOUNTS, {"verb": "POST", "scope": "resource"}),
        ("POST", f"{ACCOUNTS}?dryRun=All", {"verb": "POST", "dry_run": "All"}),
        ("PUT", f"{ACCOUNTS}/a", {"verb": "PUT", "scope": "resource", "version": "v1"}),
        ("PATCH", f"{ACCOUNTS}/a", {"verb": "PATCH", "resource": "serviceaccounts"}),
        ("DELETE", ACCOUNTS, {"verb": "DELETECOLLECTION", "scope": "namespace"}),
        ("GET", "/healthz", {"verb": "GET", "subresource": "/healthz", "scope": ""}),
        ("GET", "/secret/path", {"verb": "GET", "subresource": "", "resource": ""}),
        ("GET", "/api/v1/invented", {"verb": "LIST", "resource": "", "version": ""}),
        ("GET", f"{ACCOUNTS}/a/invented", {"verb": "GET", "resource": "", "subresource": ""}),
        ("BREW", "/healthz", {"verb": "other", "subresource": "/healthz"}),
    ],
)
def test_request_is_counted_under_its_labels(
    counting: Counting, method: str, target: str, labels: dict[str, str]
) -> None:
    """Labels have verb, scope and resource; an unknown resource is empty."""
    counting.observe(method, target, Response(404))

    assert counting.value("apiserver_request_total", code="404", **labels) == 1


def test_apply_is_distinguished_from_other_patches(counting: Counting) -> None:
    """A server-side apply has a verb of its own, though the path is the same."""
    for media in ("merge-patch+json", "apply-patch+yaml", "json-patch+json", "apply-patch+yaml"):
        counting.observe("PATCH", f"{ACCOUNTS}/a", content_type=f"application/{media}")

    assert counting.value("apiserver_request_total", verb="APPLY") == 2
    assert counting.value("apiserver_request_total", verb="PATCH") == 2


@pytest.mark.parametrize("asked", [1, COUNTED_TOGETHER - 1, COUNTED_TOGETHER, 150])
def test_every_request_is_on_the_page_at_once(counting: Counting, asked: int) -> None:
    """Requests are counted in batches, but the page includes all; a reset clears all."""
    for _ in range(asked):
        counting.observe("GET", ACCOUNTS)
    seen = counting.value("apiserver_request_total", verb="LIST")
    sizes = counting.value("apiserver_response_sizes_count", verb="LIST")
    counting.observe("GET", ACCOUNTS)

    counting.requests.reset()

    assert (seen, sizes) == (asked, asked)
    assert counting.requests.series == {}


def test_series_stay_few_whatever_clients_invent(counting: Counting) -> None:
    """Ten thousand random user agents, methods, paths and queries make no series of their own."""
    dice = random.Random(7)

    def text() -> str:
        return "".join(dice.choices("abcdefghijklmnopqrstuvwxyz0123456789-._~", k=12))

    methods = ("GET", "POST", "DELETE", "PUT", "PATCH", "")
    paths = (
        "/{}",
        "/api/v1/{}",
        "/apis/{}/{}/{}",
        "/api/v1/namespaces/{}/serviceaccounts/{}",
        "/api/v1/namespaces/{}/serviceaccounts/{}/{}",
        "/api/v1/namespaces/{}/configmaps?{}={}&dryRun={}",
    )
    kinds = list(itertools.product(methods, paths, (200, 401, 403, 404)))

    def send(method: str, path: str, code: int) -> None:
        target = path.format(*(text() for _ in range(path.count("{}"))))
        headers = {"user_agent": text(), "content_type": text(), text(): text()}
        counting.observe(method or text().upper(), target, Response(code), **headers)

    for kind in kinds:
        send(*kind)
    before = counting.page.render().count("\n")
    for _ in range(10_000):
        send(*dice.choice(kinds))

    assert counting.page.render().count("\n") == before


def test_histogram_counts_up_to_its_bounds() -> None:
    """A value on a bound belongs to it; buckets are cumulative and end with +Inf."""
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)

    text = rendered(Family("h", "histogram", "Help.", [Sample((("a", "b"),), histogram)]))

    assert text.splitlines()[2:] == [
        'h_bucket{a="b",le="0.1"} 2',
        'h_bucket{a="b",le="1"} 3',
        'h_bucket{a="b",le="+Inf"} 4',
        'h_sum{a="b"} 7.65',
        'h_count{a="b"} 4',
    ]


def test_label_values_are_escaped() -> None:
    """Quotes, backslashes and line feeds cannot break the text."""
    odd = 'a"b\\c\nd'
    text = rendered(Family("g", "gauge", "Help.", [Sample((("l", odd),), 1)]))

    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"l": odd}


def test_watch_is_open_until_it_is_closed(counting: Counting) -> None:
    """A stream is a gauge while it lasts and is counted with its duration when it ends."""
    closing: list[Callable[[], None]] = []

    class Sink:
        closed = False

        def send(self, chunk: Chunk) -> None: ...
        def when_taken(self, step: Callable[[], None]) -> None: ...
        def finish(self) -> None: ...
        def abort(self) -> None: ...
        def on_close(self, callback: Callable[[], None]) -> None:
            closing.append(callback)

    stream = Stream(200, b"", lambda sink: None)
    counting.observe("GET", f"{ACCOUNTS}?watch=1", stream)
    stream.open(Sink())
    counting.requests.reset()
    during = counting.value("apiserver_longrunning_requests", verb="WATCH")
    counting.seconds += 7.0
    closing[0]()

    took = counting.value("apiserver_request_duration_seconds_sum", verb="WATCH")
    assert took == pytest.approx(7.02)
    assert during == 1
    assert counting.value("apiserver_longrunning_requests", verb="WATCH") == 0
    assert counting.value("apiserver_request_total", verb="WATCH", code="200") == 1


def test_access_is_counted_by_result(counting: Counting) -> None:
    """Authentication and authorization are counted by result, never by user name."""
    for username, verdict in (
        ("admin", Verdict.ALLOW),
        ("a@b", Verdict.DENY),
        ("someone", Verdict.NO_OPINION),
    ):
        state = counting.state("GET", ACCOUNTS)
        state.caller = Authenticated(UserInfo(username=username))
        state.decision = Decision(verdict)
        counting.requests.observe(state, Response(200), 0.1)
    counting.observe("GET", ACCOUNTS, Response(401))

    assert counting.value("authentication_attempts_total", result="success") == 3
    assert counting.value("authentication_attempts_total", result="failure") == 1
    assert counting.value("authorization_attempts_total", result="denied") == 1
    assert counting.value("authenticated_user_requests_total", username="email_id") == 1


def test_delete_resets_the_counters(counting: Counting) -> None:
    """DELETE /metrics answers that it has reset, and the counts are gone."""
    counting.observe("GET", ACCOUNTS)

    answer = counting.page(counting.state("DELETE", "/metrics"))

    assert answer.body == b"metrics reset\n"
    assert counting.requests.series == {}


async def test_page_says_which_format_it_has(counting: Counting) -> None:
    """The content type names the text format, as the reference does."""
    answered = counting.page(counting.state("GET", "/metrics"))
    assert not isinstance(answered, Response)
    answer = await answered

    assert (
        b"Content-Type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores\r\n"
        in answer.headers
    )


class Others:
    """Processes beside this one, which have counted what they are given."""

    def __init__(self, counts: list[list[Family]]) -> None:
        self.counts = counts
        self.resets = 0

    async def gather(self, own: list[Family]) -> list[list[Family]]:
        return self.counts

    def reset(self) -> None:
        self.resets += 1


async def test_the_page_joins_what_other_processes_have_counted(counting: Counting) -> None:
    """Everything on the page travels between processes, and requests of all are added up."""
    counting.observe("POST", ACCOUNTS, body=b"{}")
    families = unpacked(packed(counting.page.families()))
    counting.page._others = others = Others([families, families])

    answered = counting.page(counting.state("GET", "/metrics"))
    assert not isinstance(answered, Response)
    page = (await answered).body.decode()
    counting.page(counting.state("DELETE", "/metrics"))

    families = {each.name: each for each in text_string_to_metric_families(page)}
    posts = [s for s in families["apiserver_request"].samples if s.labels["verb"] == "POST"]
    assert [sample.value for sample in posts] == [3]
    assert families["orchid_build_info"].samples[0].value == 1
    assert others.resets == 1
