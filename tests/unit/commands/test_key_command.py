"""`orchid key`: what it prints about the consumers of an authority's bundle."""

from typing import Any, cast

import pytest

from orchid.commands.accounts.key import remark_consumers
from orchid.commands.terminal.connection import CommandRefused, ServerConnection
from orchid.wire.naming import ORCH


class Server:
    """Answers with one bundle, or refuses."""

    names = ORCH

    def __init__(self, answer: dict[str, Any] | CommandRefused) -> None:
        self._answer = answer

    def get(self, place: str) -> dict[str, Any]:
        assert place.endswith("/publishedbundles/web")
        if isinstance(self._answer, CommandRefused):
            raise self._answer
        return self._answer


def printed(answer: dict[str, Any] | CommandRefused, capsys: pytest.CaptureFixture[str]) -> str:
    remark_consumers(cast(ServerConnection, Server(answer)), "web")
    return capsys.readouterr().err.strip()


def test_consumers_that_are_behind_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """With the one that is behind for the longest time; silent if there is none."""
    longest = [{"name": "web-1", "sequence": 1}]
    consumers = {"current": 55, "behind": 2, "longest": longest}

    found = printed({"status": {"consumers": consumers}}, capsys)

    assert "2 of 57 consumers are behind, the longest web-1" in found
    assert printed({"status": {"consumers": {"current": 55, "behind": 0}}}, capsys) == ""


@pytest.mark.parametrize("status", [403, 404])
def test_a_caller_without_the_right_to_see_them_can_go_on(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consumers never block a step."""
    assert printed(CommandRefused(status, "no"), capsys) == ""
