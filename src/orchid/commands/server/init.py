"""`orchid init`: create the keys and certificates of a server without starting it.

For several servers behind one address: create the files once, and copy the shared ones into the
data directory of each before it starts. Existing files are kept. Refused while a server runs on the
directory.
"""

import argparse
import os

from orchid.commands.server.serving_flags import add_settings as configure
from orchid.commands.server.serving_flags import settings_of
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.terminal import times
from orchid.kernel.terminal.output import USAGE, Complaint, say

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    from orchid.assembly import first_files
    from orchid.features.ledger.key_files import ledger_key_files
    from orchid.features.sealing.key_file import sealing_key_file
    from orchid.features.token_keys.files.signing_key_file import signing_key_file
    from orchid.kernel.settings import data_directory
    from orchid.kernel.store.interface import AlreadyInUse, StoreUnusable
    from orchid.kernel.store.sqlite.file import hold

    settings = settings_of(arguments)
    try:
        data_directory.make(settings)
        lock = hold(data_directory.located(settings).database)
    except BadSettings as problem:
        raise Complaint(str(problem), USAGE) from None
    except AlreadyInUse as problem:
        raise Complaint(f"{problem}; stop the server first") from None
    except StoreUnusable as problem:
        raise Complaint(str(problem)) from None
    try:
        _refuse_sealed(settings)
        files = first_files.prepare(settings, times.now(), shares=True)
    except BadSettings as problem:
        raise Complaint(str(problem), USAGE) from None
    finally:
        os.close(lock)
    sealing_key = sealing_key_file(settings)
    shared = (
        files.ca_certificate,
        files.ca_key,
        signing_key_file(settings),
        *ledger_key_files(settings),
        sealing_key,
    )
    names = " ".join(path.name for path in shared)
    say(f"{files.path} is ready\nservers over one etcd share: {names}")
    say(f"each of them needs: --encryption-provider-config {sealing_key}")
    return 0


def _refuse_sealed(settings: Settings) -> None:
    """Refuse to create a sealing key beside Secrets that another one has sealed."""
    from orchid.features.sealing.key_file import lost_sealing_key, makes_sealing_key
    from orchid.kernel.settings import data_directory
    from orchid.kernel.store.sqlite.restore import values_if_readable
    from orchid.kernel.wire.naming import SEALED_VALUE

    if makes_sealing_key(settings):
        values = values_if_readable(data_directory.located(settings).database, "")
        if any(value.startswith(SEALED_VALUE) for value in values.values()):
            raise Complaint(lost_sealing_key(settings), USAGE)
