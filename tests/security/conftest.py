"""A server for each test, over files that are made once, and a clock that a test may move."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.assembly import first_files
from orchid.assembly import server as assembly
from orchid.features.token_keys.files.signing_key_file import create as create_signing_key
from orchid.kernel.base.clock import SystemClock
from tests.api.world import Api, api, settings
from tests.security.listening import listening
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.http.listening import Running


@pytest.fixture(scope="session")
def server_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secured") / "data"
    chosen = settings(directory)
    first_files.prepare(chosen, SystemClock().now())
    create_signing_key(chosen, shares=True)
    return directory


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovingClock:
    """The time of every server that is made from here on."""
    moving = MovingClock()
    monkeypatch.setattr(assembly, "SystemClock", lambda: moving)
    return moving


@pytest.fixture
async def server(server_files: Path, clock: MovingClock) -> AsyncIterator[Api]:
    async with api(server_files) as made:
        yield made


@pytest.fixture
async def open_server(server: Api) -> AsyncIterator[Running]:
    """The server of a test on a socket."""
    async with listening(server) as running:
        yield running


@pytest.fixture
def trust(server_files: Path) -> ssl.SSLContext:
    """The TLS context with which a client trusts the server of a test."""
    return ssl.create_default_context(cafile=server_files / "ca.crt")
