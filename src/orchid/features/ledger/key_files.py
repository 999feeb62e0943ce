"""The files with the keys that sign the ledger."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.features.ledger.settings import LedgerSettings
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.files import write_private
from orchid.kernel.settings.checking import Settings


def ledger_key_files(settings: Settings) -> tuple[Path, ...]:
    """The files of the keys, the oldest first."""
    configured = settings.given.of(LedgerSettings).ledger_key_file
    return tuple(map(Path, configured)) or (settings.data_dir / "ledger.key",)


def create(settings: Settings, *, shares: bool) -> None:
    """Create a key in the data directory, unless it exists or a setting names one."""
    path, *_ = ledger_key_files(settings)
    if not settings.given.of(LedgerSettings).ledger_key_file and not path.exists():
        write_private(path, keys.encode_private(Ed25519PrivateKey.generate()).encode())
