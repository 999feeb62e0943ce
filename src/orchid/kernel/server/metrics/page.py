"""GET /metrics: all metrics in the format of Prometheus (text format 0.0.4).

`MetricsPage` joins the metrics of requests, audit, the feed and other components with those of the
process. A family is printed by one small function. With several processes, any of them shows the
total. DELETE /metrics resets the counters.

With many series the text has megabytes, so it is built in a thread.
"""

import functools
import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

from orchid.kernel.base.metrics import (
    Family,
    Histogram,
    Joining,
    LabelPairs,
    Metric,
    Sample,
    joined,
)
from orchid.kernel.base.scheduling.offload import ALWAYS, Offload
from orchid.kernel.base.telemetry import masked
from orchid.kernel.base.version import __version__
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.http.messages import Response
from orchid.kernel.server.audit.policy import LEVEL_NAMES
from orchid.kernel.server.audit.trail import PolicyAudit
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.server.metrics.requests import (
    ANSWER_BYTES,
    BODY_BYTES,
    SECONDS,
    WATCH,
    CountedRequests,
    Labels,
    Series,
)
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head, text

_CONTENT_TYPE = b"Content-Type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores\r\n"


class OtherProcesses(Protocol):
    """The other processes of this server."""

    async def gather(self, own: list[Family]) -> list[list[Family]]:
        """The metrics of each other process; `own` is cached for their requests."""
        ...

    def reset(self) -> None:
        """Reset the counters of all others."""
        ...


class MetricsPage:
    """The page; call it with the state of a request."""

    def __init__(
        self,
        requests: CountedRequests,
        audit: PolicyAudit | None,
        fairness: Fairness,
        feed: Feed,
        catalog: Catalog,
        *,
        offload: Offload,
        now: datetime,
        counted: Iterable[Metric] = (),
        others: OtherProcesses | None = None,
    ) -> None:
        self._others = others
        self._offload = offload
        self._requests = requests
        self._audit = audit
        self._fairness = fairness
        self._feed = feed
        self._kinds = catalog.stored
        self._counted = tuple(counted)
        self._started = process_start(now)

    def __call__(self, state: RequestState) -> Response | Awaitable[Response]:
        if state.http.method == "DELETE":
            self.reset()
            if self._others is not None:
                self._others.reset()
            return text(state, 200, "metrics reset\n")
        return self._shown(state)

    async def _shown(self, state: RequestState) -> Response:
        own = list(self.families())
        counted = [own]
        if self._others is not None:
            counted += await self._others.gather(own)
        written = await self._offload(ALWAYS, functools.partial(page_of, counted))
        return Response(200, head(state, _CONTENT_TYPE), written)

    def render(self) -> str:
        """The metrics of this process, as text."""
        return page_text(self.families())

    def reset(self) -> None:
        """Reset the counts."""
        self._requests.reset()
        for metric in self._counted:
            metric.reset()

    def families(self) -> Iterator[Family]:
        """The metrics of this process."""
        counted = {Labels(*key): series for key, series in self._requests.series.items()}
        yield from request_families(counted)
        yield from access_families(self._requests)
        yield from (metric.family() for metric in self._counted)
        yield from self._audit_families()
        yield from self._fairness.families()
        yield from self._feed_families()
        yield from process_families(self._started)
        yield Family(
            "orchid_build_info",
            "gauge",
            "The version.",
            [one(1, version=__version__)],
            Joining.MOST,
        )

    def _audit_families(self) -> Iterator[Family]:
        audit = self._audit
        if audit is None:
            return
        yield plain("apiserver_audit_event_total", "counter", "Audit events made.", audit.events)
        yield Family(
            "apiserver_audit_level_total",
            "counter",
            "Requests by the level at which they are recorded.",
            [one(count, level=name) for name, count in zip(LEVEL_NAMES, audit.levels, strict=True)],
        )
        yield plain(
            "apiserver_audit_requests_rejected_total",
            "counter",
            "Requests refused because they could not be recorded.",
            audit.rejected,
        )
        yield Family(
            "apiserver_audit_error_total",
            "counter",
            "Audit events that could not be written.",
            [one(audit.errors, plugin="log")],
        )

    def _feed_families(self) -> Iterator[Family]:
        caches = [self._feed.cache(kind) for kind in self._kinds]
        yield Family(
            "apiserver_resource_objects",
            "gauge",
            "Objects in memory.",
            [
                one(len(cache.entries), group=cache.kind.group, resource=cache.kind.plural)
                for cache in caches
            ],
            Joining.MOST,
        )
        yield Family(
            "apiserver_storage_objects",
            "gauge",
            "Stored objects.",
            [one(len(s.entries), resource=str(s.kind.about())) for s in caches],
            Joining.MOST,
        )
        yield Family(
            "orchid_feed_listeners",
            "gauge",
            "Watches and indexes that follow changes.",
            [
                one(len(cache.listeners), group=cache.kind.group, resource=cache.kind.plural)
                for cache in caches
            ],
        )
        revision, following = self._feed.revision, int(self._feed.following)
        yield plain(
            "orchid_feed_revision", "gauge", "The newest revision seen.", revision, Joining.MOST
        )
        yield plain(
            "orchid_feed_following", "gauge", "1 while changes arrive.", following, Joining.LEAST
        )


# --- families -------------------------------------------------------------------------------------


def request_families(series: Mapping[Labels, Series]) -> Iterator[Family]:
    yield Family(
        "apiserver_request_total",
        "counter",
        "Requests by target and status code.",
        [
            Sample((("code", str(code)), *_pairs(labels, "dry_run")), count)
            for labels, counted in series.items()
            for code, count in counted.codes.items()
        ],
    )
    yield Family(
        "apiserver_request_duration_seconds",
        "histogram",
        "Duration of requests, watches included.",
        _histograms(series, "dry_run", SECONDS, lambda counted: counted.seconds),
    )
    short = {labels: counted for labels, counted in series.items() if labels.verb != WATCH}
    yield Family(
        "apiserver_request_sli_duration_seconds",
        "histogram",
        "Duration of requests, without watches.",
        _histograms(short, "", SECONDS, lambda counted: counted.seconds),
    )
    yield Family(
        "apiserver_response_sizes",
        "histogram",
        "Size of response bodies in bytes.",
        _histograms(short, "", ANSWER_BYTES, lambda counted: counted.answer_bytes),
    )
    yield Family(
        "apiserver_request_body_size_bytes",
        "histogram",
        "Size of request bodies in bytes.",
        _histograms(series, "few", BODY_BYTES, lambda counted: counted.body_bytes),
    )
    yield Family(
        "apiserver_longrunning_requests",
        "gauge",
        "Open watches.",
        [Sample(_pairs(labels), c.open) for labels, c in series.items() if labels.verb == WATCH],
    )


def access_families(requests: CountedRequests) -> Iterator[Family]:
    yield Family(
        "authentication_attempts",
        "counter",
        "Requests by result of the authentication.",
        [one(count, result=result) for result, count in requests.authentications.items()],
    )
    yield Family(
        "authenticated_user_requests",
        "counter",
        "Authenticated requests by type of user.",
        [one(count, username=sort) for sort, count in requests.users.items()],
    )
    yield Family(
        "authorization_attempts_total",
        "counter",
        "Requests by result of the authorization.",
        [one(count, result=result) for result, count in requests.authorizations.items()],
    )


def process_families(started: float) -> Iterator[Family]:
    """Metrics of this process from the operating system; on others than Linux, a part of them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    yield plain("process_cpu_seconds_total", "counter", "Time on a processor.", cpu)
    yield plain("process_start_time_seconds", "gauge", "When it started.", started, Joining.LEAST)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield plain("process_max_fds", "gauge", "Files it may open.", most)
    try:
        virtual, resident = Path("/proc/self/statm").read_text().split()[:2]
        files = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 -- names are all we want
    except OSError:
        return
    page = resource.getpagesize()
    yield plain("process_resident_memory_bytes", "gauge", "Memory in use.", int(resident) * page)
    yield plain("process_virtual_memory_bytes", "gauge", "Memory reserved.", int(virtual) * page)
    yield plain("process_open_fds", "gauge", "Files it has open.", files)


def process_start(now: datetime) -> float:
    """The start time of this process, in seconds; `now` if unknown."""
    try:
        since_boot = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        ticks = os.sysconf("SC_CLK_TCK")
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return round(now.timestamp() - up + int(since_boot) / ticks, 2)
    except (OSError, AttributeError, ValueError, IndexError):
        return round(now.timestamp(), 2)


def _pairs(labels: Labels, extra: str = "") -> LabelPairs:
    if extra == "few":
        return (("group", labels.group), ("resource", labels.resource), ("verb", labels.verb))
    dry_run = (("dry_run", labels.dry_run),) if extra else ()
    return (
        ("component", labels.component),
        *dry_run,
        ("group", labels.group),
        ("resource", labels.resource),
        ("scope", labels.scope),
        ("subresource", labels.subresource),
        ("verb", labels.verb),
        ("version", labels.version),
    )


def _histograms(
    series: Mapping[Labels, Series],
    extra: str,
    bounds: tuple[float, ...],
    pick: Callable[[Series], Histogram],
) -> list[Sample]:
    """One histogram per set of labels; series that differ in omitted labels are added up."""
    histograms: dict[LabelPairs, Histogram] = {}
    for labels, counted in series.items():
        histogram = pick(counted)
        if not any(histogram.counts):
            continue
        pairs = _pairs(labels, extra)
        if pairs in histograms:
            histograms[pairs].add(histogram)
        else:
            histograms[pairs] = Histogram(bounds, histogram.counts.copy(), histogram.sum)
    return [Sample(labels, histogram) for labels, histogram in histograms.items()]


def one(value: float, **labels: str) -> Sample:
    return Sample(tuple(labels.items()), value)


def plain(name: str, type_: str, help_: str, value: float, joins: Joining = Joining.SUM) -> Family:
    return Family(name, type_, help_, [Sample((), value)], joins)


# --- text -----------------------------------------------------------------------------------------


def page_of(counted: list[list[Family]]) -> bytes:
    """The page with the metrics of one or more processes."""
    return page_text(joined(counted) if len(counted) > 1 else counted[0]).encode()


def page_text(families: Iterable[Family]) -> str:
    return "".join(masked(rendered(family)) for family in families)


def rendered(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n"]
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            lines.extend(_histogram_lines(family.name, labels, value))
        else:
            lines.append(f"{family.name}{_label_text(labels)} {_number(value)}\n")
    return "".join(lines)


def _histogram_lines(name: str, labels: LabelPairs, histogram: Histogram) -> Iterator[str]:
    total, own = 0, _label_list(labels)
    before = f"{name}_bucket{{{own}," if own else f"{name}_bucket{{"
    for bound, count in zip(_upper_ends(histogram.bounds), histogram.counts, strict=True):
        total += count
        yield f'{before}le="{bound}"}} {total}\n'
    yield f"{name}_sum{_label_text(labels)} {_number(histogram.sum)}\n"
    yield f"{name}_count{_label_text(labels)} {total}\n"


@functools.cache
def _upper_ends(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(_number, bounds), "+Inf")


def _label_text(labels: LabelPairs) -> str:
    return f"{{{_label_list(labels)}}}" if labels else ""


def _label_list(labels: LabelPairs) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
