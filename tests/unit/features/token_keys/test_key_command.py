"""`orchid key`: consumers of an authority's bundle, and servers of an earlier version."""

from argparse import Namespace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from orchid.features.token_keys.commands.key_steps import remark_consumers, rotate
from orchid.kernel.terminal.connection import CommandRefused, ServerConnection
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.wire.naming import ORCH


class Server:
    """Answers with one bundle, or refuses."""

    naming = ORCH

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


class Upgraded:
    """A server that has no key that could sign next, beside the Leases of other servers."""

    naming = ORCH

    def __init__(self, *leases: dict[str, Any], refuses: bool = False) -> None:
        self._leases, self._refuses = leases, refuses

    def items(self, place: str) -> list[dict[str, Any]]:
        if place.endswith("/signingkeys"):
            return [{"metadata": {"name": "tokens-1"}, "spec": {"state": "Active"}}]
        if self._refuses:
            raise CommandRefused(403, "no")
        return list(self._leases)


def lease(name: str, **annotations: str) -> dict[str, Any]:
    marks = {f"identity.orch.io/{word}": text for word, text in annotations.items()}
    renewed = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"renewTime": renewed}}


@pytest.mark.parametrize(
    ("leases", "refuses", "expected"),
    [
        (
            {"orch-server-new": "01", "orch-server-old": ""},
            False,
            "no key is Published; orch-server-old: a server of an earlier version still runs",
        ),
        ({"orch-server-new": "01"}, False, "create a SigningKey first"),
        ({"orch-server-old": ""}, True, "create a SigningKey first"),
    ],
    ids=["upgrade", "current", "forbidden"],
)
def test_a_rotation_names_the_old_server_of_an_upgrade(
    leases: dict[str, str], refuses: bool, expected: str
) -> None:
    """It is the reason why there is no successor; else the caller has to create one."""
    live = [lease(name, serves=key) for name, key in leases.items()]  # renewed just now
    server = cast(ServerConnection, Upgraded(*live, refuses=refuses))

    with pytest.raises(Complaint) as raised:
        rotate(Namespace(hurry=False), server)

    assert expected in str(raised.value)
