"""The files of this server that follow from the keys of the authority `cluster`.

`project` writes them: ca.crt, the serving certificate and admin.kubeconfig.
features/certificates/platform_import.py brings ca.crt and ca.key into the store, once.
"""

import logging
from datetime import datetime
from pathlib import Path

from orchid.features.authorities.platform_authority import PlatformKeys
from orchid.features.token_keys.kinds.signing_key import authority_key_id
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.issuer_chain import (
    issuer_key_id,
    may_certify,
    subject_key_id,
)
from orchid.kernel.credentials.files import Reloading, read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory

log = logging.getLogger(__name__)

UNKNOWN = "unknown"  # the serving certificate names no authority key


def project(settings: Settings, files: DataDirectory, keys: PlatformKeys, now: datetime) -> bool:
    """Write the files that follow from the keys in use; return whether one was written.

    Raises Refusal and OSError. Blocks for a few milliseconds.
    """
    own = data_directory.file_authority(files)
    if own is not None and authority_key_id(own.chain_pem.decode("ascii")) in keys.retired:
        files.ca_key.unlink(missing_ok=True)
        log.info("authority.file_removed", extra={"file": files.ca_key.name})
    wrote = data_directory.write_authorities(files, keys.certificates)
    # The key may be out of reach for a while: what clients trust does not depend on it.
    signer = keys.signer(_own_cross(own, keys, now))
    roots = data_directory.encoded_authorities(keys.certificates)
    return data_directory.renew_from(files, signer, settings, now, roots) or wrote


class ServingKey:
    """The id of the authority key that signed the serving certificate of this server."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._followed: Reloading[str] | None = None

    def current(self) -> str:
        try:
            self._followed = self._followed or Reloading([self._file], self._load)
        except Refusal:
            return ""  # there is none yet
        return self._followed.current()

    def _load(self) -> str:
        leaf = certificates.parse_blocks(read_bounded(self._file))[0]
        return issuer_key_id(leaf).hex() or UNKNOWN


def _own_cross(own: Authority | None, keys: PlatformKeys, now: datetime) -> str:
    """A cross certificate of the signer by the CA in the files, for clients that trust only that.

    Empty if the objects have one. Servers over one etcd may have begun with different CAs.
    """
    if own is None:
        return ""
    (signer, *_), cross = certificates.parse_blocks(keys.chain), keys.cross
    cross_certificates = [signer, *(certificates.parse_blocks(cross) if cross else ())]
    ids = {subject_key_id(signer), *map(issuer_key_id, cross_certificates)}
    if own.key_id in ids or not may_certify(own.certificate):
        return ""
    try:
        return own.certify(signer, now=now).decode("ascii") + own.chain_pem.decode("ascii")
    except Refusal:
        return ""  # it has ended
