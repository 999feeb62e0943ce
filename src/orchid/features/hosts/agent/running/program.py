"""The program `orchid agent`: the loop around `Agent`, its signals, and `--once`.

One thread and no event loop. SIGTERM and SIGINT end the loop after the current call; SIGHUP reads
the configuration again and checks everything; an invalid one leaves the old one in use.
"""

import gc
import logging
import os
import random
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchid.features.hosts.agent.agent import ONCE_SECONDS, Agent
from orchid.features.hosts.agent.configuration import InvalidAgentConfiguration, read_configuration
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.features.hosts.agent.state_directory import opened
from orchid.kernel.base.clock import SystemClock

log = logging.getLogger(__name__)

WATCHDOG_SECONDS: Final = 30.0  # the unit has WatchdogSec=90
PUBLIC: Final = 0o022  # directories of outputs are for others; secret files have their own mode
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def run_once(path: Path) -> int:
    """Check everything once; raises InvalidAgentConfiguration or StateUnusable."""
    os.umask(PUBLIC)
    configuration = read_configuration(path)
    clock = SystemClock()
    with opened(Path(configuration.state)) as state, _signals() as signals:
        agent = Agent(configuration, state, clock, Supervisor({}), random.SystemRandom())
        deadline = clock.monotonic() + ONCE_SECONDS
        pause = agent.check_once()
        while agent.is_waiting() and clock.monotonic() + pause < deadline:
            signals.wait(pause)
            if signals.is_stopped:
                break
            agent.check()
            pause = agent.seconds_to_next()
        return agent.exit_code()


def run(path: Path) -> int:
    """Check until a signal ends it; raises InvalidAgentConfiguration or StateUnusable."""
    os.umask(PUBLIC)
    configuration = read_configuration(path)
    clock = SystemClock()
    supervisor = Supervisor(os.environ)
    with opened(Path(configuration.state)) as state, _signals() as signals:
        agent = Agent(configuration, state, clock, supervisor, random.SystemRandom())
        gc.collect()
        gc.freeze()
        log.info("agent started with %d outputs", len(configuration.outputs))
        while not signals.is_stopped:
            agent.check()
            due = clock.monotonic() + agent.seconds_to_next()
            while not signals.has_any and (left := due - clock.monotonic()) > 0:
                signals.wait(min(left, WATCHDOG_SECONDS))
                supervisor.alive()
            if signals.take_reload():
                _configure(agent, path)
        supervisor.stopping()
        log.info("agent stopped")
    return 0


def _configure(agent: Agent, path: Path) -> None:
    try:
        agent.configure(read_configuration(path))
    except InvalidAgentConfiguration as problem:
        log.error("the configuration stays as it was: %s", problem)
    else:
        log.info("configuration read again")


class Signals:
    """Signals as flags, and a pause that they end."""

    def __init__(self, reading: int) -> None:
        self.is_stopped = False
        self._is_reload_wanted = False
        self._reading = reading

    @property
    def has_any(self) -> bool:
        return self.is_stopped or self._is_reload_wanted

    def receive(self, number: int, _: object) -> None:
        if number in _STOPPING:
            self.is_stopped = True
        else:
            self._is_reload_wanted = True

    def take_reload(self) -> bool:
        wanted, self._is_reload_wanted = self._is_reload_wanted, False
        return wanted

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives or the time is over."""
        if select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)


@contextmanager
def _signals() -> Iterator[Signals]:
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signals = Signals(reading)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, signals.receive) for number in (*_STOPPING, signal.SIGHUP)
    }
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(reading)
        os.close(writing)
