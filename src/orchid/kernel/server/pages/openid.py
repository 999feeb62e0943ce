"""The two OpenID documents, with which a relying party verifies our tokens.

`configuration` has the issuer and the URL of its keys; `key_set` has the keys (RFC 7517). Both are
created once per set of keys, as bytes, with an entity tag. `problem_with` says why an issuer cannot
have them; the server then starts without these paths and logs the reason. Only the first issuer is
described. No private part of a key passes through here.
"""

import hashlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from orchid.kernel.credentials.keys import VerificationKey

CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
KEY_SET_PATH: Final = "/openid/v1/jwks"
PATHS: Final = (CONFIGURATION_PATH, KEY_SET_PATH)
JSON: Final = "application/json"
JWK_SET: Final = "application/jwk-set+json"  # RFC 7517 section 8.5.2


class Document(msgspec.Struct, frozen=True):
    """A complete response: `Accept` has to include a media type literally or by `*/*`."""

    media_types: tuple[str, ...]  # the first one that the client accepts is sent
    body: bytes

    @property
    def tag(self) -> str:
        """The entity tag, without quotes."""
        return hashlib.sha256(self.body).hexdigest()[:32]


def configuration(issuer: str, jwks_uri: str, keys: Iterable[VerificationKey]) -> Document:
    """The provider configuration; its members are in the order of Kubernetes."""
    body = {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({key.algorithm for key in keys}),
    }
    return Document((JSON,), msgspec.json.encode(body))


def key_set(keys: Iterable[VerificationKey]) -> Document:
    """The key set with every verification key, in the given order, without duplicates.

    Many clients request `application/json` only.
    """
    unique = {key.kid: key for key in keys}
    body = {"keys": [key.jwk() for key in unique.values()]}
    return Document((JWK_SET, JSON), msgspec.json.encode(body))


def default_jwks_uri(issuer: str) -> str:
    """The default URL of the keys: under the issuer, as verifiers reach it."""
    return issuer.rstrip("/") + KEY_SET_PATH


def problem_with(issuer: str, jwks_uri: str) -> str | None:
    """Why there can be no documents for this issuer; None if there can."""
    if not issuer:
        return "empty issuer URL"
    try:
        url, where = urlsplit(issuer), urlsplit(jwks_uri)
    except ValueError:
        return f"issuer URL cannot be read, got: {issuer}"
    if url.scheme != "https":
        return f"issuer URL must use https scheme, got: {issuer}"
    if url.query or "?" in issuer:
        return f"issuer URL may not include a query, got: {issuer}"
    if url.fragment or "#" in issuer:
        return f"issuer URL may not include a fragment, got: {issuer}"
    if where.scheme != "https" or not where.netloc:
        return f"jwks URI must use https scheme, got: {jwks_uri}"
    return None
