"""Request headers: the user that an authenticating proxy asserts.

Start with `RequestHeaderAuthenticator`. The headers only count on a connection with a client
certificate of the proxies' CA and a permitted common name; otherwise they are ignored. Only the
configured header names are read, none by default, and no other code reads them, so that a renamed
header cannot be forged by its old name. A credential id from the proxy is checked for revocation.
"""

import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec

from orchid.features.certificates.authenticators.client_certificate import CertificateProof
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.authorities.issuer_chain import spki_of
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.engine.interfaces import Authenticated, Presented, Rejected
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import header_text
from orchid.kernel.wire.user import UserInfo

# A percent sign that is not an escape: then the whole key is taken literally.
_BROKEN_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class InvalidRequestHeaderSettings(ValueError):
    """The settings of the authenticating proxy are invalid; the message names the flag."""


class RequestHeaderSettings(msgspec.Struct, frozen=True):
    """Header names, and the common names that may send them (empty: any)."""

    username_headers: tuple[str, ...]
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    allowed_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not any(self.username_headers):
            raise InvalidRequestHeaderSettings(
                "--requestheader-username-headers must name at least one header"
            )
        named = (*self.username_headers, *self.uid_headers, *self.group_headers)
        if not all(name.strip() for name in (*named, *self.extra_prefixes)):
            raise InvalidRequestHeaderSettings("--requestheader-* names may not be empty")
        if self.uid_headers and "x-remote-uid" not in _lower(self.uid_headers):
            raise InvalidRequestHeaderSettings(
                "--requestheader-uid-headers must include X-Remote-Uid"
            )


class RequestHeaderAuthenticator:
    """Authenticate by the headers of a proxy with a client certificate."""

    def __init__(
        self,
        settings: RequestHeaderSettings,
        pool: Callable[[], ClientVerifier],
        clock: Clock,
        naming: Naming,
        revocations: Revocations | None = None,
    ) -> None:
        self._proof = CertificateProof(pool, clock, naming.credential_id, revocations)
        self._revocations = revocations
        self._id_key = naming.credential_id
        self._allowed = frozenset(settings.allowed_names)
        self._username = _lower(settings.username_headers)
        self._uid = _lower(settings.uid_headers)
        self._group = _lower(settings.group_headers)
        self._extra = _lower(settings.extra_prefixes)

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        proven = await self._proof.prove(presented)
        if proven is None:
            return None
        proxy = proven.identity.user
        if self._allowed and proxy not in self._allowed:
            raise Rejected(f"x509: subject with cn={proxy} is not in the allowed list")
        username = _first(presented, self._username)
        if not username:
            return None
        user = UserInfo(
            username=username,
            uid=_first(presented, self._uid),
            groups=self._groups(presented),
            extra=self._extras(presented),
        )
        if self._revocations is not None:
            self._revocations.refuse_credential_ids(user.extra.get(self._id_key, ()))
            self._revocations.refuse_user(username, None)
        return Authenticated(user)

    def _groups(self, presented: Presented) -> tuple[str, ...]:
        values = (value for name in self._group for value in presented.all(name))
        return tuple(header_text(value) for value in values if value)

    def _extras(self, presented: Presented) -> dict[str, tuple[str, ...]]:
        extras: dict[str, tuple[str, ...]] = {}
        for prefix in self._extra:
            for name in presented.headers:
                if name.startswith(prefix):
                    key = extra_key(name[len(prefix) :])
                    extras[key] = (*extras.get(key, ()), *map(header_text, presented.all(name)))
        return extras


def extra_key(text: str) -> str:
    """The key in a header name: lower case, percent-decoded if the escapes are valid."""
    lower = text.lower()
    if "%" not in lower or _BROKEN_ESCAPE.search(lower):
        return lower
    try:
        return unquote(lower, errors="strict")
    except UnicodeDecodeError:
        return lower


def refuse_shared_authorities(
    proxies: ClientVerifier, clients: ClientVerifier, allowed_names: Iterable[str]
) -> None:
    """Refuse to start if the certificate of any client would make it a proxy.

    CAs are compared by key: one key may have several certificates.
    """
    if any(allowed_names):
        return
    client_keys = {spki_of(authority) for authority in clients.authorities}
    if any(spki_of(authority) in client_keys for authority in proxies.authorities):
        raise InvalidRequestHeaderSettings(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; "
            "--requestheader-allowed-names must be specified to ensure regular client certificates "
            "cannot set authenticating proxy headers for arbitrary users"
        )


def _first(presented: Presented, names: tuple[str, ...]) -> str:
    for name in names:
        value = presented.headers.get(name)
        if value:
            return header_text(value)
    return ""


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in names)
