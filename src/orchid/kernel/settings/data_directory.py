"""The data directory: files that a server creates on its first start.

    orchid.db         the embedded store         ca.crt, ca.key            the cluster CA
    admin.kubeconfig  a client certificate       serving.crt, serving.key  issued by it
                      of system:masters, for the person who starts it

and those of features (assembly/first_files.py):

    token-signing.key signs tokens (ES256)       ledger.key       signs the ledger (Ed25519)
                                                 encryption.yaml  encrypts Secrets in the store

The directory is 0700, keys are 0600. Existing files are used; missing ones are created again. The
serving certificate and the one of admin.kubeconfig are issued again, each with a new key, after two
thirds of their lifetime, when the names of the server change, when another key of the cluster CA
signs, and when key and certificate do not match: at a start, and while the server runs (`renew`).

If the cluster CA is an object (the CertificateAuthority `cluster`), ca.crt has the certificates of
all its keys in use, the signer's first (`write_authorities`), and ca.key is only the source of its
first key. Otherwise neither they nor the other keys that sign or encrypt are ever replaced.
"""

import base64
import contextlib
import datetime
import ipaddress
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import FIRST_NAME, Authority
from orchid.kernel.credentials.files import (
    read_bounded,
    read_private,
    refuse_exposed,
    write_private,
)
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.user import MASTERS

ADMIN = "orchid-admin"
YEAR = datetime.timedelta(days=365)
_EMBEDDED = re.compile(
    r"^ +(certificate-authority|client-certificate|client-key)-data: (\S+)$", re.MULTILINE
)


class DataDirectory(msgspec.Struct, frozen=True):
    """The files of a server."""

    path: Path
    serving_certificate: Path
    serving_key: Path
    ca_certificate: Path
    ca_key: Path
    kubeconfig: Path
    database: Path


def located(settings: Settings) -> DataDirectory:
    """The paths of all files; creates nothing."""
    root, options = settings.data_dir, settings.given
    return DataDirectory(
        path=root,
        serving_certificate=settings.path(options.tls_cert_file, "serving.crt"),
        serving_key=settings.path(options.tls_private_key_file, "serving.key"),
        ca_certificate=root / "ca.crt",
        ca_key=root / "ca.key",
        kubeconfig=root / "admin.kubeconfig",
        database=root / "orchid.db",
    )


def prepare(
    settings: Settings,
    now: datetime.datetime,
    *,
    stores_authority: bool,
    shares: bool = False,
) -> DataDirectory:
    """Create missing files; assembly/first_files.py adds those of features.

    `stores_authority`: the cluster CA is an object, once the store is loaded.
    """
    make(settings)
    files = located(settings)
    with as_bad_settings(settings):
        authority = (
            _first_authority(files, settings, now, shares=shares)
            if stores_authority
            else make_authority(files, now)
        )
        if authority is not None:
            renew_from(files, authority, settings, now)
    return files


@contextlib.contextmanager
def as_bad_settings(settings: Settings) -> Iterator[None]:
    """Report files of the directory that cannot be used."""
    try:
        yield
    except Refusal as refusal:
        raise BadSettings(f"{settings.data_dir}: {refusal}") from None
    except OSError as problem:
        raise BadSettings(f"{problem.filename or settings.data_dir}: {problem.strerror}") from None


def renew(settings: Settings, files: DataDirectory, now: datetime.datetime) -> bool:
    """Issue the server's own certificates again where that is due; return whether one was issued.

    Raises Refusal and OSError. Blocks for a few milliseconds.
    """
    authority = Authority.load_files(files.ca_certificate, files.ca_key)
    return renew_from(files, authority, settings, now)


def renew_from(
    files: DataDirectory,
    authority: Authority,
    settings: Settings,
    now: datetime.datetime,
    roots: bytes = b"",
) -> bool:
    """The same with a given authority. `roots`: all that clients of the server trust, in PEM."""
    is_own = not settings.given.tls_cert_file
    serving = is_own and _serving_certificate(files, authority, settings, now)
    trusted = roots or authority.certificate_pem
    return _kubeconfig(files, authority, settings, now, trusted) or serving


def write_authorities(files: DataDirectory, current: Sequence[x509.Certificate]) -> bool:
    """Write the certificates of the cluster CA's keys, unless they are there; return whether."""
    try:
        if certificates.parse_blocks(read_bounded(files.ca_certificate)) == list(current):
            return False
    except Refusal:
        pass  # there is no such file yet, or it is damaged
    write_private(files.ca_certificate, encoded_authorities(current))
    return True


def encoded_authorities(found: Sequence[x509.Certificate]) -> bytes:
    blocks = (pem.encode(pem.CERTIFICATE, certificates.encode(one)) for one in found)
    return b"".join(blocks)


def file_authority(files: DataDirectory) -> Authority | None:
    """The cluster CA of ca.key; None without that file, or if ca.crt has no certificate for it.

    Raises Refusal if the key is open to others.
    """
    if not files.ca_key.exists() or not files.ca_certificate.exists():
        return None
    key = read_private(files.ca_key)
    chain = read_bounded(files.ca_certificate)
    try:
        return Authority.load(chain, key)
    except Refusal:
        pass  # it has several keys
    for certificate in certificates.parse_blocks(chain):
        try:
            return Authority.load(encoded_authorities([certificate]), key)
        except Refusal:
            continue  # of another key
    return None


def make(settings: Settings) -> None:
    """Create the directory; an existing one must be private."""
    root = settings.data_dir
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_exposed(root, root.stat())
    except Refusal as refusal:
        raise BadSettings(f"--data-dir: {refusal}") from None
    except FileExistsError:
        raise BadSettings(f"--data-dir: {root} is not a directory") from None
    except OSError as problem:
        raise BadSettings(f"--data-dir: {problem.strerror}: {root}") from None


def _first_authority(
    files: DataDirectory, settings: Settings, now: datetime.datetime, *, shares: bool
) -> Authority | None:
    """The cluster CA before its objects are loaded; None if only they can say which it is."""
    if not (files.ca_certificate.exists() or files.ca_key.exists()):
        # Servers over one etcd share the CA of the first.
        is_elsewhere = settings.given.etcd_servers and not shares
        return None if is_elsewhere else make_authority(files, now)
    if files.ca_key.exists():
        read_private(files.ca_key)  # refuses a key that others can read
    try:
        return Authority.load_files(files.ca_certificate, files.ca_key)
    except Refusal:
        return None  # ca.crt has several keys, or ca.key is gone: its first key is Retired


def make_authority(files: DataDirectory, now: datetime.datetime) -> Authority:
    """The cluster CA of the files, which are created if there are none."""
    if files.ca_certificate.exists() or files.ca_key.exists():
        return Authority.load_files(files.ca_certificate, files.ca_key)
    authority = Authority.create(FIRST_NAME, now=now)
    write_private(files.ca_key, authority.key_pem().reveal().encode())
    write_private(files.ca_certificate, authority.certificate_pem)
    return authority


def _serving_certificate(
    files: DataDirectory, authority: Authority, settings: Settings, now: datetime.datetime
) -> bool:
    """Issue the serving certificate, unless the one in place is good; return whether it did."""
    names, addresses = _serving_names(settings)
    if _serves(files, authority, names, addresses, now):
        return False
    issued = authority.issue_serving(
        names[0], lifetime=YEAR, now=now, dns_names=names, ip_addresses=addresses
    )
    write_private(files.serving_key, issued.key.reveal().encode())
    write_private(files.serving_certificate, issued.chain)
    return True


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _serving_names(settings: Settings) -> tuple[tuple[str, ...], tuple[Address, ...]]:
    """Every DNS name and address at which a client may reach this server."""
    names = ["localhost", socket.gethostname().lower(), "orchid"]
    names += settings.naming.server_names
    addresses: list[Address] = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    for host in (settings.host, settings.given.advertise_address):
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            if host:
                names.append(host)
            continue
        if not address.is_unspecified:
            addresses.append(address)
    valid = (name for name in names if name and len(name) <= 64)  # noqa: PLR2004 -- of a CN
    return tuple(dict.fromkeys(valid)), tuple(dict.fromkeys(addresses))


def _serves(
    files: DataDirectory,
    authority: Authority,
    names: tuple[str, ...],
    addresses: tuple[Address, ...],
    now: datetime.datetime,
) -> bool:
    """Whether the serving certificate in place is good for these names and addresses."""
    if not files.serving_certificate.exists() or not files.serving_key.exists():
        return False
    # A key that others can read is no pair that does not match: it stops the start.
    key = read_private(files.serving_key)
    leaf = _good_leaf(read_bounded(files.serving_certificate), key, authority, now)
    if leaf is None:
        return False
    contents = certificates.read_contents(certificates.read(certificates.encode(leaf)))
    return set(names) <= set(contents.dns_names) and set(addresses) <= set(contents.ip_addresses)


def _good_leaf(
    chain: bytes, key: bytes, authority: Authority, now: datetime.datetime
) -> x509.Certificate | None:
    """The certificate of a pair that matches, from this authority, before its last third."""
    try:
        (leaf, *_) = certificates.parse_blocks(chain)
        matches = keys.read_private_key(key).public_key() == leaf.public_key()
    except (Refusal, ValueError):
        return None
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    due = begin + (end - begin) * 2 / 3
    if end >= authority.certificate.not_valid_after_utc:
        due = end  # a new one would not last longer
    is_good = matches and has_issued(authority.certificate, leaf) and begin <= now < due
    return leaf if is_good else None


def _kubeconfig(
    files: DataDirectory,
    authority: Authority,
    settings: Settings,
    now: datetime.datetime,
    trusted: bytes,
) -> bool:
    """Write the administrator's kubeconfig, unless the one in place is good."""
    marker = f"# expires {{}} server {settings.url}"
    expected = settings.url, _b64(trusted)
    if files.kubeconfig.exists() and _gives_access(files.kubeconfig, authority, expected, now):
        return False
    issued = authority.issue_client(ADMIN, groups=(MASTERS,), lifetime=YEAR, now=now)
    text = kubeconfig_text(
        server=settings.url,
        authority=trusted,
        user=ADMIN,
        credential={
            "client-certificate-data": _b64(issued.chain),
            "client-key-data": _b64(issued.key.reveal().encode()),
        },
    )
    first = marker.format((now + YEAR).isoformat(timespec="seconds"))
    write_private(files.kubeconfig, f"{first}\n{text}".encode())
    return True


def _gives_access(
    path: Path, authority: Authority, expected: tuple[str, str], now: datetime.datetime
) -> bool:
    """Whether the kubeconfig has a certificate for the server that is not due for renewal.

    `expected`: the URL of the server and its CAs.
    """
    text, (url, trusted) = read_bounded(path, 1 << 20).decode(errors="replace"), expected
    embedded = dict(_EMBEDDED.findall(text))
    is_current = embedded.pop("certificate-authority", "") == trusted
    if not is_current or text.partition("\n")[0].split()[3:] != ["server", url]:
        return False
    try:
        data = {name: base64.b64decode(value, validate=True) for name, value in embedded.items()}
    except ValueError:
        return False
    chain, key = data.get("client-certificate", b""), data.get("client-key", b"")
    return _good_leaf(chain, key, authority, now) is not None


def kubeconfig_text(
    *, server: str, authority: bytes, user: str, credential: dict[str, str], namespace: str = ""
) -> str:
    """A kubeconfig with one cluster, one user and one context."""
    lines = "\n".join(f"    {key}: {value}" for key, value in credential.items())
    namespace_line = f"    namespace: {namespace}\n" if namespace else ""
    cluster = urlsplit(server).netloc
    context = f"{user}@{cluster}"
    return (
        f"apiVersion: v1\nkind: Config\ncurrent-context: {context}\n"
        f"clusters:\n- name: {cluster}\n  cluster:\n"
        f"    server: {server}\n    certificate-authority-data: {_b64(authority)}\n"
        f"users:\n- name: {user}\n  user:\n{lines}\n"
        f"contexts:\n- name: {context}\n"
        f"  context:\n    cluster: {cluster}\n    user: {user}\n{namespace_line}"
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
