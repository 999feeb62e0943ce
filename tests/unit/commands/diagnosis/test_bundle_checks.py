"""`orchid doctor` and the published bundles: what it reports of them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from orchid.commands.diagnosis.bundle_checks import bundles
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import check
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.terminal.findings import Installation
from orchid.kernel.wire.naming import ORCH
from tests.settings import written

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def bundle(name: str, **ready: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", **ready}] if ready else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


class Server:
    """Answers with some bundles."""

    naming = ORCH

    def __init__(self, *found: dict[str, Any]) -> None:
        self._found = found

    def items(self, place: str) -> Iterator[dict[str, Any]]:
        return iter(self._found)


def findings(tmp_path: Path, *found: dict[str, Any]) -> list[tuple[str, str]]:
    settings = check(written(data_dir=str(tmp_path)))
    server = cast(ServerConnection, Server(*found))
    here = Installation(settings, data_directory.located(settings), NOW, server)
    return [(one.state, one.text) for one in bundles(here)]


def test_bundles_that_are_published_are_counted(tmp_path: Path) -> None:
    """In one line, however many there are."""
    found = findings(tmp_path, *(bundle(name, status="True") for name in ("cluster", "web")))

    assert found == [("good", "published bundles are current: 2")]


def test_a_bundle_that_is_not_published_is_named_with_the_reason(tmp_path: Path) -> None:
    """Also one that no controller has seen; of many only the first five."""
    late = [bundle(f"late-{number}", status="False", message="empty") for number in range(6)]

    found = findings(tmp_path, bundle("new"), *late, bundle("web", status="True"))

    assert found[0] == ("soon", "the bundle new is not published: no controller has published it")
    assert found[1] == ("soon", "the bundle late-0 is not published: empty")
    assert found[-1] == ("note", "2 more bundles are not published")
    assert len(found) == 6
