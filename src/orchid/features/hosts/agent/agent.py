"""The agent: rounds of checks that keep the identity of the host and all outputs fresh.

Start with `Agent.check`, one round: join if there is no usable identity, then refresh every item
that is due, then run pending reloads, then report. Nothing that fails here removes a file: the
present files stay until better ones are complete.
"""

import logging
import os
import random
from collections import Counter
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Final

from orchid.features.hosts.agent.calls import (
    ApiFailure,
    ApiUnreachable,
    Clocks,
    IdentityRefused,
    calling,
)
from orchid.features.hosts.agent.configuration import AgentConfiguration, Output
from orchid.features.hosts.agent.generations import OutputRefused
from orchid.features.hosts.agent.held_certificate import CertificateUnfit, UntrustedChain
from orchid.features.hosts.agent.host_identity import HostIdentity, NoIdentity
from orchid.features.hosts.agent.items import HostItem, Item, OutputItem, TooSoon
from orchid.features.hosts.agent.outputs.content import ContentFailed, Round
from orchid.features.hosts.agent.requesting import Denied, Waiting
from orchid.features.hosts.agent.running.schedule import CheckSchedule, RegularChecks
from orchid.features.hosts.agent.running.status import (
    DENIED,
    FAILED,
    FRESH,
    LARGEST_SKEW,
    WAITING,
    AgentStatus,
    ItemStatus,
    write_metrics,
)
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.features.hosts.agent.state_directory import StateDirectory, read_status
from orchid.kernel.base.clock import Clock, utc
from orchid.kernel.base.telemetry import failure_story

log = logging.getLogger(__name__)

ONCE_SECONDS: Final = 15.0  # how long `--once` waits for requests that are approved by a policy


class Agent:
    """One agent with its state directory."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        state: StateDirectory,
        clock: Clock,
        supervisor: Supervisor,
        chance: random.Random,
    ) -> None:
        self._state, self._supervisor = state, supervisor
        self._monotonic, self._chance = clock.monotonic, chance
        self.clocks = Clocks(clock.now)
        before = read_status(state.status_file, AgentStatus)
        self._requests = Counter(before.requests if before else {})
        self._reloads = Counter(before.reloads if before else {})
        self._unreachable_since = before.unreachable_since if before else None
        self._has_warned = False
        self._report_problem = ""
        self._configuration = configuration
        self._regular = RegularChecks(configuration.check_every, clock.monotonic, chance)
        self._checks_everything = False  # in the next round, also after an outage
        self.identity = HostIdentity(
            configuration.join, state, self.clocks, self._requests, supervisor.alive
        )
        self._contact = self._schedule()  # while the server or the identity fails
        self._host = HostItem(self.identity, state, self._schedule())
        self._outputs = [self._item(output) for output in configuration.outputs]

    def _schedule(self) -> CheckSchedule:
        return CheckSchedule(self._regular, self._monotonic, self._chance)

    def _item(self, configured: Output) -> OutputItem:
        return OutputItem(configured, self._state, self.clocks, self._schedule())

    @property
    def _items(self) -> list[Item]:
        return [self._host, *self._outputs]

    def configure(self, configuration: AgentConfiguration) -> None:
        """Use another configuration, and check everything now."""
        before = self._configuration
        if (configuration.state, configuration.join) != (before.state, before.join):
            log.warning("a change of state or join takes effect after a restart")
        self._configuration = configuration
        self._regular.seconds = configuration.check_every
        unchanged = {output.configured: output for output in self._outputs}
        self._outputs = [
            unchanged.get(output) or self._item(output) for output in configuration.outputs
        ]
        for output in self._outputs:
            self._forget_denial(output)
        self._make_everything_due()

    # -- rounds ------------------------------------------------------------------------------

    def check(self) -> None:
        """One round; never raises."""
        due = [item for item in self._items if item.schedule.is_due()]
        if due:
            self._refresh(due)
        for output in self._outputs:
            try:
                output.reload(self._monotonic, self._reloads, self._supervisor.alive)
            except OutputRefused as problem:
                log.error("%s: %s", output.configured.name, problem)
                output.reload_due = output.schedule.due
        self._report()

    def check_once(self) -> float:
        """Make everything due, and check; seconds until `check` should run again, if at all."""
        self._make_everything_due()
        self.check()
        return self.seconds_to_next()

    def _make_everything_due(self) -> None:
        self._checks_everything = True
        for one in self._items:
            one.schedule.now()

    def is_waiting(self) -> bool:
        """Whether a request is undecided, or new files wait for their turn."""
        return any(one.status.state == WAITING for one in self._items)

    def seconds_to_next(self) -> float:
        """Until something is due."""
        times = [one.schedule.due for one in self._items]
        times += [one.reload_due for one in self._outputs if one.reload_due is not None]
        return max(min(times) - self._monotonic(), 0.0)

    def _refresh(self, due: Sequence[Item]) -> None:
        try:
            if not self.identity.is_usable() and self.identity.join_file is not None:
                self.identity.join(self.identity.join_file)
            try:
                self._refresh_as_host(due)
            except IdentityRefused as refused:
                self._join_again(refused)
                self._refresh_as_host(due)
            self._unreachable_since, self._contact = None, self._schedule()
        except Exception as problem:
            if isinstance(problem, ApiUnreachable) and self._unreachable_since is None:
                self._unreachable_since = self.clocks.local()
            self._settle(self._host, problem, self._contact)
            state, message = self._host.status.state, self._host.status.message
            for item in {id(item): item for item in (self._host, *due)}.values():
                item.status.change(state, message, self.clocks.local())
                item.schedule.due = self._contact.due
        self._host.look()

    def _join_again(self, refused: IdentityRefused) -> None:
        """The server refused our certificate: only a join file helps."""
        if self.identity.join_file is None:
            raise NoIdentity(
                f"the server does not accept the certificate of this host ({refused}); "
                f"{self.identity.advice()}"
            ) from None
        self.identity.join(self.identity.join_file)

    def _refresh_as_host(self, due: Sequence[Item]) -> None:
        access, naming = self.identity.access(), self.identity.naming
        alive = self._supervisor.alive
        with calling(access, self.clocks, self._requests, naming, alive) as calls:
            self.identity.finish_join(calls)
            current = Round(calls, self.identity, self._state, self.clocks)
            urgent = self._urgent(due)
            for item in urgent:
                self._supervisor.alive()
                try:
                    life = item.refresh(current)
                except (IdentityRefused, ApiUnreachable):
                    raise
                except Exception as problem:
                    self._settle(item, problem, item.schedule)
                    continue
                item.status.expires, item.status.renews = life
                self._change(item.status, FRESH, "")
                self._wait_for_renewal(item)
            for item in due:
                if item not in urgent:
                    self._change(item.status, FRESH, "")
                    self._wait_for_renewal(item)
            self._checks_everything = False

    def _wait_for_renewal(self, one: Item) -> None:
        renews = one.status.renews
        left = (renews - self.clocks.now()).total_seconds() if renews is not None else None
        one.schedule.fresh(left)

    def _urgent(self, due: Sequence[Item]) -> Sequence[Item]:
        """After an outage, only what has to be renewed: all agents return within five minutes.

        The other items wait for the next regular check. Without an urgent one, the host is checked.
        """
        since = self._unreachable_since
        away = (self.clocks.local() - since).total_seconds() if since is not None else 0.0
        if self._checks_everything or away < self._regular.seconds:
            return due
        now = self.clocks.now()
        urgent = [
            item
            for item in due
            if not item.schedule.is_fresh
            or item.status.needs_renewal(now)
            or self._state.request(item.request) is not None
        ]
        return urgent or due[:1]

    def _settle(self, item: Item, problem: Exception, schedule: CheckSchedule) -> None:
        """Set status and schedule after a problem."""
        if isinstance(problem, CertificateUnfit) and not isinstance(problem, UntrustedChain):
            self._drop_request(item)
        self._show(item, problem)
        _postpone(schedule, problem)

    def _show(self, item: Item, problem: Exception) -> None:
        text = str(problem)
        if isinstance(problem, Waiting | TooSoon):
            self._change(item.status, WAITING, text)
        elif isinstance(problem, Denied):
            self._change(item.status, DENIED, text)
        elif isinstance(problem, _EXPECTED):
            self._change(item.status, FAILED, text)
        else:
            log.error("agent.failed", extra={"story": failure_story(problem)})
            self._change(item.status, FAILED, f"unexpected {type(problem).__name__}; see the log")

    def _forget_denial(self, item: Item) -> None:
        """An operator who sends SIGHUP may have changed the policy."""
        try:
            self._state.forget_denial(item.request)
        except OutputRefused as problem:
            log.error("%s", problem)

    def _drop_request(self, one: Item) -> None:
        try:
            self._state.drop_request(one.request)
        except OutputRefused as problem:
            log.error("%s", problem)

    def _change(self, status: ItemStatus, state: str, message: str) -> None:
        was = status.state, status.since
        if not status.change(state, message, self.clocks.local()):
            return
        if state == FRESH:
            if was != (FRESH, None):
                end = utc(status.expires) if status.expires else "it changes"
                log.info("%s: fresh until %s", status.name, end)
        else:
            level = logging.INFO if state == WAITING else logging.ERROR
            log.log(level, "%s: %s: %s", status.name, state, message)

    # -- reporting ---------------------------------------------------------------------------

    def status(self) -> AgentStatus:
        pause = timedelta(seconds=min(self.seconds_to_next(), 86_400.0))
        return AgentStatus(
            pid=os.getpid(),
            updated=self.clocks.local(),
            next_check=self.clocks.local() + pause,
            host=self.identity.host,
            server=self.identity.server,
            kubeconfig=self._configuration.join.kubeconfig,
            unreachable_since=self._unreachable_since,
            clock_skew_seconds=round(self.clocks.skew),
            identity=copy(self._host.status),
            outputs=[copy(output.status) for output in self._outputs],
            requests=dict(self._requests),
            reloads=dict(self._reloads),
        )

    def exit_code(self) -> int:
        return self.status().exit_code(self.clocks.now())

    def _report(self) -> None:
        status = self.status()
        self._warn_about_clock()
        try:
            self._state.save_status(status)
            if self._configuration.metrics_file:
                write_metrics(Path(self._configuration.metrics_file), status)
            self._report_problem = ""
        except OutputRefused as problem:
            if str(problem) != self._report_problem:
                log.error("%s", problem)
            self._report_problem = str(problem)
        now = self.clocks.now()
        if all(output.status.is_valid(now) for output in self._outputs):
            self._supervisor.ready()
        self._supervisor.status(status.summary(now))
        self._supervisor.alive()

    def _warn_about_clock(self) -> None:
        is_off = abs(self.clocks.skew) >= LARGEST_SKEW
        if is_off and not self._has_warned:
            direction = "behind" if self.clocks.skew > 0 else "ahead of"
            seconds = abs(self.clocks.skew)
            log.warning("the clock of this host is %.0f s %s the server's", seconds, direction)
        self._has_warned = is_off


_EXPECTED: Final = (ApiFailure, CertificateUnfit, ContentFailed, NoIdentity, OutputRefused)


def _postpone(schedule: CheckSchedule, problem: Exception) -> None:
    if isinstance(problem, Waiting):
        schedule.waiting()
    elif isinstance(problem, TooSoon):
        schedule.after(problem.seconds)
    elif isinstance(problem, Denied):
        schedule.denied(problem.seconds)
    elif isinstance(problem, CertificateUnfit) and not isinstance(problem, UntrustedChain):
        schedule.denied()
    else:
        schedule.failed(getattr(problem, "retry_after", 0.0))
