"""`orchid kubeconfig refresh FILE`: renew the CA bundle in a kubeconfig.

The bundle of the platform is fetched from the server of the file, with the trust that the file
already has, so that an old kubeconfig gets the current CAs. The new bundle replaces the old one
only if the server can be verified with it. Everything else in the file stays.
"""

import base64
from pathlib import Path
from typing import Any, Final

from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import NOT_FOUND, ServerConnection
from orchid.kernel.terminal.kubeconfig_file import FLAG, FoundKubeconfig
from orchid.kernel.terminal.output import USAGE, Complaint, say

BUNDLE: Final = "/trust/cluster.pem"
DATA: Final = "certificate-authority-data"
LARGEST: Final = 3 << 20


def refresh(file: Path, context: str) -> int:
    """Renew the bundle of the chosen context, or the current one."""
    from orchid.kernel.credentials.files import write_private
    from orchid.kernel.wire.struct import replace

    if not file.is_file():
        raise Complaint(f"there is no file {file}", USAGE)
    kubeconfig = FoundKubeconfig((file,), FLAG)
    access = kubeconfig_file.load(kubeconfig, context)
    if access.insecure or not access.authority:
        why = "does not verify its server" if access.insecure else "trusts the CAs of the system"
        raise Complaint(f"{file} {why}: it has no bundle to renew", USAGE)
    bundle = _fetch_bundle(ServerConnection(access, kubeconfig))
    text = _read(file)
    if bundle == access.authority:
        say(f"{file} has the current bundle")
        return 0
    after = _replace_bundle(text, access.authority, bundle, file)
    _require_verified(ServerConnection(replace(access, authority=bundle), kubeconfig), file)
    try:
        write_private(file, after)
    except OSError as error:
        raise Complaint(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}: {_count(bundle)} (previously {_count(access.authority)})")
    return 0


def _fetch_bundle(server: ServerConnection) -> bytes:
    """The bundle of the platform, with certificates that can be read."""
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates

    try:
        bundle = server.data(BUNDLE, absent=NOT_FOUND)
        if bundle and certificates.parse_blocks(bundle):
            return bundle
    except Refusal as refusal:
        raise Complaint(f"{server.access.server}{BUNDLE}: {refusal}") from None
    finally:
        server.close()
    raise Complaint(f"{server.access.server} publishes no bundle at {BUNDLE}")


def _require_verified(server: ServerConnection, file: Path) -> None:
    try:
        server.text("/livez")
    except Complaint as problem:
        raise Complaint(
            f"{server.access.server} cannot be verified with the bundle that it publishes, as with "
            f"a certificate of another authority (--tls-cert-file); {file} is unchanged: {problem}"
        ) from None
    finally:
        server.close()


def _read(file: Path) -> bytes:
    from orchid.kernel.credentials.files import read_private
    from orchid.kernel.credentials.refusals import Refusal

    try:
        return read_private(file, LARGEST)
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None


def _replace_bundle(text: bytes, before: bytes, after: bytes, file: Path) -> bytes:
    """The file with another bundle; comments and other entries stay as they are."""
    from orchid.kernel.wire.codec import yaml_text

    entries = _authorities(yaml_text.load(text)[0])
    written = [bundle for bundle in entries if base64.b64decode(bundle) == before]
    if not written:
        raise Complaint(
            f"{file} names its bundle by a path (certificate-authority): replace that file, for "
            f"example with curl --cacert OLD and {BUNDLE} of the server",
            USAGE,
        )
    new = base64.b64encode(after)
    for bundle in written:
        if bundle.encode() not in text:
            raise Complaint(f"{file}: {DATA} is not on one line", USAGE)
        text = text.replace(bundle.encode(), new)
    return text


def _authorities(document: Any) -> list[str]:
    clusters = document.get("clusters") if isinstance(document, dict) else None
    found = [one.get("cluster") or {} for one in clusters or () if isinstance(one, dict)]
    return [str(one[DATA]) for one in found if one.get(DATA)]


def _count(bundle: bytes) -> str:
    number = bundle.count(b"-----BEGIN CERTIFICATE-----")
    return "1 trusted CA" if number == 1 else f"{number} trusted CAs"
