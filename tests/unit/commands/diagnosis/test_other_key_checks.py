"""`orchid doctor` and all keys but the token keys: what it reports of each."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.assembly import first_files
from orchid.commands.diagnosis.other_key_checks import (
    administrator,
    authorities,
    bootstrap_tokens,
    ledger_keys,
    sealing_keys,
    static_tokens,
    tokens_in_secrets,
    webhooks,
)
from orchid.kernel.credentials.files import write_private
from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import check
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.terminal.findings import Check, Installation
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteSigner
from orchid.kernel.wire.naming import ORCH
from tests.settings import written

NOW = datetime.now(UTC)


class Server:
    """Answers from a few lists, by the last word of the path."""

    naming = ORCH

    def __init__(
        self, metrics: str = "", pages: bytes = b"", **lists: list[dict[str, Any]]
    ) -> None:
        self._metrics, self._pages, self._lists = metrics, pages, lists

    def text(self, place: str) -> tuple[int, str]:
        return 200, self._metrics

    def data(self, place: str, *, absent: int = 0) -> bytes:
        return self._pages

    def items(self, place: str, query: Any = None) -> Iterator[dict[str, Any]]:
        return iter(self._lists.get(place.rpartition("/")[2], []))

    def get(self, place: str) -> dict[str, Any]:
        return {"items": self._lists.get(place.rpartition("/")[2], [])}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    settings = check(written(data_dir=str(tmp_path)))
    first_files.prepare(settings, NOW)
    return tmp_path


def findings(
    check_: Check, data: Path, server: Server | None = None, **given: Any
) -> list[tuple[str, str]]:
    settings = check(written(data_dir=str(data), **given))
    files = data_directory.located(settings)
    here = Installation(settings, files, NOW, cast(ServerConnection, server) if server else None)
    return [(one.state, one.text) for one in check_(here)]


def sealed(**counts: int) -> str:
    lines = (
        f'orchid_sealed_values{{resource="secrets",key="{key}"}} {number}\n'
        for key, number in counts.items()
    )
    return "".join(lines) + "orchid_encryption_file_refused 0\n"


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (sealed(key1=7), [("good", "7 values are sealed with key1")]),
        (
            sealed(key1=0, identity=2),
            [
                ("note", "0 values are sealed with key1: orchid key retire sealing/key1"),
                ("note", "2 values are in clear text"),
            ],
        ),
        (sealed(key1=1).replace("refused 0", "refused 1"), [("wrong", "the server does not use")]),
        (sealed(key1=1, key9=4), [("wrong", "4 values are sealed with key9, which")]),
    ],
    ids=["in-use", "unused", "refused", "missing"],
)
def test_sealing_keys(data: Path, metrics: str, expected: list[tuple[str, str]]) -> None:
    """A line for each key; a file that is not used, or lacks a key, is wrong."""
    found = findings(sealing_keys, data, Server(metrics))

    for state, text in expected:
        assert any(one == state and said.startswith(text) for one, said in found), found


def test_a_sealing_key_is_a_year_old(data: Path) -> None:
    """The age of the file is the time since its last change."""
    old = (NOW - timedelta(days=400)).timestamp()
    os.utime(data / "encryption.yaml", (old, old))

    assert [state for state, _ in findings(sealing_keys, data)] == ["good", "soon"]


def test_ledger_keys(data: Path) -> None:
    """The key that signs is good; another one is wrong, beside a second one it is only noted."""
    other = Ed25519PrivateKey.generate()
    write_private(data / "other.key", encode_private(other).encode())
    note = Checkpoint("log", 1, bytes(32)).signed(NoteSigner("log", other))
    server = Server(pages=note)
    both = (str(data / "ledger.key"), str(data / "other.key"))

    assert [state for state, _ in findings(ledger_keys, data)] == ["good"]
    assert [state for state, _ in findings(ledger_keys, data, server)] == ["wrong"]
    states = [one for one, _ in findings(ledger_keys, data, server, ledger_key_file=both)]
    assert states == ["note", "good"]


@pytest.mark.parametrize(
    ("days", "state"), [(200, "good"), (10, "soon"), (-1, "wrong"), (None, "note")]
)
def test_authorities(data: Path, days: int | None, state: str) -> None:
    """By the end of their certificates."""
    end = (NOW + timedelta(days=days)).isoformat() if days is not None else None
    server = Server(
        certificateauthorities=[{"metadata": {"name": "web"}, "status": {"notAfter": end}}]
    )

    assert [one for one, _ in findings(authorities, data, server)] == [state]


def test_the_administrator_and_webhooks(data: Path) -> None:
    """Certificates of kubeconfigs; one that cannot be read is wrong."""
    config = str(data / "admin.kubeconfig")
    absent = str(data / "absent")

    assert findings(administrator, data)[0][0] == "good"
    assert findings(webhooks, data) == []
    found = findings(webhooks, data, authorization_webhook_config_file=config)
    assert found[0][0] == "good"
    assert "the authorization webhook" in found[0][1]
    broken = findings(webhooks, data, authentication_token_webhook_config_file=absent)
    assert broken[0][0] == "wrong"


def test_tokens_that_never_end(data: Path) -> None:
    """In Secrets, without an expiration, and in a file."""
    write_private(data / "tokens.csv", b"secret-token,alice,1\n\n")
    key = {"metadata": {"name": "tokens-1"}, "status": {"dependents": {"secrets": 2}}}
    token = {"metadata": {"name": "bootstrap-token-abcdef"}, "data": {}}
    ending = {"metadata": {"name": "bootstrap-token-fedcba"}, "data": {"expiration": "MjAz"}}
    server = Server(signingkeys=[key], secrets=[token, ending])

    secrets = findings(tokens_in_secrets, data, server)
    bootstrap = findings(bootstrap_tokens, data, server)
    static = findings(static_tokens, data, token_auth_file=str(data / "tokens.csv"))

    assert secrets == [("note", "2 Secrets hold tokens of tokens-1, which never end")]
    assert bootstrap == [("soon", "bootstrap tokens without an expiration: bootstrap-token-abcdef")]
    assert findings(bootstrap_tokens, data, Server(secrets=[ending]))[0][0] == "good"
    assert static[0][0] == "note"
    assert static[0][1].startswith("1 static tokens in")
    assert "secret-token" not in static[0][1]
