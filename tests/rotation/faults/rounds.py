"""Rounds of a rotation: a server dies after a write, is started again, and the rotation goes on.

`Rounds.run` has every server die after a few writes of the rotation (killed_server.py), again and
again, while clients use the keys. From time to time another fault strikes: a server that is stopped
for longer than its Lease lasts, clocks that are a minute apart, a member of etcd that is gone, and
what a subject has of its own. A `Subject` is one sort of key: what its rotation writes, how clients
use it, and what must hold at every moment and at the end.
"""

import asyncio
import functools
import os
import random
import signal
import sys
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from orchid.kernel.store.interface import Store
from tests.conformance.exchanges import tokens_by_user
from tests.e2e.https import Https, Reply
from tests.e2e.serving import ServerFailed
from tests.faults.systems import Machine, ServerOnSQLite, ServersOnEtcd, complaints_in
from tests.rotation.faults.killed_server import launcher

ADMIN = tokens_by_user()["admin"]
ALL = "*"  # controllers
OTHER_FAULT = 25  # rounds between two faults of another sort
STOPPED_SECONDS = 40.0  # longer than a Lease lasts
CLOCK_SECONDS = 60
MINORITY_SECONDS = 8.0
STUCK_SECONDS = 300.0  # without a write of the rotation
SETTLED_SECONDS = 300.0  # a wait of two minutes is part of it
ANSWER_SECONDS = 15.0
POLL = 0.05
UNAVAILABLE = (429, 503, 504)  # a store without a majority, or a server that stops

System = ServerOnSQLite | ServersOnEtcd


class Lost(Exception):
    """A server gave no answer, or could not reach its store."""


@dataclass
class Report:
    """How a run went."""

    subject: str
    store: str
    seed: int
    rounds: int = 0
    steps: Counter[str] = field(default_factory=Counter)  # after which write a server died
    faults: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)  # by the clients
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.done.items()))
        return "\n".join(
            (
                f"{self.subject} on {self.store}, seed {self.seed}: {self.rounds} rounds in "
                f"{self.seconds:.0f} s, {len(self.violations)} violations",
                f"  clients: {done or 'nothing'}",
                *(f"  killed {count:3} times after: {what}" for what, count in self.ordered),
                *(f"  {count} times: {what}" for what, count in sorted(self.faults.items())),
                *(f"  VIOLATION {text[:600]}" for text in self.violations[:20]),
            )
        )

    @property
    def ordered(self) -> list[tuple[str, int]]:
        return sorted(self.steps.items())


class Subject:
    """One sort of key, and its clients."""

    name: str
    flags: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # of keys in the store; those of each start are chosen of these
    most_writes = 5  # of the rotation until a server dies
    clients = 2
    pause = 0.02  # seconds between two pieces of work of a client

    def __init__(self, report: Report, rng: random.Random) -> None:
        self.report = report
        self.rng = rng
        self.lock = threading.Lock()
        self.system: System
        self.faults: dict[str, Callable[[], None]] = {}

    @abstractmethod
    def begin(self) -> None:
        """Make what the clients need; no server dies meanwhile."""

    @abstractmethod
    def work(self, turn: int) -> None:
        """One piece of work of a client; raises Lost."""

    def drive(self) -> None:
        """Push the rotation on, where the server does not do it by itself; raises Lost."""

    @abstractmethod
    def unsettled(self) -> str:
        """Why the rotation is not complete; empty if it is. Raises Lost."""

    @abstractmethod
    def judge(self) -> None:
        """Check everything, with all servers running; raises Lost."""

    async def judge_store(self, store: Store) -> None:
        """Check what the stopped servers have left."""

    def prepare(self, machine: Machine) -> None:
        """Change a machine before its first start."""

    # -- for subjects ------------------------------------------------------------------------

    def violate(self, text: str) -> None:
        with self.lock:
            self.report.violations.append(text)

    def count(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.report.done[what] += number

    def send(
        self, turn: int, method: str, target: str, body: object = None, expected: Sequence[int] = ()
    ) -> Reply:
        """An answer of any server; an unexpected status is a violation. Raises Lost."""
        machine = self.system.machines[turn % len(self.system.machines)]
        try:
            with Https(machine.port, seconds=ANSWER_SECONDS) as https:
                reply = https.send(method, target, body, token=ADMIN)
        except (OSError, HTTPException) as problem:
            raise Lost(repr(problem)) from None
        if reply.status in UNAVAILABLE and b"no token key" not in reply.body:
            raise Lost(reply.body.decode(errors="replace"))
        if expected and reply.status not in expected:
            text = f"{method} {target}: {reply.status} {reply.body[:300]!r}"
            self.violate(text)
            raise Lost(text)
        return reply


class Rounds:
    """One subject on one store."""

    def __init__(self, system: System, subject: Subject, report: Report) -> None:
        self._system = system
        self._subject = subject
        self._report = report
        self._rng = subject.rng
        self._reports = system.directory / "killed-after"
        self._reports.touch()
        self._seen = 0  # lines of that file
        self._armed = True
        self._stop = threading.Event()
        subject.system = system
        self._faults: dict[str, Callable[[], None]] = {
            "a server stopped for 40 s": self._stop_server,
            "clocks a minute apart": self._set_clocks,
            **subject.faults,
        }
        if isinstance(system, ServersOnEtcd):
            self._faults["a member of etcd gone"] = self._lose_member
        if system.missing.get("clock jump"):
            del self._faults["clocks a minute apart"]

    def run(self, rounds: int) -> Report:
        begun = time.monotonic()
        for machine in self._system.machines:
            self._subject.prepare(machine)
        self._start_first()
        self._subject.begin()
        self._start_again(armed=True)
        clients = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(self._subject.clients)
        ]
        clients.append(threading.Thread(target=self._drive, daemon=True))
        for thread in clients:
            thread.start()
        try:
            self._rounds(rounds)
            self._settle()
        finally:
            self._stop.set()
            for thread in clients:
                thread.join(60)
        self._judge()
        self._report.seconds = time.monotonic() - begun
        return self._report

    # -- clients -----------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        turn = number
        while not self._stop.wait(self._subject.pause):
            turn += 1
            self._attempt(functools.partial(self._subject.work, turn))

    def _drive(self) -> None:
        while not self._stop.wait(0.2):
            self._attempt(self._subject.drive)

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Lost:
            self._stop.wait(0.1)
        except Exception as problem:  # a client that ends unseen proves nothing
            self._subject.violate(f"a client failed: {problem!r}")
            self._stop.wait(1)

    # -- servers -----------------------------------------------------------------------------

    def _start_first(self) -> None:
        """As systems.py starts them; no fuse goes off while the subject begins."""
        self._armed = False
        if isinstance(self._system, ServersOnEtcd):
            self._system.cluster.start()
            asyncio.run(self._system.cluster.wait_healthy())
        first, *others = self._system.machines
        self._start(first)
        for other in others:
            ServersOnEtcd.copy_data(first, other)
            self._start(other)

    def _start_again(self, *, armed: bool) -> None:
        self._armed = armed
        for machine in self._system.machines:
            machine.kill()
            self._count_death()
            self._start(machine)

    def _start(self, machine: Machine) -> None:
        """Start a server until it is ready; it may die on the way."""
        for attempt in range(10):
            after = self._rng.randint(1, self._subject.most_writes) + attempt
            pattern = self._rng.choice(self._subject.patterns)
            before = launcher(after, pattern, self._reports) if self._armed else ()
            try:
                machine.start(ALL, before)
            except ServerFailed as failure:
                if machine.running.process.returncode == -signal.SIGKILL:
                    self._count_death()
                    continue
                self._subject.violate(f"a server did not start: {failure}")
                raise
            return
        raise AssertionError("a server never starts")

    def _count_death(self) -> None:
        lines = self._reports.read_text().splitlines()
        for line in lines[self._seen :]:
            self._report.steps[line] += 1
            self._report.rounds += 1
        self._seen = len(lines)

    # -- rounds ------------------------------------------------------------------------------

    def _rounds(self, rounds: int) -> None:
        last, struck = time.monotonic(), 0
        while self._report.rounds < rounds:
            time.sleep(POLL)
            before = self._report.rounds
            self._revive()
            if self._report.rounds > before:
                last = time.monotonic()
            elif time.monotonic() - last > STUCK_SECONDS:
                self._subject.violate(f"no write for {STUCK_SECONDS:.0f} s: {self._why()}")
                return
            if self._report.rounds // OTHER_FAULT > struck:
                struck = self._report.rounds // OTHER_FAULT
                name = self._rng.choice(sorted(self._faults))
                self._faults[name]()
                self._report.faults[name] += 1
                last = time.monotonic()
                found = f"{self._report.rounds} rounds, {len(self._report.violations)} violations"
                sys.stderr.write(
                    f"  {self._report.subject}, {self._report.store}: {found}, {name}\n"
                )

    def _revive(self) -> None:
        for machine in self._system.machines:
            code = machine.running.process.poll()
            if code is not None:
                if code != -signal.SIGKILL:
                    self._subject.violate(machine.running.with_log(f"ended with code {code}"))
                machine.kill()  # and what it started
                self._count_death()
                self._start(machine)

    def _stop_server(self) -> None:
        machine = self._rng.choice(self._system.machines)
        pid = machine.running.pid
        if machine.running.process.poll() is not None:
            return
        os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + STOPPED_SECONDS
        try:
            while time.monotonic() < end:
                time.sleep(POLL)
                for other in self._system.machines:
                    if other is not machine and other.running.process.poll() is not None:
                        self._revive_one(other)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _revive_one(self, machine: Machine) -> None:
        machine.kill()
        self._count_death()
        self._start(machine)

    def _set_clocks(self) -> None:
        """Two servers are a minute apart; one alone jumps."""
        machine = self._rng.choice(self._system.machines)
        for one in self._system.machines:
            one.clock.set(0)
        machine.clock.set(self._rng.choice((-CLOCK_SECONDS, CLOCK_SECONDS)))

    def _lose_member(self) -> None:
        assert isinstance(self._system, ServersOnEtcd)
        member = self._rng.choice(self._system.cluster.members)
        member.kill()
        end = time.monotonic() + MINORITY_SECONDS
        while time.monotonic() < end:
            time.sleep(POLL)
            self._revive()
        member.start()
        asyncio.run(self._system.cluster.wait_healthy())

    # -- the end -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """No more faults: the rotation completes without intervention."""
        for machine in self._system.machines:
            machine.clock.set(0)
        self._start_again(armed=False)
        end = time.monotonic() + SETTLED_SECONDS
        while why := self._why():
            if time.monotonic() > end:
                self._subject.violate(f"not complete after {SETTLED_SECONDS:.0f} s: {why}")
                return
            time.sleep(0.5)

    def _why(self) -> str:
        try:
            return self._subject.unsettled()
        except Lost as problem:
            return f"no answer: {problem}"

    def _judge(self) -> None:
        try:
            self._subject.judge()
        except Lost as problem:
            self._subject.violate(f"no answer at the end: {problem}")
        for machine in self._system.machines:
            for text in complaints_in(machine.running.log_text()):
                self._subject.violate(text)
            machine.stop()
        asyncio.run(self._judge_store())

    async def _judge_store(self) -> None:
        store = await self._system.open_store()
        try:
            await self._subject.judge_store(store)
        finally:
            await store.close()


def keep_logs(system: System, place: Path) -> None:
    """Copy the logs of all servers."""
    place.mkdir(parents=True, exist_ok=True)
    for number, machine in enumerate(system.machines):
        (place / f"server-{number}.log").write_text(machine.running.log_text())
