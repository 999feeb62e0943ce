"""The files that a first start creates in the data directory: those of the kernel and of features.

A feature with such files is one line here. This file imports nothing else of a feature:
`orchid init` must not wait for what only a server needs.
"""

import datetime
from typing import Final, Protocol

from orchid.features.authorities.settings import stores_authority
from orchid.features.ledger.key_files import create as create_ledger_key
from orchid.features.sealing.key_file import create as create_sealing_key
from orchid.features.token_keys.files.signing_key_file import create as create_signing_key
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory


class Create(Protocol):
    """Creates missing files. `shares`: also those that servers over one etcd share."""

    def __call__(self, settings: Settings, *, shares: bool) -> None: ...


CREATED: Final[tuple[Create, ...]] = (
    create_signing_key,
    create_ledger_key,
    create_sealing_key,
)


def prepare(settings: Settings, now: datetime.datetime, *, shares: bool = False) -> DataDirectory:
    """Create missing files; raises BadSettings for problems that a person has to fix.

    Only for the server that has the store open: its lock excludes a second server. `shares`: also
    files that servers over one etcd share, and that a start would take from the store.
    """
    is_stored = stores_authority(settings.given)
    files = data_directory.prepare(settings, now, stores_authority=is_stored, shares=shares)
    with data_directory.as_bad_settings(settings):
        for create in CREATED:
            create(settings, shares=shares)
    return files
