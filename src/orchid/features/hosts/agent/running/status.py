"""The status of an agent: a file for `orchid agent status`, metrics for a collector, exit codes.

    0  all outputs are fresh     1  something failed     3  waiting, usually for approval

The agent has no listener. The metrics are a text file for the textfile collector of node_exporter.
"""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from orchid.features.hosts.agent.generations import OutputRefused

FRESH, WAITING, DENIED, FAILED = "fresh", "waiting", "denied", "failed"
STATES: Final = (FRESH, WAITING, DENIED, FAILED)
ALL_FRESH, FAILURE, UNDECIDED = 0, 1, 3
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LARGEST_SKEW: Final = 60.0  # seconds until a difference of the clocks is reported

Moment = datetime.datetime


class ItemStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An output, or the identity of the host."""

    name: str
    state: str = FAILED
    since: Moment | None = None  # of this state
    message: str = ""
    directory: str = ""
    expires: Moment | None = None
    renews: Moment | None = None
    exists: bool = False
    reload: str = ""  # why a reload is pending

    def change(self, state: str, message: str, now: Moment) -> bool:
        """Enter a state; False if it was the same already."""
        if (self.state, self.message) == (state, message) and self.since is not None:
            return False
        if self.state != state or self.since is None:
            self.since = now
        self.state, self.message = state, message
        return True

    def is_valid(self, now: Moment) -> bool:
        """Whether the files exist and have not expired, whatever the last check said."""
        return self.exists and (self.expires is None or self.expires > now)

    def needs_renewal(self, now: Moment) -> bool:
        """Whether there is something to do before the next regular check."""
        return not self.is_valid(now) or (self.renews is not None and self.renews <= now)

    def shown_state(self, now: Moment) -> str:
        """The state for people: files that have expired meanwhile are not fresh."""
        if self.exists and not self.is_valid(now):
            return "expired"
        return self.state if self.exists or self.state != FRESH else "missing"


class AgentStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that an agent reports."""

    pid: int
    updated: Moment
    next_check: Moment | None = None
    host: str = ""
    server: str = ""
    kubeconfig: str = ""  # `join.kubeconfig`: the identity is that of the file
    unreachable_since: Moment | None = None
    clock_skew_seconds: float = 0.0
    identity: ItemStatus = msgspec.field(default_factory=lambda: ItemStatus(name="host"))
    outputs: list[ItemStatus] = msgspec.field(default_factory=list)
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    reloads: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The host, or the file with another identity."""
        return self.host or self.kubeconfig or "not joined"

    def exit_code(self, now: Moment) -> int:
        items = [self.identity, *self.outputs]
        states = {item.shown_state(now) for item in items}
        if states <= {FRESH} and not any(item.reload for item in items):
            return ALL_FRESH
        return UNDECIDED if states <= {FRESH, WAITING} and WAITING in states else FAILURE

    def summary(self, now: Moment) -> str:
        """One line, for systemd."""
        total = len(self.outputs)
        fresh = sum(item.shown_state(now) == FRESH and not item.reload for item in self.outputs)
        troubles = [
            f"{item.name}: {item.message or item.reload or item.shown_state(now)}"
            for item in (self.identity, *self.outputs)
            if item.shown_state(now) != FRESH or item.reload
        ]
        text = f"{self.name}: {fresh} of {total} outputs fresh"
        return f"{text}; {'; '.join(troubles)}"[:500] if troubles else text


def metrics_text(status: AgentStatus) -> bytes:
    """The metrics, in the text format of Prometheus."""
    return "".join(f"{line}\n" for line in _metrics(status)).encode()


def _metrics(status: AgentStatus) -> Iterator[str]:
    items = [status.identity, *status.outputs]
    for word, text in (("expires", "expires"), ("renews", "is renewed")):
        name = f"orchid_agent_output_{word}_timestamp_seconds"
        yield from _head(name, "gauge", f"When the credential of an output {text}.")
        for item in items:
            moment = getattr(item, word)
            if moment is not None:
                yield f'{name}{{output="{item.name}"}} {moment.timestamp():.0f}'
    name = "orchid_agent_output_state"
    yield from _head(name, "gauge", "1 for the state of an output.")
    for item in items:
        for state in STATES:
            yield f'{name}{{output="{item.name}",state="{state}"}} {int(item.state == state)}'
    name = "orchid_agent_clock_skew_seconds"
    yield from _head(name, "gauge", "How far the clock of the server is ahead.")
    yield f"{name} {status.clock_skew_seconds:.0f}"
    if status.unreachable_since is not None:
        name = "orchid_agent_unreachable_since_timestamp_seconds"
        yield from _head(name, "gauge", "Since when the server has not answered; absent if it has.")
        yield f"{name} {status.unreachable_since.timestamp():.0f}"
    name = "orchid_agent_requests_total"
    yield from _head(name, "counter", "Requests by status; none: no response.")
    yield from (f'{name}{{code="{code}"}} {n}' for code, n in sorted(status.requests.items()))
    name = "orchid_agent_reloads_total"
    yield from _head(name, "counter", "Reloads of services by result.")
    yield from (f'{name}{{result="{word}"}} {n}' for word, n in sorted(status.reloads.items()))


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def write_metrics(path: Path, status: AgentStatus) -> None:
    """Replace the file of metrics; readable by all, it has no secrets."""
    # Its directory may belong to the collector: never open a file or follow a link that is there.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(temporary, _NEW_FILE, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(metrics_text(status))
                os.fchmod(descriptor, 0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputRefused(f"cannot write {path}: {error.strerror}") from None
