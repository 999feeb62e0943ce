"""A remote server: `Remote` has its URL, CAs and credential.

`read_kubeconfig` creates one from a kubeconfig file. A URL is https, with a host, and has no
credential; others are refused when they are configured, not when they are called.
"""

import functools
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from orchid.kernel.base.clock import Monotonic
from orchid.kernel.credentials.files import CHECK_INTERVAL_SECONDS, Fingerprint, fingerprint
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound import kubeconfig, tls
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.outbound.tls import UnusableTls

log = logging.getLogger(__name__)

MOST_KEY_BITS = 8192  # of RSA, in the kubeconfig of somebody else


class InvalidRemote(ValueError):
    """An invalid URL or kubeconfig file; the message says what to change."""


@dataclass(frozen=True)
class Remote:
    """A remote server: its URL, the TLS settings, and the credential."""

    url: str
    tls: ssl.SSLContext = field(repr=False, compare=False)
    server_name: str = ""  # the name on its certificate, if it differs from the host of the URL
    bearer: Callable[[], SecretValue] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_unfit_url(self.url)


def refuse_unfit_url(url: str) -> None:
    """Only https, with a host, without credentials or a fragment."""
    try:
        parts = urlsplit(url)
        fit = parts.scheme == "https" and parts.hostname and parts.port != 0
    except ValueError:
        fit = False
    if not fit or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidRemote(f"{url!r} is not an https address")
    if parts.username or parts.password or parts.fragment:
        raise InvalidRemote("an address may not hold credentials or a fragment")


def trusting(authorities: str = "") -> ssl.SSLContext:
    """TLS settings that trust these PEM CAs, or the system's if there are none."""
    try:
        return tls.trusting(authorities)
    except UnusableTls as problem:
        raise InvalidRemote(str(problem)) from None


def read_kubeconfig(path: Path) -> Remote:
    """The Remote of the current context of a kubeconfig file."""
    return remote_of(_read(path), path)


def embedded_remote(data: bytes, where: str) -> Remote:
    """Make a Remote of a kubeconfig that is no file; `where` says what it is from."""
    try:
        access = kubeconfig.read_embedded(data, where)
    except UnusableKubeconfig as problem:
        raise InvalidRemote(str(problem)) from None
    if access.insecure:
        raise InvalidRemote(f"{where}: insecure-skip-tls-verify is not supported")
    if access.key is not None:
        access = msgspec.structs.replace(access, key=_fit_key(access.key, where))
    return remote_of(access, Path(where))


def _fit_key(key: SecretValue, where: str) -> SecretValue:
    """The key, written again. One of 64,000 bits would sign for minutes in each handshake."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 -- heavy
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 -- heavy
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 -- heavy

    try:
        parsed = serialization.load_pem_private_key(
            key.reveal().encode("latin-1"), None, unsafe_skip_rsa_key_validation=True
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidRemote(f"{where}: the client key is no private key in PEM form") from None
    if isinstance(parsed, rsa.RSAPrivateKey) and parsed.key_size > MOST_KEY_BITS:
        raise InvalidRemote(f"{where}: the client key has more than {MOST_KEY_BITS} bits")
    written = parsed.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return SecretValue(written.decode())


class FollowedKubeconfig:
    """The Remote of a kubeconfig file as it is now.

    While the changed files cannot be used (they are replaced one by one), the last Remote stays and
    the reason is logged. The files are checked at most once a second.
    """

    def __init__(self, path: Path, monotonic: Monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._next_look = 0.0
        self._files: tuple[Path, ...] = ()
        self._seen: Fingerprint | None = None
        self._problem = ""
        self._remote = self._load()

    def current(self) -> Remote:
        now = self._monotonic()
        if now >= self._next_look:
            self._next_look = now + CHECK_INTERVAL_SECONDS
            if fingerprint(self._files) != self._seen:
                self._reload()
        return self._remote

    def _reload(self) -> None:
        try:
            self._remote = self._load()
        except InvalidRemote as problem:
            if str(problem) != self._problem:
                log.error("kubeconfig.reload_refused: %s", problem)
            self._problem = str(problem)  # tried again at the next check
        else:
            log.info("kubeconfig.reloaded: %s", self._path)
            self._problem = ""

    def _load(self) -> Remote:
        seen, before = fingerprint(self._files), self._files
        access = _read(self._path)
        remote = remote_of(access, self._path)
        self._files = access.files
        # Files that were not followed before may have changed since: read once more.
        self._seen = seen if access.files == before else None
        return remote


def _read(path: Path) -> ServerAccess:
    try:
        access = kubeconfig.read([path])
    except UnusableKubeconfig as problem:
        raise InvalidRemote(f"kubeconfig {path}: {problem}") from None
    if access.insecure:
        raise InvalidRemote(f"{path}: insecure-skip-tls-verify is not supported")
    return access


def remote_of(access: ServerAccess, path: Path) -> Remote:
    """The Remote of a server access; `path` names its source in errors."""
    try:
        context = tls.trusting(access.authority.decode("latin-1"))
        if access.key is not None:
            tls.present(context, access.certificate, access.key.reveal().encode("latin-1"))
    except UnusableTls as problem:
        raise InvalidRemote(f"kubeconfig {path}: {problem}") from None
    return Remote(
        url=access.server,
        tls=context,
        server_name=access.server_name,
        bearer=functools.partial(_token_of, access) if access.has_token else None,
    )


def _token_of(access: ServerAccess) -> SecretValue:
    """Read at each use, so that the file can be rotated without a restart."""
    try:
        token = access.token()
    except UnusableKubeconfig as problem:
        raise AnswerRefused(str(problem)) from None
    assert token is not None  # has_token was checked before
    return token
