"""Encryption at rest, around the store.

Without --encryption-provider-config the embedded store has a file of its own in the data directory,
created at the first start (orchid/data_directory.py) apart from the database: a copy of one without
the other reveals nothing. Servers over etcd must share their keys: there, nothing is encrypted
unless a file is given. Without one the server warns at start, and refuses to create keys of
authorities (admission/unsealed_keys.py). A file with the provider `identity` confirms plain text.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from orchid.credentials.files import read_private
from orchid.credentials.refusals import Refusal
from orchid.data_directory import DataDirectory
from orchid.engine.kind import Kind
from orchid.kinds.secret import Secret
from orchid.settings.checking import Settings
from orchid.settings.encryption import InvalidEncryption, read_configuration
from orchid.settings.errors import BadSettings
from orchid.store.encryption import EncryptedStore, IdentityProvider, Provider
from orchid.store.interface import Store
from orchid.wire.naming import SEALED_VALUE

log = logging.getLogger(__name__)

UNSEALED: Final = (
    "Secrets are not encrypted in etcd, so that no keys of authorities are made; start every "
    "server with the same --encryption-provider-config (`orchid init` makes one)"
)


def encrypted(
    store: Store, settings: Settings, files: DataDirectory, kinds: Sequence[Kind[Any]]
) -> EncryptedStore:
    """The store with encryption around it."""
    providers: dict[str, list[Provider]] = {}
    if settings.is_unsealed:
        log.warning("store.unsealed: %s", UNSEALED)
    else:
        try:
            providers = read_configuration(read_private(files.encryption), kinds)
        except (InvalidEncryption, Refusal) as problem:
            raise BadSettings(f"--encryption-provider-config: {problem}") from None
    for kind in kinds:
        if kind.type is Secret:  # so that encrypted ones are detected where nothing encrypts them
            providers.setdefault(kind.key_prefix, [IdentityProvider(SEALED_VALUE)])
    return EncryptedStore(store, providers, sealed=SEALED_VALUE)
