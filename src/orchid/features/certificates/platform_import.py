"""Import of the cluster CA: its files become the authority `cluster`, at the start of a server.

A server of an earlier version does not know that a SigningKey may belong to an authority: as leader
it would take one for a token key. While such a server is live, the CA stays in files.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.authorities.platform_key_import import PlatformFiles, PlatformKeyImport
from orchid.features.authorities.settings import AuthoritySettings
from orchid.features.certificates.own_certificates import OwnCertificates
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.settings import TokenKeySettings
from orchid.kernel.context import Context
from orchid.kernel.credentials.authorities.authority import FIRST_NAME, Authority
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import StoreError

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
HARM = "it may take keys of authorities for token keys: stop it"


async def import_authority(context: Context) -> None:
    """Have the authority `cluster` in the store, and the files that follow from it."""
    older = _older_servers(context)
    if older:
        log.warning("authority.import_waits", extra={"for": ", ".join(older)})
        await _use_files(context)
    else:
        await _import(context)


async def report_older(context: Context) -> None:
    """Log each server of an earlier version that was started beside imported keys."""
    platform, before, logged = context.optional(PlatformAuthority), set[str](), set[str]()
    while platform is not None:
        older = _without_serves(context) if platform.is_stored else set()
        for name in (older & before) - logged:  # one that starts reports its keys in a moment
            log.error("servers.earlier_version", extra={"server": name, "why": HARM})
            logged.add(name)
        before = older
        await asyncio.sleep(AGAIN_SECONDS)


async def import_later(context: Context) -> None:
    """Import the authority when the last server of an earlier version is gone."""
    platform = context.optional(PlatformAuthority)
    while platform is not None and not platform.is_stored:
        await asyncio.sleep(AGAIN_SECONDS)
        try:
            if not _older_servers(context):
                await _import(context)
        except (BadSettings, StoreError) as problem:
            log.error("authority.not_imported: %s", problem)


def _older_servers(context: Context) -> list[str]:
    """The live servers that do not report the authority of their serving certificate."""
    platform = context.optional(PlatformAuthority)
    if platform is None or platform.is_stored:
        return []
    return sorted(_without_serves(context))


def _without_serves(context: Context) -> set[str]:
    return {name for name, keys in context.port(ServerLeases).live().items() if not keys.serves}


async def _use_files(context: Context) -> None:
    """Have the CA and the server's own certificates in files, as earlier versions do."""
    with _as_bad_settings(context.files):
        data_directory.make_authority(context.files, context.clock.now())
    await context.port(OwnCertificates).renew_files(context.clock)


@contextlib.contextmanager
def _as_bad_settings(files: DataDirectory) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise BadSettings(f"{files.path}: {refusal}") from None
    except OSError as problem:
        raise BadSettings(f"{problem.filename}: {problem.strerror}") from None


async def _import(context: Context) -> None:
    settings, files = context.settings, context.files
    longest = max(
        settings.given.of(AuthoritySettings).cluster_signing_duration.delta,
        data_directory.YEAR,
    )

    def require() -> Authority:
        now = context.clock.now()
        if settings.given.etcd_servers and not _has_files(files):
            return Authority.create(FIRST_NAME, now=now)
        return data_directory.file_authority(files) or data_directory.make_authority(files, now)

    importing = PlatformKeyImport(
        context.naming,
        PlatformFiles(lambda: data_directory.file_authority(files), require),
        context.feed,
        context.store,
        context.random,
        clock=context.clock,
        publish_time=str(settings.given.of(TokenKeySettings).token_key_publish_time),
        longest=longest,
        revoked=context.port(Revocations).revoked_keys,
    )
    with _as_bad_settings(files):
        await importing.run()
    await context.feed.fresh()
    # A key that is lost for now does not stop the start: the last certificates are still good.
    await context.port(OwnCertificates).renew_files(context.clock)


def _has_files(files: DataDirectory) -> bool:
    return files.ca_certificate.exists() or files.ca_key.exists()
