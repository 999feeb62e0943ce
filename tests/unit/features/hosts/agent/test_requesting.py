"""Requests of the agent that were denied: the next one has its hour, whatever the clocks do."""

import datetime
from collections import Counter
from pathlib import Path

import pytest

from orchid.features.hosts.agent.calls import CLOCK_ERROR, Clocks, ServerCalls
from orchid.features.hosts.agent.requesting import Denied, WantedCertificate, obtain
from orchid.features.hosts.agent.running.schedule import AFTER_DENIAL
from orchid.features.hosts.agent.state_directory import SavedRequest, StateDirectory
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.api_connection import Json, find_naming
from orchid.kernel.outbound.kubeconfig import ServerAccess
from tests.unit.features.hosts.agent.pretend_server import HOST, SIGNER

DENIED = datetime.datetime(2026, 11, 18, 12, 0, 0, 900_000, tzinfo=datetime.UTC)
WANTED = WantedCertificate(item="web", host=HOST, signer=SIGNER, key_type="ECDSA-P256")


class Sent(Exception):
    """The agent has called its server."""


class NoCalls(ServerCalls):
    """Counts as a new request whatever is sent."""

    def __init__(self, now: datetime.datetime) -> None:
        access = ServerAccess(server="https://127.0.0.1:1", user=HOST, given_token=SecretValue("t"))
        naming = find_naming(["authentication.orch.io"])
        super().__init__(access, Clocks(lambda: now), Counter(), naming)

    def find(self, url: str) -> None:
        raise Sent

    def create(self, url: str, body: Json) -> None:
        raise Sent


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    (tmp_path / "requests").mkdir()
    return StateDirectory(tmp_path)


def denied(state: StateDirectory, wanted: WantedCertificate = WANTED) -> None:
    request = SavedRequest(name="agent-1", key="", purpose=wanted.purpose)
    state.deny_request("web", request, DENIED, "no such name here")


@pytest.mark.parametrize(
    ("passed", "left"),
    [
        (-CLOCK_ERROR, AFTER_DENIAL),
        (-0.9, AFTER_DENIAL),
        (0.0, AFTER_DENIAL),
        (600.0, AFTER_DENIAL - 600),
        (AFTER_DENIAL - 1, 1.0),
    ],
)
def test_a_denial_lasts_an_hour(state: StateDirectory, passed: float, left: float) -> None:
    """Also if the time goes back a little: that of the server is known in whole seconds."""
    denied(state)

    with pytest.raises(Denied, match="no such name here") as found:
        obtain(NoCalls(DENIED + datetime.timedelta(seconds=passed)), state, WANTED)

    assert found.value.seconds == left


@pytest.mark.parametrize("passed", [AFTER_DENIAL, 10 * AFTER_DENIAL, -CLOCK_ERROR - 1])
def test_a_denial_ends(state: StateDirectory, passed: float) -> None:
    """Also one of the future: a wrong clock must not block requests for years."""
    denied(state)

    with pytest.raises(Sent):
        obtain(NoCalls(DENIED + datetime.timedelta(seconds=passed)), state, WANTED)


def test_a_denial_of_another_request_is_none(state: StateDirectory) -> None:
    """The configuration has changed since."""
    denied(state, WANTED._replace(signer="example.com/other"))

    with pytest.raises(Sent):
        obtain(NoCalls(DENIED), state, WANTED)


@pytest.mark.parametrize("key", ["", "-----BEGIN PRIVATE KEY-----"])
def test_a_damaged_request_is_none(state: StateDirectory, key: str) -> None:
    """A new key, and a new request."""
    state.save_request("web", SavedRequest(name="agent-1", key=key, purpose=WANTED.purpose))

    with pytest.raises(Sent):
        obtain(NoCalls(DENIED), state, WANTED)

    found = state.request("web")
    assert found is not None
    assert found.name != "agent-1"
