"""`orchid key … sealing`: a key stays in the file while a value or a server needs it."""

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.sealing.commands import sealing_key
from orchid.features.sealing.commands.sealing_key import SERVER_LASTS, retire, rotate, state_of
from orchid.features.sealing.encryption import with_new_key
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.api_server import ApiServer

IDENTITY = ORCH.identity


def lease(name: str, opens: str, seals: str, *, age: float = 0.0, server: bool = True) -> Any:
    labels = {f"{IDENTITY}/server": "x"} if server else {}
    marks = {f"{IDENTITY}/opens": opens, f"{IDENTITY}/seals": seals}
    renewed = f"{datetime.now(UTC) - timedelta(seconds=age):%Y-%m-%dT%H:%M:%S.%fZ}"
    meta = {"name": name, "labels": labels, "annotations": marks}
    return {"metadata": meta, "spec": {"renewTime": renewed}}


class Servers(ApiServer):
    """What the metrics and the Leases of the servers show."""

    def __init__(self, values: dict[tuple[str, str], int], *leases: Any) -> None:
        super().__init__()
        self._values = values
        self.lists["leases"] = list(leases)

    def text(self, url: str) -> tuple[int, str]:
        lines = (
            f'orchid_sealed_values{{resource="{resource}",key="{key}"}} {count}'
            for (key, resource), count in self._values.items()
        )
        return 200, "\n".join(lines)


BOTH = "secrets/key1-aa,secrets/key2-bb"


def test_keys_are_those_of_live_servers() -> None:
    """Not of one that is dead for a minute, and not of other Leases."""
    server: Any = Servers(
        {("key1", "secrets"): 3, ("key2", "secrets"): 0},
        lease("a", BOTH, "secrets/key2-bb"),
        lease("b", "secrets/key1-aa", "secrets/key1-aa", age=SERVER_LASTS + 5),
        lease("c", "secrets/key1-aa", "secrets/key1-aa", server=False),
    )

    found = state_of(server)

    assert found.opens == {"a": {"key1", "key2"}}
    assert found.seals == {"a": {"key2"}}
    assert found.needing("key1") == ["3 values of secrets are sealed with it"]
    assert found.needing("key2") == ["a seals with it"]
    assert found.needing("key3") == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a server with key1 and, in front of it, key2."""
    place = tmp_path / "encryption.yaml"
    place.write_bytes(
        b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        b"resources:\n- resources: [secrets]\n  providers: [{identity: {}}]\n"
    )
    place.chmod(0o600)
    for _ in range(2):
        place.write_bytes(with_new_key(place.read_bytes())[1])
    return place


def asked(file: Path) -> Namespace:
    return Namespace(file=file, wait=0, output="text")


@pytest.mark.parametrize(
    ("values", "seals", "text"),
    [
        ({("key1", "secrets"): 1}, "secrets/key2-bb", "1 values of secrets"),
        ({}, "secrets/key1-aa", "a seals with it"),
    ],
)
def test_a_key_that_is_needed_stays_in_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, values: Any, seals: str, text: str
) -> None:
    server = Servers(values, lease("a", BOTH, seals))
    monkeypatch.setattr(sealing_key, "connect", lambda chosen: server)
    before = file.read_bytes()

    with pytest.raises(Complaint, match=text):
        retire(asked(file), "key1")

    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_retired_key_is_kept_beside_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backups from before need it."""
    server = Servers({("key2", "secrets"): 1}, lease("a", BOTH, "secrets/key2-bb"))
    monkeypatch.setattr(sealing_key, "connect", lambda chosen: server)
    before = file.read_bytes()

    assert retire(asked(file), "key1") == 0

    assert b"key1" not in file.read_bytes()
    assert b"key2" in file.read_bytes()
    kept = file.with_name("encryption.yaml.key1")
    assert kept.read_bytes() == before
    assert kept.stat().st_mode & 0o077 == 0


def test_a_key_that_is_not_there_is_a_mistake(file: Path) -> None:
    """Found before a server is asked."""
    with pytest.raises(Complaint, match="there is no key 'key9'") as refusal:
        retire(asked(file), "key9")
    assert refusal.value.code == 2


def test_a_new_key_is_the_first_of_the_file(file: Path) -> None:
    """It gets a name of its own; the others stay, so that values can be opened."""
    assert rotate(asked(file)) == 0

    text = file.read_text()
    assert text.index("key3") < text.index("key2") < text.index("key1")
    assert file.stat().st_mode & 0o077 == 0


def test_a_rotation_waits_for_values_and_servers(file: Path) -> None:
    """Each of them may still need an earlier key."""
    for server in (
        Servers({("key1", "secrets"): 1}, lease("a", BOTH, "secrets/key3-cc")),
        Servers({}, lease("a", BOTH, "secrets/key1-aa")),
    ):
        waiting: Any = server
        with pytest.raises(Complaint, match="not yet: key1 still needed"):
            sealing_key._wait(waiting, 0, "key3")
    done: Any = Servers({("key3", "secrets"): 1}, lease("a", BOTH, "secrets/key3-cc"))
    sealing_key._wait(done, 0, "key3")
