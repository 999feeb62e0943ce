"""A thousand agents and one server, in simulated time: when do their requests arrive?

The agents are real: their rounds, schedules, retries and what they share in a round. Simulated are
the clock, the server and the contents of the items, which send the requests that a real agent
sends (test_agent.py counts those of a real one).
"""

import contextlib
import datetime
import heapq
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.hosts.agent import agent as agent_module
from orchid.features.hosts.agent.agent import Agent
from orchid.features.hosts.agent.calls import ApiUnreachable
from orchid.features.hosts.agent.configuration import (
    AgentConfiguration,
    Bundle,
    Join,
    Kubeconfig,
    Output,
)
from orchid.features.hosts.agent.configuration import Certificate as WantedCertificate
from orchid.features.hosts.agent.outputs import content
from orchid.features.hosts.agent.outputs.content import Life, Round
from orchid.features.hosts.agent.requesting import Waiting
from orchid.features.hosts.agent.running.schedule import CheckSchedule
from orchid.features.hosts.agent.running.status import FRESH, ItemStatus
from orchid.features.hosts.agent.running.supervision import Supervisor

AGENTS = 1000
JOINING = 20.0  # seconds in which all agents start
HOUR = 3600.0
LIFE = datetime.timedelta(hours=1)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SIGNER, SERVERS = "example.com/servers", "orch.io/own-servers"
OUTPUTS = (
    Output(
        name="web",
        directory="/web",
        certificate=WantedCertificate(signer=SIGNER, dns_names=("web.example.com",)),
    ),
    Output(name="anchors", directory="/anchors", bundle=Bundle(signer=SIGNER)),
    Output(name="server", directory="/server", bundle=Bundle(signer=SERVERS)),
    Output(name="own", directory="/own", kubeconfig=Kubeconfig()),
)


class World:
    """The clock, the server, and the requests that arrive in each second."""

    def __init__(self) -> None:
        self.passed = 1.0
        self.is_away = False
        self.requests: Counter[int] = Counter()
        self.chance = random.Random(7)
        self.agents: list[tuple[float, int, Agent]] = []

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    def ask(self, *_: Any) -> bytes:
        """One request to the server."""
        if self.is_away:
            raise ApiUnreachable("cannot reach the server")
        self.requests[int(self.passed)] += 1
        return b"an answer"

    def start(self) -> None:
        configuration = AgentConfiguration(
            api_version="identity.orch.io/v1alpha1",
            kind="AgentConfiguration",
            join=Join(file="/join"),
            outputs=OUTPUTS,
        )
        for number in range(AGENTS):
            state: Any = SimulatedState()
            made = Agent(configuration, state, self, Supervisor({}), self.chance)
            at = self.passed + JOINING * number / AGENTS
            heapq.heappush(self.agents, (at, number, made))

    def run(self, seconds: float) -> None:
        """Let all agents check when they are due."""
        end = self.passed + seconds
        while self.agents[0][0] < end:
            self.passed, number, one = heapq.heappop(self.agents)
            one.check()
            due = self.passed + max(one.seconds_to_next(), 0.001)
            heapq.heappush(self.agents, (due, number, one))
        self.passed = end


class SimulatedState:
    """A state directory that is never written."""

    status_file = Path("/does/not/exist")

    def __init__(self) -> None:
        self.pending: set[str] = set()

    def request(self, name: str) -> str | None:
        return name if name in self.pending else None

    def save_status(self, status: Any) -> None:
        """Nothing reads it."""


class SimulatedItem:
    """An item; a certificate is requested in one round and signed before the next one."""

    def __init__(self, name: str, state: SimulatedState, world: World, schedule: Any) -> None:
        self.configured = SimpleNamespace(name=name)
        self.request = name
        self.schedule: CheckSchedule = schedule
        self.status = ItemStatus(name=name)
        self.reload_due = None
        self._state, self._world = state, world

    def look(self) -> None:
        """Its files are the status itself."""

    def reload(self, *_: Any) -> None:
        """It has no reloads."""

    def refresh(self, current: Round) -> Life:
        life = {"_host": self._host, "web": self._certificate}.get(self.request, self._other)
        found = life(current)
        self.status.exists = True
        return found

    def _host(self, current: Round) -> Life:
        self._world.ask()  # renewal information
        current.anchors(SERVERS)
        return Life(START + 720 * LIFE, START + 450 * LIFE)

    def _other(self, current: Round) -> Life:
        if self.request != "own":
            current.bundle(SIGNER if self.request == "anchors" else SERVERS)
        return Life()

    def _certificate(self, current: Round) -> Life:
        now, status = self._world.now(), self.status
        if self.request in self._state.pending:
            self._world.ask()  # the request, which is signed by now
            self._state.pending.remove(self.request)
            current.bundle(SIGNER)
            return Life(now + LIFE, now + LIFE * self._world.chance.uniform(0.6, 0.7))
        if status.expires and status.renews and status.expires > now:
            self._world.ask()  # renewal information
            if status.renews > now:
                current.bundle(SIGNER)
                return Life(status.expires, status.renews)
        if status.expires is None:
            current.bundle(SIGNER)
        self._world.ask()  # a new request
        self._state.pending.add(self.request)
        raise Waiting("waits for approval")


class SimulatedIdentity:
    """A host that has joined."""

    join_file = naming = None
    host = server = "simulated"

    def is_usable(self) -> bool:
        return True

    def access(self) -> None:
        """Nothing connects with it."""

    def finish_join(self, calls: Any) -> None:
        """Its Node exists."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    @contextlib.contextmanager
    def calling(*_: Any) -> Iterator[None]:
        yield None

    def host(identity: Any, state: Any, schedule: Any) -> SimulatedItem:
        return SimulatedItem("_host", state, made, schedule)

    def output(configured: Any, state: Any, clocks: Any, schedule: Any) -> SimulatedItem:
        return SimulatedItem(configured.name, state, made, schedule)

    monkeypatch.setattr(agent_module, "calling", calling)
    monkeypatch.setattr(agent_module, "HostIdentity", lambda *_: SimulatedIdentity())
    monkeypatch.setattr(agent_module, "HostItem", host)
    monkeypatch.setattr(agent_module, "OutputItem", output)
    monkeypatch.setattr(content, "bundle_of", made.ask)
    made.start()
    return made


def test_no_minute_has_more_than_twice_the_mean_of_requests(world: World) -> None:
    """Certificates of one hour, all issued in the same 20 seconds, and renewed three times.

    1,000 agents with four outputs send 13 requests a second, and some more for the renewals.
    """
    world.run(2 * HOUR)

    minutes: Counter[int] = Counter()
    for second, count in world.requests.items():
        minutes[second // 60] += count
    after_join = [minutes[minute] for minute in range(1, 120)]
    mean = sum(after_join) / len(after_join)
    assert max(after_join) < 2 * mean
    assert 13 < mean / 60 < 16


def test_no_second_after_an_outage_has_more_than_50_requests(world: World) -> None:
    """After an hour without the server, every certificate has expired; minutes later none has."""
    world.run(HOUR)
    world.is_away = True
    world.run(HOUR)
    world.is_away = False
    back = int(world.passed)
    world.run(302.0)  # the longest pause, and the poll for the new certificate
    outputs = [output for _, _, agent in world.agents for output in agent.status().outputs]
    world.run(300.0)

    assert all(output.state == FRESH and output.is_valid(world.now()) for output in outputs)
    assert max(world.requests[second] for second in range(back, back + 600)) <= 50
