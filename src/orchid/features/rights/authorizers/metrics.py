"""Metrics of authorization, under the names that Kubernetes dashboards use.

`AuthorizationMetrics` exists once per server and survives reloads of the configuration. Authorizer
names come from the configuration, never from a client.
"""

import hashlib
from datetime import datetime
from typing import Final

from orchid.kernel.base.metrics import Counter, Durations, Family, Gauge, Joining, Metric, Sample

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CONDITION_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_OF_AUTHORIZER: Final = ("type", "name")
_OF_WEBHOOK: Final = ("name", "result")


class Tally:
    """The decisions of one authorizer: plain numbers, since every request adds to one."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = self.denied = 0


class Decisions:
    """Counts of the decisions of each authorizer."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def of(self, type_: str, name: str) -> Tally:
        return self._tallies.setdefault((type_, name), Tally())

    def family(self) -> Family:
        samples = [
            Sample((("type", type_), ("name", name), ("decision", decision)), count)
            for (type_, name), tally in self._tallies.items()
            for decision, count in (("allowed", tally.allowed), ("denied", tally.denied))
            if count
        ]
        text = "Requests by deciding authorizer and decision."
        return Family("apiserver_authorization_decisions_total", "counter", text, samples)

    def reset(self) -> None:
        for tally in self._tallies.values():
            tally.allowed = tally.denied = 0


class AuthorizationMetrics:
    def __init__(self, server: str = "") -> None:
        """`server` identifies this server; only its hash is shown."""
        self._server = hashed(server.encode())
        name = "apiserver_authorization_"
        self.decisions = Decisions()
        self._calls = Counter(
            f"{name}webhook_evaluations_total", "Calls to webhooks, by result.", *_OF_WEBHOOK
        )
        self._call_seconds = Durations(
            f"{name}webhook_duration_seconds", "Duration of webhook calls.", _SECONDS, *_OF_WEBHOOK
        )
        self.failed_open = Counter(
            f"{name}webhook_evaluations_fail_open_total",
            "Failed webhook calls that were ignored.",
            *_OF_WEBHOOK,
        )
        self.condition_errors = Counter(
            f"{name}match_condition_evaluation_errors_total",
            "Requests for which a condition of a webhook failed.",
            *_OF_AUTHORIZER,
        )
        self.exclusions = Counter(
            f"{name}match_condition_exclusions_total",
            "Requests excluded by the conditions of a webhook.",
            *_OF_AUTHORIZER,
        )
        self.condition_seconds = Durations(
            f"{name}match_condition_evaluation_seconds",
            "Duration of evaluating the conditions of a webhook.",
            _CONDITION_SECONDS,
            *_OF_AUTHORIZER,
        )
        self.reloads = Reloads(self._server)
        self.all: tuple[Metric, ...] = (
            self.decisions,
            self._calls,
            self._call_seconds,
            self.failed_open,
            self.condition_errors,
            self.exclusions,
            self.condition_seconds,
            *self.reloads.all,
        )

    def called(self, name: str, result: str, seconds: float) -> None:
        """Count a webhook call: success, error, timeout or canceled."""
        self._calls.count(name, result)
        self._call_seconds.observe(seconds, name, result)


class Reloads:
    """Reloads of the configuration file since the start."""

    def __init__(self, server: str) -> None:
        self._server = server
        name, labels = "apiserver_authorization_config_controller_", ("status", "apiserver_id_hash")
        self._count = Counter(f"{name}automatic_reloads_total", "Reloads of the file.", *labels)
        self._last = Gauge(
            f"{name}automatic_reload_last_timestamp_seconds",
            "Time of the last reload.",
            *labels,
            joins=Joining.MOST,
        )
        self._in_use = Gauge(
            f"{name}last_config_info",
            "Hash of the file in use.",
            "apiserver_id_hash",
            "hash",
            joins=Joining.MOST,
        )
        self.all = (self._count, self._last, self._in_use)

    def failed(self, now: datetime) -> None:
        self._report("failure", now)

    def succeeded(self, now: datetime, file: bytes) -> None:
        self._report("success", now)
        self.in_use(file)

    def in_use(self, file: bytes) -> None:
        self._in_use.clear()
        self._in_use.set(1, self._server, hashed(file))

    def _report(self, status: str, now: datetime) -> None:
        self._count.count(status, self._server)
        self._last.set(now.timestamp(), status, self._server)


def hashed(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if data else ""
