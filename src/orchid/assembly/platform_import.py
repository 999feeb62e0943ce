"""Import of the cluster CA: its files become the authority `cluster`, at the start of a server."""

from datetime import timedelta

from orchid import data_directory
from orchid.assembly.server import Assembly
from orchid.credentials.authorities.authority import FIRST_NAME, Authority
from orchid.credentials.refusals import Refusal
from orchid.data_directory import DataDirectory
from orchid.issuance.platform_key_import import PlatformFiles, PlatformKeyImport
from orchid.settings.errors import BadSettings


async def import_authority(server: Assembly) -> None:
    """Have the authority `cluster` in the store, and the files that follow from it."""
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
        publish_time=settings.given.token_key_publish_time,
        longest=longest,
        revoked=server.access.revocations.revoked_keys,
    )
    try:
        await importing.run()
    except Refusal as refusal:
        raise BadSettings(f"{files.path}: {refusal}") from None
    except OSError as problem:
        raise BadSettings(f"{problem.filename}: {problem.strerror}") from None
    await server.feed.fresh()
    # A key that is lost for now does not stop the start: the last certificates are still good.
    await server.own_certificates.renew_files(server.clock)


def _has_files(files: DataDirectory) -> bool:
    return files.ca_certificate.exists() or files.ca_key.exists()
