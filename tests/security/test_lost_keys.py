"""A lost key is never replaced beside what it has sealed or signed: that would be lost, too."""

import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid import cli
from orchid.assembly import first_files, serving
from orchid.features.ledger.key_files import ledger_key_files
from orchid.features.ledger.own_log import sequenced
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials import keys
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import EMPTY_ROOT
from orchid.kernel.tlog.notes import NoteSigner
from orchid.kernel.wire.naming import SEALED_VALUE
from tests.api.world import settings

SECRET = "core/secrets/default/a"
LOST = r"encryption\.yaml is missing, and the store has Secrets that are sealed"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server whose store has a sealed Secret, without its key."""

    async def fill() -> None:
        store = await SQLiteStore.open(tmp_path / "orchid.db")
        for number in range(3):
            await store.commit([Change(f"core/namespaces/{number}", b"{}", ABSENT)])
        await store.commit([Change(SECRET, SEALED_VALUE + b"aesgcm:v1:key1:...", ABSENT)])
        await store.close()

    asyncio.run(fill())
    return tmp_path


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith("orchid.db-")}


async def test_no_sealing_key_is_made_beside_sealed_secrets(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor any other file that a copy could not replace; however far behind the Secret is."""
    monkeypatch.setattr("orchid.assembly.stores.PAGE", 1)
    before = files(data)

    with pytest.raises(BadSettings, match=LOST):
        await serving.serve(settings(data, store="sqlite"), asyncio.Event(), None)

    assert files(data) == before


def test_init_makes_none_either(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the missing file."""
    before = files(data)

    code = cli.main(["init", "--data-dir", str(data)])

    assert code == 2
    assert "encryption.yaml is missing, and the store has Secrets" in capsys.readouterr().err
    assert files(data) == before


@pytest.mark.parametrize("value", [b"{}", b""], ids=["clear", "empty"])
def test_a_store_without_sealed_values_gets_its_key(tmp_path: Path, value: bytes) -> None:
    """One of an early version, or a new one."""

    async def fill() -> None:
        store = await SQLiteStore.open(tmp_path / "orchid.db")
        await store.commit([Change(SECRET, value, ABSENT)])
        await store.close()

    asyncio.run(fill())

    assert cli.main(["init", "--data-dir", str(tmp_path)]) == 0
    assert (tmp_path / "encryption.yaml").exists()


@pytest.mark.parametrize("is_ours", [False, True], ids=["another", "ours"])
async def test_a_start_says_that_the_key_of_the_ledger_is_another(
    server_files: Path, caplog: pytest.LogCaptureFixture, is_ours: bool
) -> None:
    """Not only with the first entry, which may be days later."""
    chosen, store = settings(server_files), MemoryStore()
    first_files.prepare(chosen, SystemClock().now())
    own = keys.read_private_key(ledger_key_files(chosen)[0].read_bytes(), "own")
    assert isinstance(own, Ed25519PrivateKey)
    signing = own if is_ours else Ed25519PrivateKey.generate()
    head = Checkpoint("log", 0, EMPTY_ROOT).signed(NoteSigner("log", signing))
    await store.commit([Change(store_keys.HEAD, head, ABSENT)])

    async with sequenced(chosen, store):
        said = [one.getMessage() for one in caplog.records if "ledger.other_key" in one.msg]

    assert bool(said) is not is_ours
    assert all("ledger.key has not signed the ledger in the store" in one for one in said)
