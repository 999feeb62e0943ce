"""Authorization server metadata (RFC 8414): the endpoints and how clients authenticate."""

from typing import Final

import msgspec

from orchid.oauth import introspection
from orchid.oauth.callers import METHODS
from orchid.server.pages.openid import JSON, Document

PATH: Final = "/.well-known/oauth-authorization-server"


def document(issuer: str, jwks_uri: str) -> Document:
    """The endpoints are below the issuer, as clients reach it."""
    body = {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": [],
        "introspection_endpoint": issuer.rstrip("/") + introspection.PATH,
        "introspection_endpoint_auth_methods_supported": list(METHODS),
    }
    return Document((JSON,), msgspec.json.encode(body))
