"""The context of the controllers, from settings and files.

`controller_context` loads the CAs and the signing key, and follows their files. Controllers for a
remote server: remote_controllers.py.
"""

import socket
import uuid
from collections.abc import Callable

from orchid.assembly.features import FEATURES
from orchid.features.authorities.file_signers import signers
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.kernel.base.clock import Clock
from orchid.kernel.context import Context
from orchid.kernel.credentials import keys as key_files
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.files import Reloading, read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings


def controller_context(
    settings: Settings,
    files: DataDirectory,
    clock: Clock,
    token_issuer: Callable[[], TokenSigner],
    *,
    server: Context | None = None,
    stores_authority: bool | None = None,
    authorities: Callable[[], str] | None = None,
    hsm: KeysOfHsm = NO_HSM,
) -> ControllerContext:
    """Dependencies of the controllers besides the API; raises BadSettings if a file is unusable.

    `token_issuer` signs tokens of Secrets, and notices. `server`: the server of this process.
    `stores_authority`: whether the CA of the platform signers is an object of the server; None: as
    the settings say. `authorities`: the CAs that verify the server, in PEM; None: those of the
    files. `hsm`: the one HSM of this process.
    """
    try:
        return ControllerContext(
            naming=settings.naming,
            clock=clock,
            settings=settings.given.of,
            signers=signers(settings, files, clock, is_stored=stores_authority),
            token_issuer=token_issuer,
            root_ca=_root_ca(settings, files, authorities),
            identity=_identity(settings),
            hsm=hsm,
            parts=_parts(settings, server),
        )
    except Refusal as refusal:
        raise BadSettings(str(refusal)) from None


def _parts(settings: Settings, server: Context | None) -> dict[type, object]:
    """What the features give their controllers, by type."""
    return {
        type(part): part
        for feature in FEATURES
        if feature.controller_parts is not None
        for part in feature.controller_parts(settings, server)
    }


def file_token_issuer(settings: Settings) -> Callable[[], TokenSigner]:
    """The signer of tokens in Secrets by the key file, read when it is needed."""
    naming = settings.naming

    def issuer() -> TokenSigner:
        key = key_files.load_signing_key(signing_key_file(settings))
        return TokenSigner(key, naming.legacy_issuer, naming.private_claim)

    return issuer


def _identity(settings: Settings) -> str:
    """Our identity among the candidates for leader.

    The embedded store belongs to one server, so that after a crash that server may continue
    immediately: it is the same candidate. With a shared store every process is a new one.
    """
    host = socket.gethostname()
    if settings.given.etcd_servers:
        return f"{host}_{uuid.uuid4()}"
    data_id = uuid.uuid5(uuid.NAMESPACE_URL, settings.data_dir.resolve().as_uri())
    return f"{host}_{data_id}"


def _root_ca(
    settings: Settings, files: DataDirectory, stored: Callable[[], str] | None
) -> Callable[[], str]:
    """The CAs that verify this server, as PEM text; "" if unknown."""
    path = files.ca_certificate
    if settings.given.tls_cert_file:
        path = files.serving_certificate  # its chain may end in a CA
    elif stored is not None:
        return stored

    def text() -> str:
        found = certificates.parse_blocks(read_bounded(path))
        authorities = [one for one in found if certificates.is_authority(one)]
        blocks = (pem.encode(pem.CERTIFICATE, certificates.encode(one)) for one in authorities)
        return b"".join(blocks).decode("ascii")

    return Reloading([path], text).current
