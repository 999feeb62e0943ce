"""Anonymous access: by default, and with the configuration file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.https import Https
from tests.e2e.serving import ServerFailed


def configuration(file: Path, anonymous: dict[str, Any]) -> str:
    document = {
        "apiVersion": "apiserver.config.orch.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": anonymous,
    }
    file.write_text(json.dumps(document))
    return str(file)


@pytest.mark.parametrize(
    ("anonymous", "statuses"),
    [
        ({"enabled": False}, [401, 401, 401]),
        ({"enabled": True, "conditions": [{"path": "/livez"}]}, [200, 401, 401]),
    ],
)
def test_file_says_where_nobody_may_come_in(
    start_server: StartServer, tmp_path: Path, anonymous: dict[str, Any], statuses: list[int]
) -> None:
    """Its paths take the place of the default ones, and without it none is left."""
    file = configuration(tmp_path / "authentication.json", anonymous)
    server = start_server("--authentication-config", file, "--controllers", "")

    with Https(server.port) as client:
        asked = ["/livez", "/version", "/api/v1/namespaces"]
        assert [client.send("GET", path).status for path in asked] == statuses


@pytest.mark.parametrize(
    ("anonymous", "flags", "problem"),
    [
        ({"enabled": True}, [], "anonymous.conditions: Required value"),
        ({"enabled": False}, ["--anonymous-paths", "/livez"], "--anonymous-paths: not to be given"),
        ({"enabled": True, "conditions": [{"path": "/*"}]}, [], "anonymous path '/\\*'"),
    ],
)
def test_unclear_word_about_anonymous_callers_stops_the_start(
    start_server: StartServer,
    tmp_path: Path,
    anonymous: dict[str, Any],
    flags: list[str],
    problem: str,
) -> None:
    """Two places that say different things, or a door that is open everywhere."""
    file = configuration(tmp_path / "authentication.json", anonymous)

    with pytest.raises(ServerFailed, match=problem) as failure:
        start_server("--authentication-config", file, "--controllers", "", *flags)

    assert "exit code 2" in str(failure.value)
    assert "Traceback" not in str(failure.value)
