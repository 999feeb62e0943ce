"""Secrets stay where they belong: not in what is printed, not in files or on lines of others.

What is logged, audited and counted is searched by tests/e2e/test_canary.py.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from orchid.assembly import first_files, stores
from orchid.assembly.settings import read
from orchid.features.accounts.kinds.token_request import (
    IssuedToken,
    TokenRequest,
    TokenRequestStatus,
)
from orchid.features.accounts.kinds.token_review import TokenReview, TokenReviewSpec
from orchid.features.objects.kinds.secret import Secret
from orchid.features.sign_in.authenticators.static_token import StaticTokenAuthenticator
from orchid.features.token_keys.files.signing_key_file import create as create_signing_key
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.keys import generate
from orchid.kernel.credentials.secret import SecretValue as Hidden
from orchid.kernel.http.messages import HttpRequest, Peer, Response
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.etcd.store import EtcdStore
from orchid.kernel.store.interface import StoreUnavailable
from tests.api.world import api, settings

CANARY = "canary-5f0c1d9e7b"
KEYS = ("ca.key", "serving.key", "token-signing.key", "ledger.key", "admin.kubeconfig")


def carriers(directory: Path) -> list[Any]:
    """One of everything that holds a secret on its way through the program."""
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{CANARY},jane,u-1\n")
    headers = {"authorization": f"Bearer {CANARY}"}
    request = HttpRequest("POST", "/a", "/a", "", headers, Peer(""), body=CANARY.encode())
    return [
        Hidden(CANARY),
        Secret(data={"k": CANARY.encode()}),
        TokenRequest(status=TokenRequestStatus(token=CANARY)),
        TokenReview(spec=TokenReviewSpec(token=CANARY)),
        IssuedToken(CANARY, "JTI=1"),
        StaticTokenAuthenticator.load(tokens, ()),
        request,
        Response(200, b"", CANARY.encode()),
    ]


def test_what_holds_a_secret_does_not_print_it(tmp_path: Path) -> None:
    """Neither repr nor str nor format, alone or inside something else."""
    for carrier in carriers(tmp_path):
        printed = f"{carrier!r} {carrier!s} {[carrier]} { ({'x': carrier}) }"
        assert CANARY not in printed, type(carrier)


def test_private_keys_do_not_print() -> None:
    """Keys and authorities show what they are, not what they hold."""
    key = generate()
    authority = Authority.create("ca", now=SystemClock().now())
    for one, secret in ((key, key.pem()), (authority, authority.key_pem())):
        printed = f"{one!r} {one!s} {secret!r} {secret!s}"
        assert "PRIVATE KEY" not in printed
        assert secret.reveal().splitlines()[1] not in printed


def test_what_the_server_makes_is_for_its_owner_alone(server_files: Path) -> None:
    """The data directory is 0700 and everything in it 0600."""
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in server_files.iterdir()}

    assert stat.S_IMODE(server_files.stat().st_mode) == 0o700
    assert set(KEYS) <= set(modes)
    assert set(modes.values()) == {0o600}


@pytest.fixture
def own_files(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    chosen = settings(directory)
    first_files.prepare(chosen, SystemClock().now())
    create_signing_key(chosen, shares=True)  # as an earlier version, or `orchid init`
    return directory


@pytest.mark.parametrize("name", ["ca.key", "serving.key", "token-signing.key", "ledger.key"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
async def test_an_exposed_key_stops_the_start(name: str, mode: int, own_files: Path) -> None:
    """A key that others can read or change is no secret any more; the server says so and ends."""
    (own_files / name).chmod(mode)

    with pytest.raises(BadSettings, match="others"):
        async with api(own_files) as server:
            server.server.listener()


def test_a_data_directory_open_to_others_stops_the_start(own_files: Path) -> None:
    """Also when it has become so after it was made."""
    own_files.chmod(0o750)

    with pytest.raises(BadSettings, match="can be reached by others"):
        first_files.prepare(settings(own_files), SystemClock().now())


def becomes_a_strangers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a path away; who is not root becomes the stranger instead."""
    stranger = os.geteuid() + 1
    if os.geteuid() == 0:
        os.chown(path, stranger, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: stranger)


def test_a_data_directory_of_somebody_else_stops_the_start(
    own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could change every key in it, also under a server that runs as root."""
    becomes_a_strangers(own_files, monkeypatch)

    with pytest.raises(BadSettings, match=r"--data-dir: directory .* belongs to another user"):
        first_files.prepare(settings(own_files), SystemClock().now())


@pytest.mark.parametrize("name", ["ca.key", "serving.key", "token-signing.key", "ledger.key"])
async def test_a_key_of_somebody_else_stops_the_start(
    name: str, own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a key file can read it, also when the server runs as root."""
    becomes_a_strangers(own_files / name, monkeypatch)

    with pytest.raises(BadSettings, match="belongs to another user"):
        async with api(own_files) as server:
            server.server.listener()


@pytest.mark.parametrize(
    ("server", "warnings"),
    [
        ("127.0.0.1:1", ["127.0.0.1:1"]),
        ("http://127.0.0.1:1", ["127.0.0.1:1"]),
        ("https://127.0.0.1:1", []),
    ],
)
async def test_etcd_without_tls_is_warned_of(
    server: str,
    warnings: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endpoint without a scheme means clear text; the server warns at start."""
    caplog.set_level(logging.WARNING)

    async def nobody_there(*_: object, **__: object) -> None:
        raise StoreUnavailable("nobody there")

    monkeypatch.setattr(EtcdStore, "open", nobody_there)
    chosen = check(read(None, {"etcd-servers": [server]}))

    with pytest.raises(BadSettings):
        async with stores.opened_store(chosen, SystemClock()):
            pass

    warned = [vars(record) for record in caplog.records if record.message == "store.plaintext"]
    assert [found["etcd"] for found in warned] == warnings
