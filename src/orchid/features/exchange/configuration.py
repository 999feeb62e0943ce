"""The TokenExchangeConfiguration file: the issuers whose tokens can be exchanged.

`read_configuration` returns the validated issuers; all errors are reported together, by path. Only
this file decides which URLs the server fetches. Policies choose among its issuers.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from orchid.features.sign_in.oidc.claim_configuration import Sent
from orchid.features.sign_in.oidc.configuration import (
    ALGORITHMS,
    MAX_ISSUERS,
    InvalidConfiguration,
    authority_errors,
    decoded,
    url_errors,
)
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    duplicate,
    required,
    too_many,
    unsupported,
)

KIND: Final = "TokenExchangeConfiguration"
DEFAULT_ALGORITHMS: Final = ("RS256", "ES256")
MOST_AUDIENCES: Final = 16
ISSUERS: Final = Path("issuers")


class ExchangeIssuer(msgspec.Struct, frozen=True):
    """An issuer whose tokens can be exchanged, if they have one of these audiences."""

    url: str
    audiences: tuple[str, ...]
    discovery_url: str = ""
    authorities: str = ""  # PEM; empty: those of the system
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS

    @property
    def configuration_url(self) -> str:
        return self.discovery_url or f"{self.url.rstrip('/')}/.well-known/openid-configuration"


class _Issuer(Sent, frozen=True):
    url: str = ""
    discovery_url: str = msgspec.field(default="", name="discoveryURL")
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS


class _File(Sent, frozen=True):
    kind: str = ""
    api_version: str = ""
    issuers: tuple[_Issuer, ...] = ()


def read_configuration(
    text: str | bytes, api_version: str, own_issuers: Collection[str]
) -> tuple[ExchangeIssuer, ...]:
    """Parse and validate the file (YAML or JSON); raises InvalidConfiguration."""
    sent = decoded(text, _File)
    if (sent.kind, sent.api_version) != (KIND, api_version):
        raise InvalidConfiguration(
            f"expected kind {KIND} of apiVersion {api_version}, "
            f"found {sent.kind!r} of {sent.api_version!r}"
        )
    errors = [*_errors(sent.issuers, own_issuers)]
    if errors:
        raise InvalidConfiguration("; ".join(str(error) for error in errors))
    return tuple(
        ExchangeIssuer(
            issuer.url,
            issuer.audiences,
            issuer.discovery_url,
            issuer.certificate_authority,
            issuer.algorithms,
        )
        for issuer in sent.issuers
    )


def _errors(sent: tuple[_Issuer, ...], own_issuers: Collection[str]) -> Iterator[FieldError]:
    if not sent:
        yield required(ISSUERS, "at least one issuer")
    if len(sent) > MAX_ISSUERS:
        yield too_many(ISSUERS, len(sent), MAX_ISSUERS)
    urls: set[str] = set()
    for index, issuer in enumerate(sent[:MAX_ISSUERS]):
        path = ISSUERS[index]
        yield from url_errors(path / "url", issuer.url, own_issuers)
        if issuer.url in urls:
            yield duplicate(path / "url", issuer.url)
        urls.add(issuer.url)
        if issuer.discovery_url:
            yield from url_errors(path / "discoveryURL", issuer.discovery_url, ())
        if issuer.certificate_authority:
            yield from authority_errors(path / "certificateAuthority", issuer.certificate_authority)
        yield from _list_errors(path / "audiences", issuer.audiences)
        yield from _algorithm_errors(path / "algorithms", issuer.algorithms)


def _list_errors(path: Path, audiences: tuple[str, ...]) -> Iterator[FieldError]:
    """Without an audience of ours, a token for any other service could be exchanged."""
    if not audiences:
        yield required(path, "the audiences that its tokens must have, at least one")
    if len(audiences) > MOST_AUDIENCES:
        yield too_many(path, len(audiences), MOST_AUDIENCES)
    for index, audience in enumerate(audiences):
        if not audience:
            yield required(path[index])
        elif audience in audiences[:index]:
            yield duplicate(path[index], audience)


def _algorithm_errors(path: Path, algorithms: tuple[str, ...]) -> Iterator[FieldError]:
    if not algorithms:
        yield required(path)
    for index, name in enumerate(algorithms):
        if name not in ALGORITHMS:
            yield unsupported(path[index], name, ALGORITHMS)
