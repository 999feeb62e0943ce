"""An agent and its server: joining, renewal, waiting, and every fault that a host meets.

The rule in all of them: present files stay until better ones are complete.
"""

import base64
import datetime
import errno
import json
import logging
import os
import random
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from orchid.features.hosts.agent.agent import Agent
from orchid.features.hosts.agent.configuration import AgentConfiguration, parse
from orchid.features.hosts.agent.outputs.token import token_life
from orchid.features.hosts.agent.running import schedule
from orchid.features.hosts.agent.running.status import AgentStatus
from orchid.features.hosts.agent.running.supervision import Supervisor
from orchid.features.hosts.agent.state_directory import StateUnusable, opened
from tests.unit.features.hosts.agent.pretend_server import (
    HOST,
    SIGNER,
    Authority,
    PretendServer,
    pod,
    serving,
)

CERTIFICATE = {"signer": SIGNER, "dnsNames": [HOST]}
FILES = ("tls.crt", "tls.key", "tls.pem", "ca.crt")


class SteppedClock:
    """The time of the machine, shifted; the monotonic clock moves when a test says so."""

    def __init__(self) -> None:
        self.offset = 0.0
        self.passed = 1000.0

    def now(self) -> datetime.datetime:
        shift = datetime.timedelta(seconds=self.offset)
        return datetime.datetime.now(datetime.UTC) + shift

    def monotonic(self) -> float:
        return self.passed


class Host:
    """A machine with an agent."""

    def __init__(self, place: Path, server: PretendServer) -> None:
        self.place, self.server = place, server
        self.clock = SteppedClock()
        self.join = place / "join.kubeconfig"
        self.state = place / "state"
        self.web = place / "web"
        self.outputs: list[dict[str, Any]] = [
            {"name": "web", "directory": str(self.web), "certificate": CERTIFICATE}
        ]
        self.settings: dict[str, Any] = {"join": {"file": str(self.join)}}
        self._open = ExitStack()
        self.running: Agent | None = None

    @property
    def agent(self) -> Agent:
        assert self.running is not None
        return self.running

    def start(self) -> Agent:
        """Start an agent; a running one ends first, without any notice."""
        self.stop()
        found = self.configuration()
        state = self._open.enter_context(opened(self.state))
        chance = random.Random(1)
        self.running = Agent(found, state, self.clock, Supervisor({}), chance)
        return self.running

    def configuration(self) -> AgentConfiguration:
        document = {
            "apiVersion": "identity.orch.io/v1alpha1",
            "kind": "AgentConfiguration",
            "state": str(self.state),
            "metricsFile": str(self.place / "agent.prom"),
            "outputs": self.outputs,
            **self.settings,
        }
        return parse(json.dumps(document).encode(), "agent.yaml")

    def stop(self) -> None:
        self._open.close()

    def check(self) -> AgentStatus:
        """Check everything now."""
        agent = self.running or self.start()
        agent.check_once()
        return agent.status()

    def read(self, name: str = "tls.crt") -> bytes:
        return (self.web / name).read_bytes()

    def has_pair(self) -> bool:
        leaf = x509.load_pem_x509_certificate(self.read())
        key = serialization.load_pem_private_key(self.read("tls.key"), None)
        return bool(leaf.public_key() == key.public_key()) and self.read("tls.pem").endswith(
            self.read()
        )


@pytest.fixture
def server() -> Iterator[PretendServer]:
    with serving() as started:
        yield started


@pytest.fixture
def host(server: PretendServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(
        "orchid.features.hosts.agent.items.AFTER_SWAP", 0.0
    )  # a test changes files twice
    made = Host(tmp_path, server)
    server.join_file(made.join)
    yield made
    made.stop()


# --- joining ----------------------------------------------------------------------------------


def test_a_host_joins_and_gets_its_certificate(host: Host) -> None:
    """One round: identity, Node, files; the join file is gone."""
    status = host.check()

    assert status.exit_code(host.clock.now()) == 0
    assert status.host == HOST
    assert host.has_pair()
    assert not host.join.exists()
    assert "POST /api/v1/nodes" in host.server.calls
    assert sorted(path.name for path in host.web.iterdir() if path.name[0] != ".") == sorted(FILES)
    assert stat.S_IMODE((host.web / "tls.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(host.state.stat().st_mode) == 0o700


def test_a_lost_response_costs_nothing(host: Host) -> None:
    """The key is on disk before the request: a restarted agent finds its request by name."""
    host.server.decision = "wait"
    host.check()
    names = list(host.server.objects)
    host.server.statuses["/apis/certificates.orch.io/v1/certificatesigningrequests"] = 503
    host.start()
    host.check()
    host.server.statuses.clear()
    host.server.decision = "approve"
    host.start()

    status = host.check()

    assert status.exit_code(host.clock.now()) == 0
    assert [name for name in host.server.objects if "signingrequests" in name][:1] == names
    assert sum("signingrequests" in name for name in host.server.objects) == 2  # host and output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda host: host.join.unlink(), "this host has not joined; write a join file to"),
        (lambda host: host.join.write_text("no: kubeconfig"), "no current-context is set"),
        (lambda host: setattr(host.server, "host", ""), "is bound to no host"),
        (lambda host: host.server.statuses.update({"/apis": 401}), "it may have expired"),
    ],
)
def test_a_host_that_cannot_join_says_why(
    host: Host, change: Callable[[Host], None], message: str
) -> None:
    """Without a usable join file the agent goes on and explains what to do."""
    change(host)

    status = host.check()

    assert message in status.identity.message
    assert status.exit_code(host.clock.now()) == 1
    assert not host.web.exists()


def test_a_join_file_that_arrives_later_is_used(host: Host) -> None:
    """The agent looks for it at each attempt, without a restart."""
    text = host.join.read_text()
    host.join.unlink()
    host.check()
    host.join.write_text(text)

    assert host.check().exit_code(host.clock.now()) == 0


# --- renewal ----------------------------------------------------------------------------------


def test_nothing_is_requested_while_everything_is_fresh(host: Host) -> None:
    """A second check reads renewal information and writes nothing."""
    host.check()
    before, inode = host.read(), (host.web / "..data").lstat().st_ino
    requests = len(host.server.objects)

    host.check()

    assert host.read() == before
    assert (host.web / "..data").lstat().st_ino == inode
    assert len(host.server.objects) == requests


def test_a_window_in_the_past_renews_now(host: Host) -> None:
    """A revocation moves the window; the next check replaces certificate and key."""
    host.check()
    before = host.read(), host.read("tls.key")
    host.server.windows = (-3600.0, -1800.0)

    host.check()

    assert host.has_pair()
    assert host.read() != before[0]
    assert host.read("tls.key") != before[1]


def test_a_window_after_the_end_is_ignored(host: Host) -> None:
    """A wrong hint lets no certificate expire."""
    host.server.windows = (10**8, 10**8 + 60)
    host.server.age = 0.75
    host.check()
    before = host.read()

    host.check()

    assert host.read() != before


def test_metrics_follow_no_link(host: Host, tmp_path: Path) -> None:
    """The directory of the collector may belong to its user: nothing there is written through."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("agent.prom", f".agent.prom.{os.getpid()}"):
        (host.place / name).symlink_to(mine)

    host.check()

    assert mine.read_text() == "mine"
    assert "orchid_agent_output_state" in (host.place / "agent.prom").read_text()


def test_without_renewal_information_the_life_decides(host: Host) -> None:
    """At 75 % of life it is renewed, at 55 % it is not."""
    host.server.age = 0.55
    host.check()
    first = host.read()
    host.check()
    is_same = host.read() == first
    host.server.age = 0.75
    host.outputs[0]["certificate"] = {**CERTIFICATE, "dnsNames": [HOST, f"www.{HOST}"]}
    host.start()
    host.check()
    second = host.read()
    host.check()

    assert is_same
    assert second != first
    assert host.read() != second


def test_reuse_key_renews_with_the_same_key(host: Host) -> None:
    """For services whose key is pinned."""
    host.outputs[0]["certificate"] = {**CERTIFICATE, "reuseKey": True}
    host.check()
    before = host.read(), host.read("tls.key")
    host.server.windows = (-3600.0, -1800.0)

    host.check()

    assert host.read() != before[0]
    assert host.read("tls.key") == before[1]


def test_a_new_bundle_is_written_beside_the_same_certificate(host: Host) -> None:
    """A rotation of the authority publishes two anchors; the pair stays."""
    host.check()
    before = host.read()
    host.server.bundle += Authority("the next one").pem

    host.check()

    assert host.read() == before
    assert host.read("ca.crt").count(b"BEGIN CERTIFICATE") == 2


def test_a_changed_mode_is_applied(host: Host) -> None:
    """The configuration decides about mode and owner of present files, too."""
    host.check()
    host.outputs[0]["mode"] = "0640"
    host.start()

    host.check()

    assert stat.S_IMODE((host.web / "tls.key").stat().st_mode) == 0o640


def test_files_do_not_change_twice_within_a_minute(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that opens two files could see two generations; the agent waits."""
    host.check()
    monkeypatch.setattr("orchid.features.hosts.agent.items.AFTER_SWAP", schedule.AFTER_SWAP)
    before = host.read()
    host.server.windows = (-3600.0, -1800.0)

    status = host.check()

    assert host.read() == before
    assert status.outputs[0].state == "waiting"
    assert "changed a moment ago" in status.outputs[0].message
    assert 50 < host.agent._outputs[0].schedule.due - host.clock.passed <= 60


def test_one_connection_checks_everything(host: Host) -> None:
    """All items have one regular check, so that it costs the server one handshake."""
    host.outputs += [
        {"name": "anchors", "directory": str(host.place / "a"), "bundle": {"signer": SIGNER}},
        {"name": "own", "directory": str(host.place / "own"), "kubeconfig": {}},
    ]
    host.check()
    host.server.calls.clear()
    host.clock.passed += host.agent.seconds_to_next()

    host.agent.check()

    assert [call.split("/")[-1].partition(".")[0] for call in host.server.calls].count(
        "clustertrustbundles"
    ) == 2  # of the signer, and of the server's certificate
    assert host.agent.seconds_to_next() >= 240


def test_a_restarted_agent_is_fresh_before_its_first_check(host: Host) -> None:
    """Nothing is due: the status is that of the files, and not a failure."""
    host.check()
    agent = host.start()

    agent.check()

    assert host.server.calls.count("GET /apis") == 1
    assert agent.status().exit_code(host.clock.now()) == 0
    assert 0 < agent.seconds_to_next() <= 300


# --- faults -----------------------------------------------------------------------------------


def test_a_server_that_is_away_for_days_changes_nothing(host: Host) -> None:
    """The files stay; status and metrics say since when; the next answer ends it."""
    host.check()
    before = host.read()
    port, host.server.port = host.server.port, 1
    for path in (host.state / "identity").glob("..2*/server.json"):
        path.write_text(path.read_text().replace(str(port), "1"))
    host.start()
    for _ in range(10):
        host.check()
    away = host.check()
    metrics = (host.place / "agent.prom").read_text()
    metric = "orchid_agent_unreachable_since_timestamp_seconds"
    for path in (host.state / "identity").glob("..2*/server.json"):
        path.write_text(path.read_text().replace(':1"', f':{port}"'))
    host.start()

    status = host.check()

    assert host.read() == before
    assert "cannot reach" in away.outputs[0].message
    assert away.unreachable_since is not None
    assert metric in metrics
    assert away.requests["none"] >= 10
    assert away.outputs[0].is_valid(host.clock.now())
    assert status.exit_code(host.clock.now()) == 0
    assert status.unreachable_since is None
    assert metric not in (host.place / "agent.prom").read_text()


def away(host: Host, seconds: float) -> None:
    """An hour in which nothing listens, with all the attempts of the agent."""
    end = host.clock.passed + seconds
    while (left := min(host.agent.seconds_to_next(), end - host.clock.passed)) > 0 or (
        host.clock.passed < end
    ):
        host.clock.passed += max(left, 0.001)
        host.clock.offset += max(left, 0.001)
        host.agent.check()


@pytest.mark.parametrize("window", [None, (-3600.0, -1800.0)], ids=["fresh", "due"])
def test_only_what_is_due_is_checked_after_an_outage(
    host: Host, window: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest waits for the next regular check: a thousand agents return in five minutes."""
    host.outputs.append(
        {"name": "anchors", "directory": str(host.place / "a"), "bundle": {"signer": SIGNER}}
    )
    host.server.age = 0.5 if window is None else 0.0
    host.check()
    host.clock.passed += host.agent.seconds_to_next()
    host.agent.check()
    with monkeypatch.context() as outage:
        outage.setattr("orchid.features.hosts.agent.calls.ApiConnection.send", unreachable)
        away(host, 3600.0)
    was_away = host.agent.status().unreachable_since
    if window is not None:
        host.agent._outputs[0].status.renews = host.clock.now()
        host.server.windows = window
    before = host.read()
    host.server.calls.clear()
    host.clock.passed += host.agent.seconds_to_next()

    host.agent.check()

    status = host.agent.status()
    pages = {call.split("/")[-1] for call in host.server.calls}
    assert was_away is not None
    assert status.exit_code(host.agent.clocks.now()) == 0
    assert ("certificatesigningrequests" in pages) == (window is not None)
    assert (host.read() != before) == (window is not None)
    assert host.agent._outputs[1].schedule.due - host.clock.passed >= 240


@pytest.mark.parametrize(
    ("seconds", "is_asked", "is_checked"),
    [(100.0, False, True), (3600.0, False, False), (3600.0, True, True)],
    ids=["short", "long", "long, and the operator asks"],
)
def test_an_outage_is_long_if_it_covers_a_regular_check(
    host: Host,
    seconds: float,
    is_asked: bool,
    is_checked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a short one, or with SIGHUP or `--once`, everything is checked as ever."""
    host.server.lists["servers"] = "first"
    wanted = {"signer": SIGNER, "formats": ["pem", "crl"], "authority": "servers"}
    host.outputs.append({"name": "lists", "directory": str(host.place / "a"), "bundle": wanted})
    host.server.age = 0.5
    host.check()
    with monkeypatch.context() as outage:
        outage.setattr("orchid.features.hosts.agent.calls.ApiConnection.send", unreachable)
        host.clock.passed += host.agent.seconds_to_next()
        host.agent.check()
        away(host, seconds)
    host.server.calls.clear()
    host.clock.passed += 0.0 if is_asked else host.agent.seconds_to_next()

    if is_asked:
        host.agent.check_once()
    else:
        host.agent.check()

    assert any("/crl/" in call for call in host.server.calls) == is_checked


def unreachable(*_: object) -> None:
    raise ConnectionRefusedError


def test_an_answer_without_end_is_a_failure(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends one byte after the other holds the agent for one call, no longer."""
    host.check()
    before = host.read()
    monkeypatch.setattr("orchid.features.hosts.agent.calls.LONGEST_CALL", 0.2)
    host.server.is_endless = True
    held = host.check()
    pause = host.agent.seconds_to_next()
    host.server.is_endless = False

    status = host.check()

    assert "no complete answer within 0.2 seconds" in held.outputs[0].message
    assert held.unreachable_since is not None
    assert pause <= 1.0
    assert host.read() == before
    assert status.exit_code(host.clock.now()) == 0


def test_an_answer_that_is_too_large_is_a_failure(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reads no more than it needs for its largest answer."""
    host.check()
    monkeypatch.setattr("orchid.features.hosts.agent.calls.LARGEST", 16)
    host.server.is_endless = True

    status = host.check()

    host.server.is_endless = False
    assert "more than can be read" in status.outputs[0].message


def test_the_watchdog_is_reset_before_each_request(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request may take half a minute; a check has several."""
    signs: list[int] = []
    monkeypatch.setattr(Supervisor, "alive", lambda self: signs.append(len(host.server.calls)))

    host.check()

    assert set(range(len(host.server.calls))) <= set(signs)


def test_pauses_after_failures_grow_to_five_minutes(host: Host) -> None:
    """Full jitter below 1, 2, 4, ... 300 seconds; Retry-After is obeyed."""
    host.check()
    agent = host.agent
    host.server.statuses["/"] = 503
    pauses = []
    for _ in range(20):
        agent.check_once()
        pauses.append(agent.seconds_to_next())
    host.server.retry_after = "1234"
    agent.check_once()

    assert pauses[0] <= 1.0
    assert max(pauses) <= 300.0
    assert max(pauses) > 100.0
    assert agent.seconds_to_next() == 1234.0


def test_a_refused_certificate_leads_to_a_new_join(host: Host) -> None:
    """After 401 the agent looks for a join file, and joins without a restart."""
    host.check()
    before = host.read()
    host.server.statuses["/api/v1/nodes"] = 401
    host.server.statuses["/apis/certificates.orch.io/v1beta1"] = 401
    refused = host.check()
    is_kept = host.read() == before
    host.server.statuses.clear()
    identity = (host.state / "identity" / "node.crt").read_bytes()
    host.server.join_file(host.join)
    host.server.statuses["/api/v1/nodes"] = 401
    host.check()
    host.server.statuses.clear()

    status = host.check()

    assert is_kept
    assert "does not accept the certificate of this host" in refused.identity.message
    assert "orchid host new web-1.example.com --replace" in refused.identity.message
    assert (host.state / "identity" / "node.crt").read_bytes() != identity
    assert status.exit_code(host.clock.now()) == 0
    assert not host.join.exists()


@pytest.mark.parametrize(
    ("name", "age", "message"),
    [
        (f"system:node:other-{HOST}", 0.0, f"lacks the name system:node:{HOST}"),
        (f"system:node:{HOST}", 1.1, "has expired already"),
    ],
)
def test_a_certificate_that_is_unfit_is_no_identity(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, age: float, message: str
) -> None:
    """Of another host, or expired: nothing is written, and the join file stays."""
    server, sign = host.server, host.server.authority.sign

    def misnamed(request: x509.CertificateSigningRequest, *rest: Any) -> bytes:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        return sign(cast(Any, SimpleNamespace(**_parts(request), subject=subject)), *rest)

    monkeypatch.setattr(server.authority, "sign", misnamed)
    server.age = age

    status = host.check()

    assert message in status.identity.message
    assert not list((host.state / "identity").iterdir())
    assert host.join.exists()


def _parts(request: x509.CertificateSigningRequest) -> dict[str, Any]:
    return {"public_key": request.public_key, "extensions": request.extensions}


def test_an_expired_identity_needs_a_join_file(host: Host) -> None:
    """Nothing renews after expiry; the outputs stay."""
    host.server.age = 1.5
    host.check()  # the certificate of the host has expired already, and is refused
    host.server.age = 0.0

    status = host.check()

    assert "has expired already" not in status.identity.message
    host.clock.passed += 4000
    assert host.check().exit_code(host.clock.now()) == 0


def test_a_denied_request_is_sent_again_after_an_hour(host: Host) -> None:
    """The status has the reason; a new key, a new request."""
    host.check()
    before = host.read()
    host.server.windows = (-3600.0, -1800.0)
    host.server.decision = "deny"
    host.outputs.append(
        {"name": "other", "directory": str(host.place / "other"), "certificate": CERTIFICATE}
    )
    host.start()

    status = host.check()

    other = status.outputs[1]
    assert other.state == "denied"
    assert "Policy: no such name here" in other.message
    assert host.read() == before
    assert status.exit_code(host.clock.now()) == 1


def test_a_denial_survives_a_restart(host: Host) -> None:
    """`--once` by a timer starts an agent every five minutes; the next request has its hour."""
    host.server.decision = "deny"
    host.check()
    host.server.decision = "approve"
    host.check()  # the host itself has joined
    host.server.decision = "deny"
    host.outputs[0]["certificate"] = {**CERTIFICATE, "commonName": HOST}
    host.start()
    host.check()
    count = len(host.server.objects)
    host.start()
    again = host.check()
    pause = host.agent._outputs[0].schedule.due - host.clock.passed
    is_sent_again = len(host.server.objects) > count
    host.clock.offset += 3601
    host.server.clock_offset += 3601
    host.start()
    host.check()
    later = len(host.server.objects)
    host.server.decision = "approve"
    host.agent.configure(host.configuration())

    host.agent.check()

    assert again.outputs[0].state == "denied"
    assert "Policy: no such name here" in again.outputs[0].message
    assert 3500 < pause <= 3600
    assert not is_sent_again
    assert later == count + 1
    assert host.agent.status().outputs[0].state == "fresh"


def test_a_stored_denial_without_a_time_zone_is_none(host: Host) -> None:
    """A damaged file of the agent is as good as none: the agent requests again."""
    host.check()
    host.server.decision = "deny"
    host.outputs[0]["certificate"] = {**CERTIFICATE, "commonName": HOST}
    host.start()
    host.check()
    file = host.state / "requests" / "web.json"
    stored = json.loads(file.read_text())
    file.write_text(json.dumps({**stored, "denied": stored["denied"].removesuffix("Z")}))
    host.server.decision = "approve"

    status = host.check()

    assert stored["denied"].endswith("Z")
    assert status.outputs[0].state == "fresh"


def test_waiting_for_approval_survives_a_restart(host: Host) -> None:
    """Exit code 3; pauses grow; the same request is continued."""
    host.check()
    host.server.decision = "wait"
    host.outputs[0]["certificate"] = {**CERTIFICATE, "commonName": HOST}
    agent = host.start()
    host.check()
    first = agent.seconds_to_next()
    host.check()
    second = agent.seconds_to_next()
    host.start()
    status = host.check()
    count = len(host.server.objects)
    host.server.decision = "approve"

    done = host.check()

    assert status.exit_code(host.clock.now()) == 3
    assert status.outputs[0].state == "waiting"
    assert (first, second) == (1.0, 1.5)
    assert len(host.server.objects) == count
    assert done.exit_code(host.clock.now()) == 0


def test_renewals_follow_the_clock_of_the_server(host: Host) -> None:
    """A clock that is off by an hour is reported, and changes no decision."""
    host.clock.offset = 3600.0

    status = host.check()

    assert -3605 < status.clock_skew_seconds < -3595
    assert status.exit_code(host.agent.clocks.now()) == 0
    skew = f"orchid_agent_clock_skew_seconds {status.clock_skew_seconds:.0f}"
    assert skew in (host.place / "agent.prom").read_text()


def test_a_clock_far_ahead_is_named(host: Host) -> None:
    """Before the server is asked, a wrong clock looks like an expired certificate."""
    host.check()
    host.clock.offset = 400 * 86_400.0

    message = host.check().identity.message

    assert "has expired: it ended at" in message
    assert f"it is {host.clock.now():%F}" in message
    assert "If that is right, write a join file" in message


def test_a_chain_to_another_authority_is_not_written(host: Host) -> None:
    """The certificate of the signer must lead to the signer's bundle."""
    host.server.bundle = Authority("somebody else").pem

    status = host.check()

    assert "chain does not end in the signer's bundle" in status.outputs[0].message
    assert not (host.web / "tls.crt").exists()


def test_a_certificate_without_a_requested_name_is_not_written(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signer that leaves out names gets another request after an hour."""
    host.check()
    before = host.read()
    host.outputs[0]["certificate"] = {**CERTIFICATE, "dnsNames": [HOST, f"www.{HOST}"]}
    sign = host.server.authority.sign
    old = x509.load_pem_x509_certificate(before)

    def without_names(request: Any, seconds: int, age: float) -> bytes:
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        other = SimpleNamespace(
            subject=request.subject, public_key=request.public_key, extensions=[names]
        )
        return sign(other, seconds, age)

    monkeypatch.setattr(host.server.authority, "sign", without_names)
    agent = host.start()
    status = host.check()

    assert f"lacks the name www.{HOST}" in status.outputs[0].message
    assert host.read() == before
    assert agent._outputs[0].schedule.due - host.clock.passed > 200


def test_a_signer_without_a_bundle_is_reported(host: Host) -> None:
    """Without anchors the chain cannot be checked, so nothing is written."""
    host.server.bundle = ""

    assert "has no trust bundle" in host.check().outputs[0].message


def test_a_directory_that_cannot_be_used_leaves_the_request_pending(host: Host) -> None:
    """A full disk or a read-only directory: the same certificate is written later."""
    host.web.write_text("a file is in the way")
    refused = host.check()
    requests = len(host.server.objects)
    host.web.unlink()

    status = host.check()

    assert "cannot create" in refused.outputs[0].message
    assert len(host.server.objects) == requests
    assert status.exit_code(host.clock.now()) == 0
    assert host.has_pair()


def full(*_: object) -> None:
    """A write to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_files(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write fails, the present pair stays, and the next attempt completes it."""
    host.check()
    before = [host.read(name) for name in FILES]
    host.server.windows = (-3600.0, -1800.0)
    with monkeypatch.context() as disk:
        disk.setattr("orchid.features.hosts.agent.generations._write", full)
        failed = host.check()
    after = [host.read(name) for name in FILES]

    status = host.check()

    assert "No space left on device" in failed.outputs[0].message
    assert after == before
    assert host.read() != before[0]
    assert host.has_pair()
    assert status.exit_code(host.clock.now()) == 0


def test_two_agents_cannot_share_a_state_directory(host: Host) -> None:
    """The second one ends with a message."""
    host.start()

    with pytest.raises(StateUnusable, match="another agent uses"), opened(host.state):
        pass


def test_an_answer_that_makes_no_sense_is_no_crash(host: Host) -> None:
    """The agent reports the output as failed and goes on with the others."""
    host.outputs.append(
        {
            "name": "vault",
            "directory": str(host.place / "vault"),
            "token": {"account": "web/frontend", "audience": "v"},
        }
    )
    host.server.pods = [{"metadata": {}}]

    status = host.check()

    assert status.outputs[0].state == "fresh"
    assert status.outputs[1].message == "unexpected KeyError; see the log"


# --- other outputs ----------------------------------------------------------------------------


def test_tokens_are_kept_and_replaced_when_refused(host: Host) -> None:
    """A token stays while the server accepts it, and is renewed at 80 % of its life."""
    place = host.place / "vault"
    wanted = {"account": "web/frontend", "audience": "https://vault.example"}
    host.outputs = [{"name": "vault", "directory": str(place), "token": wanted}]
    source = {"serviceAccountToken": {"path": "t", "audience": "https://vault.example"}}
    host.server.pods = [pod("web/frontend", source)]
    host.check()
    first = (place / "token").read_text()
    host.check()
    kept = (place / "token").read_text()
    host.server.accepts_tokens = False
    host.check()
    second = (place / "token").read_text()
    host.server.accepts_tokens = True
    host.server.age = 0.85

    host.server.accepts_tokens = False
    host.check()
    host.server.accepts_tokens = True
    old = (place / "token").read_text()
    host.check()

    assert kept == first
    assert second != first
    assert (place / "token").read_text() != old


def test_an_account_that_is_not_placed_is_explained(host: Host) -> None:
    """The message is the command that an operator types."""
    wanted = {"account": "web/frontend", "audience": "https://vault.example"}
    host.outputs = [{"name": "v", "directory": str(host.place / "v"), "token": wanted}]

    message = host.check().outputs[0].message

    assert f"orchid host place {HOST} web/frontend --audience https://vault.example" in message


def test_an_account_gets_a_certificate_by_its_pod(host: Host) -> None:
    """Without names, `as` uses a PodCertificateRequest with all uids."""
    host.outputs[0]["certificate"] = {"signer": SIGNER, "as": "web/frontend"}
    host.server.pods = [pod("web/frontend", {"podCertificate": {"signerName": SIGNER}})]

    status = host.check()

    (request,) = [one for one in host.server.objects.values() if "podUID" in one.get("spec", {})]
    assert status.exit_code(host.clock.now()) == 0
    assert request["spec"]["podUID"] == "pod-uid"
    assert request["spec"]["serviceAccountUID"] == "account-uid"
    assert host.has_pair()


def test_a_kubeconfig_names_its_files(host: Host) -> None:
    """For the host itself: certificate and key beside it, by relative paths."""
    place = host.place / "api"
    host.outputs = [{"name": "api", "directory": str(place), "kubeconfig": {}}]

    host.check()

    text = (place / "kubeconfig").read_text()
    assert "client-key: tls.key" in text
    assert "certificate-authority: ca.crt" in text
    assert (place / "tls.key").read_bytes() == (host.state / "identity/node.key").read_bytes()


def test_a_bundle_has_the_formats_of_its_readers(host: Host) -> None:
    """PEM and PKCS #12; the store stays the same while the anchors do."""
    place = host.place / "anchors"
    wanted = {"signer": SIGNER, "formats": ["pem", "p12"], "password": "changeit"}
    host.outputs = [{"name": "anchors", "directory": str(place), "bundle": wanted}]
    host.check()
    store = (place / "bundle.p12").read_bytes()

    host.check()

    assert (place / "bundle.pem").read_text() == host.server.authority.pem
    assert (place / "bundle.p12").read_bytes() == store


# --- reloads ----------------------------------------------------------------------------------


def reloading(host: Host, script: str, **more: Any) -> Path:
    """Let the output run a script after a change; the file that the script writes."""
    seen = host.place / "seen"
    action = {"command": ["/bin/sh", "-c", script.format(seen=seen)], **more}
    host.outputs[0]["reload"] = [action]
    return seen


def test_a_change_is_followed_by_a_reload(host: Host) -> None:
    """Once per change, with three variables and nothing else in the environment."""
    seen = reloading(host, "env >> {seen}")
    host.check()
    host.check()

    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"PATH", "ORCHID_OUTPUT", "ORCHID_DIRECTORY"} <= names
    assert names <= {"PATH", "ORCHID_OUTPUT", "ORCHID_DIRECTORY", "PWD", "SHLVL", "_", "OLDPWD"}
    assert seen.read_text().count("ORCHID_OUTPUT=web") == 1


def seconds_to_reload(host: Host) -> float:
    due = next(one.reload_due for one in host.agent._outputs if one.reload_due is not None)
    return due - host.clock.passed


def test_a_failed_reload_is_repeated_also_after_a_restart(host: Host) -> None:
    """After 10 s, a minute, five minutes, then at each check; exit code 1 meanwhile."""
    seen = reloading(host, "echo x >> {seen}; test -e {seen}.fixed")
    agent = host.start()
    status = host.check()
    pauses = [seconds_to_reload(host)]
    for pause in (10, 60):
        host.clock.passed += pause
        agent.check()
        pauses.append(seconds_to_reload(host))
    tries = seen.read_text().count("x")
    Path(f"{seen}.fixed").touch()
    host.start().check()

    after = host.agent.status()

    assert status.exit_code(host.clock.now()) == 1
    assert "ended with exit code 1" in status.outputs[0].reload
    assert pauses[:2] == [10.0, 60.0]
    assert tries == 3
    assert seen.read_text().count("x") == 4
    assert after.outputs[0].reload == ""
    assert after.reloads == {"failed": 3, "succeeded": 1}


def test_a_reload_that_hangs_is_killed_with_its_children(host: Host) -> None:
    """Its process group ends at the timeout; it stays pending."""
    seen = reloading(host, "sleep 600 & echo $! > {seen}; wait", timeout="1s")

    status = host.check()

    child = int(seen.read_text())
    state = Path(f"/proc/{child}/stat")
    is_running = state.exists() and state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    assert "did not end within 1 seconds and was killed" in status.outputs[0].reload
    assert not is_running


def test_a_reload_is_on_record_before_the_files_change(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is killed right after the swap reloads when it starts again."""
    seen = reloading(host, "echo x >> {seen}")
    monkeypatch.setattr("orchid.features.hosts.agent.items.OutputItem.reload", lambda *_: None)
    host.check()
    monkeypatch.undo()

    host.start().check()

    assert seen.read_text() == "x\n"


# --- other identities ---------------------------------------------------------------------------


def test_an_identity_of_a_kubeconfig_is_used_and_not_renewed(host: Host) -> None:
    """`join.kubeconfig`: somebody else keeps the credential; nothing is written about it."""
    access = host.server.join_file(host.place / "other.kubeconfig")
    host.settings["join"] = {"kubeconfig": str(access)}

    status = host.check()

    assert status.exit_code(host.clock.now()) == 0
    assert host.has_pair()
    assert access.exists()
    assert not (host.state / "identity" / "node.crt").exists()
    assert sum("signingrequests" in name for name in host.server.objects) == 1
    assert status.server == host.server.url
    assert status.name != "not joined"


def test_times_are_logged_as_the_api_writes_them(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 3339 in UTC, without fractions: of the identity, and of an output."""
    caplog.set_level(logging.INFO)
    host.check()

    times = [text.split(" until ")[1] for text in caplog.messages if " until " in text]
    assert len(times) >= 2
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times), times


def test_an_account_requests_names_with_its_own_token(host: Host) -> None:
    """`as` with names: a CertificateSigningRequest by the account, whose Pod permits --api."""
    host.outputs[0]["certificate"] = {**CERTIFICATE, "as": "web/frontend"}
    refused = host.check().outputs[0].message
    host.server.pods = [pod("web/frontend", {"serviceAccountToken": {"path": "t"}})]

    status = host.check()

    assert f"orchid host place {HOST} web/frontend --api" in refused
    assert status.exit_code(host.clock.now()) == 0
    assert host.server.tokens == 1


def test_a_kubeconfig_of_an_account_has_a_token_file(host: Host) -> None:
    """The token is for this server, and beside the kubeconfig."""
    place = host.place / "api"
    host.outputs = [
        {"name": "api", "directory": str(place), "kubeconfig": {"account": "web/frontend"}}
    ]
    host.server.pods = [pod("web/frontend", {"serviceAccountToken": {"path": "t"}})]

    status = host.check()

    assert status.exit_code(host.clock.now()) == 0
    assert "tokenFile: token" in (place / "kubeconfig").read_text()
    assert stat.S_IMODE((place / "token").stat().st_mode) == 0o600


def test_a_revocation_list_comes_with_the_bundle(host: Host) -> None:
    """A list is fetched at each check, and a missing one is reported."""
    place = host.place / "anchors"
    wanted = {"signer": SIGNER, "formats": ["pem", "crl"], "authority": "servers"}
    host.outputs = [{"name": "anchors", "directory": str(place), "bundle": wanted}]
    missing = host.check().outputs[0].message
    host.server.lists["servers"] = "first"
    host.check()
    host.check()
    is_current = "GET /crl/servers.pem not modified" in host.server.calls
    host.server.lists["servers"] = "second"

    host.check()

    assert "not found" in missing
    assert is_current
    assert json.loads((place / "crl.pem").read_text()) == {"list": "second"}


def test_another_configuration_takes_effect_without_a_restart(host: Host) -> None:
    """SIGHUP: a new output is created at the next check."""
    host.check()
    place = host.place / "own"
    host.outputs.append({"name": "own", "directory": str(place), "kubeconfig": {}})

    host.agent.configure(host.configuration())
    host.agent.check()

    assert (place / "kubeconfig").exists()
    assert len(host.agent.status().outputs) == 2


def test_a_token_with_impossible_times_is_no_token() -> None:
    """A damaged file does not keep an agent from starting."""
    for times in ({"iat": 0, "exp": 1e300}, {"iat": 1e300, "exp": 0}, {"iat": -1e18, "exp": 1e18}):
        body = base64.urlsafe_b64encode(json.dumps(times).encode()).rstrip(b"=")

        assert token_life(b".".join((b"e30", body, b"c2ln")), "") is None
