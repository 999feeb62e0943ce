"""`orchid ledger` on exported files: proofs by serial number, and what is typed wrongly."""

import asyncio
from pathlib import Path

import pytest

from orchid import cli
from orchid.features.ledger.commands.ledger_logs import DirectoryLog
from orchid.features.ledger.reading import StoredLog
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import CERTIFICATE_ISSUED, Fact
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.tlog import audit
from orchid.kernel.tlog.tiles import tiles_of
from tests.unit.features.ledger.logs import NOW, VERIFIER, sequencer

COUNT = 300


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A log of certificates whose serial numbers are their places, as files."""
    asyncio.run(_write(tmp_path / "out"))
    return tmp_path / "out"


async def _write(place: Path) -> None:
    store = MemoryStore()
    for number in range(COUNT):
        fact = Fact(CERTIFICATE_ISSUED, {"serial": f"{number + 0xABC000:x}"})
        await store.commit(store_keys.pending([fact], f"uid-{number}", NOW))
    await sequencer(store).drain()
    log, files = StoredLog(store), DirectoryLog(place)
    for tile in [*audit.bundles_of(COUNT), *tiles_of(COUNT)]:
        files.write(tile.path, await log.tile(tile) or b"")
    files.write("checkpoint", await log.checkpoint() or b"")
    await store.close()


def types(exported: Path, *words: str) -> int:
    return cli.main(["ledger", *words, "--from", str(exported), "--key", VERIFIER.vkey])


@pytest.mark.parametrize("serial", ["abc011", "AB:C0:11", "0x00abc011"])
def test_a_certificate_is_found_by_its_serial_number(
    exported: Path, tmp_path: Path, serial: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the number was copied, the proof is of that certificate, and holds."""
    proof = tmp_path / "it.tlog-proof"

    assert types(exported, "prove", serial, "--to", str(proof)) == 0
    assert cli.main(["ledger", "check", str(proof), "--key", VERIFIER.vkey]) == 0

    assert '"serial":"abc011"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["prove", "abc999"], 1, "no certificate with the serial number abc999"),
        (["prove", "xyz"], 2, "no serial number in hex"),
        (["prove"], 2, "say which entry"),
        (["prove", "abc011", "--index", "3"], 2, "say which entry"),
        (["prove", "--index", "300"], 1, "no entry 300"),
        (["prove", "--index", "-1"], 1, "no entry -1"),
        (["verify", "--since", "nothing"], 2, "nothing: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    exported: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line on standard error says what was wrong, and the exit code whose fault it was."""
    assert types(exported, *words) == code
    assert said in capsys.readouterr().err


def test_another_key_is_not_taken(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another key, verification fails; an invalid key is an error."""
    other = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"

    assert cli.main(["ledger", "verify", "--from", str(exported), "--key", other]) == 1
    assert cli.main(["ledger", "verify", "--from", str(exported), "--key", "no key"]) == 2
    assert cli.main(["ledger", "verify", "--from", str(exported)]) == 2

    said = capsys.readouterr().err
    assert "is not signed by example.com/foo" in said
    assert "--from needs --key" in said


def test_a_changed_file_is_named(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The changed entry is reported by its index."""
    bundle = exported / "tile" / "entries" / "001.p" / "44"
    bundle.write_bytes(bundle.read_bytes().replace(b"abc10a", b"abc10b"))

    assert types(exported, "verify") == 1

    assert "entry 266 does not match its hash" in capsys.readouterr().err


def test_a_data_directory_without_a_database_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made where nothing was."""
    assert cli.main(["ledger", "verify", "--data-dir", str(tmp_path)]) == 2

    assert "there is no" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
