"""The metadata of the authorization server (RFC 8414)."""

import json

from orchid.features.introspection.metadata import document

ISSUER = "https://orchid.test/"
METHODS = ["Bearer", "tls_client_auth", "client_secret_basic", "client_secret_post"]


def test_the_endpoints_are_below_the_issuer() -> None:
    """Without policies for token exchange there is no endpoint for tokens."""
    found = json.loads(document(ISSUER, "https://orchid.test/jwks").body)

    assert found == {
        "issuer": ISSUER,
        "jwks_uri": "https://orchid.test/jwks",
        "response_types_supported": [],
        "introspection_endpoint": "https://orchid.test/oauth2/introspect",
        "introspection_endpoint_auth_methods_supported": METHODS,
        "revocation_endpoint": "https://orchid.test/oauth2/revoke",
        "revocation_endpoint_auth_methods_supported": ["none", *METHODS],
    }


def test_an_exchange_adds_its_endpoint() -> None:
    plain = json.loads(document(ISSUER, "j").body)
    found = json.loads(document(ISSUER, "j", exchanges=True).body)

    assert {key: found[key] for key in found.keys() - plain.keys()} == {
        "token_endpoint": "https://orchid.test/oauth2/token",
        "token_endpoint_auth_methods_supported": ["none"],
        "grant_types_supported": ["urn:ietf:params:oauth:grant-type:token-exchange"],
    }
