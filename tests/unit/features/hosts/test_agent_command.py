"""`orchid agent`: its status, the check of its configuration, and its mistakes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchid import cli
from orchid.features.hosts.agent.running.status import AgentStatus, ItemStatus

HEAD = "apiVersion: identity.orch.io/v1alpha1\nkind: AgentConfiguration\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    file = tmp_path / "agent.yaml"
    file.write_text(
        f"{HEAD}join: {{file: {tmp_path}/join.kubeconfig}}\nstate: {state}\noutputs:\n"
        "- {name: own, directory: /o, kubeconfig: {}}\n"
    )
    return file


def item(state: str = "fresh", **rest: Any) -> ItemStatus:
    return ItemStatus(**{"name": "own", "state": state, "exists": True, **rest})


def report(configuration: Path, *outputs: ItemStatus, **rest: Any) -> None:
    identity = item(name="host")
    status = AgentStatus(
        pid=1, updated=datetime.now(UTC), identity=identity, outputs=[*outputs], **rest
    )
    (configuration.parent / "state" / "status.json").write_bytes(msgspec.json.encode(status))


def run(configuration: Path, *words: str) -> int:
    return cli.main(["agent", *words, "--config", str(configuration)])


def test_a_configuration_is_checked(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of its outputs; without any, what the agent does then."""
    assert run(configuration, "check") == 0
    output = capsys.readouterr()
    assert output.out == f"{configuration}: 1 output, no mistakes\n"
    assert not output.err

    text = configuration.read_text()
    configuration.write_text(text.partition("outputs:")[0])
    assert run(configuration, "check") == 0
    assert "renews only the identity of its host" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("check",), ("status",), ("run", "--once"), ("run",)])
def test_each_action_refuses_an_invalid_configuration(
    configuration: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """A mistake of the caller, with the name of the file."""
    configuration.write_text("kind: Other\n")

    assert run(configuration, *words) == 2
    assert str(configuration) in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_status_that_cannot_be_read(
    configuration: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    """No agent has run, or its file is not for this user."""
    if text is not None:
        (configuration.parent / "state" / "status.json").write_text(text)

    assert run(configuration, "status") == 1
    assert "no agent has run, or you are not its user" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "code", "shown"),
    [
        (item(), 0, "fresh"),
        (item("waiting", message="for approval"), 3, "for approval"),
        (item("failed", message="no right"), 1, "no right"),
        (item("denied"), 1, "denied"),
        (item(reload="nginx failed"), 1, "reload pending: nginx failed"),
        (item(reload="nginx failed", message="first"), 1, "first"),
        (item(exists=False), 1, "missing"),
        (item(expires=datetime(2026, 1, 1, tzinfo=UTC)), 1, "expired"),
    ],
)
def test_the_status_of_an_output(
    configuration: Path,
    capsys: pytest.CaptureFixture[str],
    output: ItemStatus,
    code: int,
    shown: str,
) -> None:
    """The exit code differs for fresh, failed and waiting, in each form of output."""
    report(configuration, output, host="web-1", server="https://orchid.test")

    assert run(configuration, "status") == code
    assert shown in capsys.readouterr().out
    assert run(configuration, "status", "-o", "json") == code
    assert json.loads(capsys.readouterr().out)["outputs"][0]["name"] == "own"


@pytest.mark.parametrize(
    ("fields", "present", "absent"),
    [
        ({"host": "web-1"}, ["Host", "web-1", "none"], ["Identity", "Unreachable", "Clock"]),
        ({"kubeconfig": "/a"}, ["Identity", "/a"], ["Host"]),
        ({"kubeconfig": "/a", "host": "web-1"}, ["Identity", "Host", "web-1"], []),
        ({}, ["Host", "not joined"], ["Identity"]),
        ({"unreachable_since": datetime(2026, 1, 2, tzinfo=UTC)}, ["since 2026-01-02"], []),
        ({"clock_skew_seconds": 1.0}, ["+1 s to the server"], []),
        ({"clock_skew_seconds": -1.0}, ["-1 s to the server"], []),
        ({"clock_skew_seconds": 0.9}, [], ["to the server"]),
    ],
)
def test_the_rows_of_a_status(
    configuration: Path,
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, Any],
    present: list[str],
    absent: list[str],
) -> None:
    """Who the agent is, and what keeps it from its server."""
    report(configuration, **fields)

    run(configuration, "status")

    text = capsys.readouterr().out
    assert all(word in text for word in present), text
    assert not any(word in text for word in absent), text


@pytest.mark.parametrize(("skew", "code"), [(0.0, 0), (7200.0, 1), (-7200.0, 0)])
def test_the_clock_of_the_server_counts(configuration: Path, skew: float, code: int) -> None:
    """An output that has expired there is not fresh."""
    expires = datetime.now(UTC) + timedelta(hours=1)
    report(configuration, item(expires=expires), clock_skew_seconds=skew)

    assert run(configuration, "status") == code
