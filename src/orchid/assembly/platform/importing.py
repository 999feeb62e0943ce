"""Import of the cluster CA: its files become the authority `cluster`, at the start of a server.

A server of an earlier version does not know that a SigningKey may belong to an authority: as leader
it would take one for a token key. While such a server is live, the CA stays in files.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import timedelta

from orchid.assembly.server import Assembly
from orchid.features.authorities.platform_key_import import PlatformFiles, PlatformKeyImport
from orchid.kernel.credentials.authorities.authority import FIRST_NAME, Authority
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import StoreError

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
HARM = "it may take keys of authorities for token keys: stop it"


async def import_authority(server: Assembly) -> None:
    """Have the authority `cluster` in the store, and the files that follow from it."""
    older = _older_servers(server)
    if older:
        log.warning("authority.import_waits", extra={"for": ", ".join(older)})
        await _use_files(server)
    else:
        await _import(server)


async def report_older(server: Assembly) -> None:
    """Log each server of an earlier version that was started beside imported keys."""
    platform, before, logged = server.access.platform, set[str](), set[str]()
    while platform is not None:
        older = _without_serves(server) if platform.is_stored else set()
        for name in (older & before) - logged:  # one that starts reports its keys in a moment
            log.error("servers.earlier_version", extra={"server": name, "why": HARM})
            logged.add(name)
        before = older
        await asyncio.sleep(AGAIN_SECONDS)


async def import_later(server: Assembly) -> None:
    """Import the authority when the last server of an earlier version is gone."""
    platform = server.access.platform
    while platform is not None and not platform.is_stored:
        await asyncio.sleep(AGAIN_SECONDS)
        try:
            if not _older_servers(server):
                await _import(server)
        except (BadSettings, StoreError) as problem:
            log.error("authority.not_imported: %s", problem)


def _older_servers(server: Assembly) -> list[str]:
    """The live servers that do not report the authority of their serving certificate."""
    platform = server.access.platform
    if platform is None or platform.is_stored:
        return []
    return sorted(_without_serves(server))


def _without_serves(server: Assembly) -> set[str]:
    return {name for name, one in server.access.servers.live().items() if not one.serves}


async def _use_files(server: Assembly) -> None:
    """Have the CA and the server's own certificates in files, as earlier versions do."""
    with _as_bad_settings(server.files):
        data_directory.make_authority(server.files, server.clock.now())
    await server.own_certificates.renew_files(server.clock)


@contextlib.contextmanager
def _as_bad_settings(files: DataDirectory) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise BadSettings(f"{files.path}: {refusal}") from None
    except OSError as problem:
        raise BadSettings(f"{problem.filename}: {problem.strerror}") from None


async def _import(server: Assembly) -> None:
    settings, files = server.settings, server.files
    longest = max(timedelta(seconds=settings.signing_duration), data_directory.YEAR)

    def require() -> Authority:
        now = server.clock.now()
        if settings.given.etcd_servers and not _has_files(files):
            return Authority.create(FIRST_NAME, now=now)
        return data_directory.file_authority(files) or data_directory.make_authority(files, now)

    importing = PlatformKeyImport(
        settings.names,
        PlatformFiles(lambda: data_directory.file_authority(files), require),
        server.feed,
        server.store,
        server.random,
        clock=server.clock,
        publish_time=str(settings.given.token_key_publish_time),
        longest=longest,
        revoked=server.access.revocations.revoked_keys,
    )
    with _as_bad_settings(files):
        await importing.run()
    await server.feed.fresh()
    # A key that is lost for now does not stop the start: the last certificates are still good.
    await server.own_certificates.renew_files(server.clock)


def _has_files(files: DataDirectory) -> bool:
    return files.ca_certificate.exists() or files.ca_key.exists()
