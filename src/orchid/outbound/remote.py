"""A server to call: `Remote` says where it is, whom to trust and what to show.

`read_kubeconfig` makes one of a kubeconfig file. An address is https, with a host, and holds no
credential; one that is not is refused when it is configured, not when it is called.
"""

import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from orchid.credentials.secret import SecretValue
from orchid.outbound import kubeconfig, tls
from orchid.outbound.failures import AnswerRefused
from orchid.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.outbound.tls import UnusableTls


class InvalidRemote(ValueError):
    """An address or a kubeconfig file that cannot be used; the text says what to change."""


@dataclass(frozen=True)
class Remote:
    """A server to call: its address, the TLS settings, and the credential to show."""

    url: str
    tls: ssl.SSLContext = field(repr=False, compare=False)
    server_name: str = ""  # the name on its certificate, when it is not the one in the address
    bearer: Callable[[], SecretValue] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_unfit_url(self.url)


def refuse_unfit_url(url: str) -> None:
    """Only https, with a host, without credentials or anything that never reaches the server."""
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
    """TLS settings that trust these PEM authorities, or the system's when there are none."""
    try:
        return tls.trusting(authorities)
    except UnusableTls as problem:
        raise InvalidRemote(str(problem)) from None


def read_kubeconfig(path: Path) -> Remote:
    """Make a Remote of the current context of a kubeconfig file."""
    try:
        access = kubeconfig.read([path])
        if access.insecure:
            raise InvalidRemote(f"{path}: insecure-skip-tls-verify is not supported")
        context = tls.trusting(access.authority.decode("latin-1"))
        if access.key is not None:
            tls.present(context, access.certificate, access.key.reveal().encode("latin-1"))
    except (UnusableKubeconfig, UnusableTls) as problem:
        raise InvalidRemote(f"kubeconfig {path}: {problem}") from None
    return Remote(
        url=access.server,
        tls=context,
        server_name=access.server_name,
        bearer=functools.partial(_token_of, access) if access.has_token else None,
    )


def _token_of(access: ServerAccess) -> SecretValue:
    """Read at each use: whoever rotates the file needs no restart."""
    try:
        token = access.token()
    except UnusableKubeconfig as problem:
        raise AnswerRefused(str(problem)) from None
    assert token is not None  # has_token was asked before
    return token
