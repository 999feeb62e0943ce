"""The file with the keys that seal Secrets in the store."""

import base64
import json
import secrets
from pathlib import Path

from orchid.features.sealing.settings import SealingSettings
from orchid.kernel.credentials.files import write_private
from orchid.kernel.settings.checking import Settings

KEY_BYTES = 32
HEAD = """# Encrypts secrets in the database. With this file and the database anyone can read
# them; without it they are lost. To change keys: `orchid key rotate sealing`.
"""


def sealing_key_file(settings: Settings) -> Path:
    """The file of a setting, or that of the data directory."""
    configured = settings.given.of(SealingSettings).encryption_provider_config
    return settings.path(configured, "encryption.yaml")


def makes_sealing_key(settings: Settings) -> bool:
    """Whether a start would create the file."""
    return _is_own(settings) and not sealing_key_file(settings).exists()


def lost_sealing_key(settings: Settings) -> str:
    """Why no key is created beside values that another one has sealed."""
    return (
        f"{sealing_key_file(settings)} is missing, and the store has Secrets that are sealed "
        "with its keys: put it back from a copy. If there is none, docs/operations.md (Secrets at "
        "rest) says how to start without these Secrets"
    )


def create(settings: Settings, *, shares: bool) -> None:
    """Create the file with one key, unless it exists.

    The first start does so for the embedded store. Servers over etcd share one file: `orchid init`
    creates it.
    """
    path = sealing_key_file(settings)
    if not (shares or _is_own(settings)) or path.exists():
        return
    key = {"name": "key1", "secret": base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}
    providers = [{"aesgcm": {"keys": [key]}}, {"identity": {}}]
    configuration = {
        "apiVersion": f"{settings.naming.server_config}/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    # JSON is YAML, too; a start that loads no YAML parser takes a megabyte less.
    write_private(path, f"{HEAD}{json.dumps(configuration, indent=2)}\n".encode())


def _is_own(settings: Settings) -> bool:
    """Whether the file is that of the data directory, and the store is embedded."""
    configured = settings.given.of(SealingSettings).encryption_provider_config
    return not (configured or settings.given.etcd_servers)
