"""Authorization server metadata (RFC 8414): the endpoints and how clients authenticate."""

from typing import Any, Final

import msgspec

from orchid.features.introspection import introspection, revocation
from orchid.features.introspection.callers import METHODS
from orchid.kernel.server.pages.openid import JSON, Document

PATH: Final = "/.well-known/oauth-authorization-server"
TOKEN_PATH: Final = "/oauth2/token"  # noqa: S105 - a path
GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"


def document(issuer: str, jwks_uri: str, *, exchanges: bool = False) -> Document:
    """The endpoints are below the issuer, as clients reach it."""
    base = issuer.rstrip("/")
    body: dict[str, Any] = {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": [],
        "introspection_endpoint": base + introspection.PATH,
        "introspection_endpoint_auth_methods_supported": list(METHODS),
        "revocation_endpoint": base + revocation.PATH,
        "revocation_endpoint_auth_methods_supported": ["none", *METHODS],
    }
    if exchanges:
        body |= {
            "token_endpoint": base + TOKEN_PATH,
            "token_endpoint_auth_methods_supported": ["none"],
            "grant_types_supported": [GRANT],
        }
    return Document((JSON,), msgspec.json.encode(body))
