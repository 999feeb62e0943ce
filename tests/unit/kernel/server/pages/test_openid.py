"""The OpenID documents: what a relying party reads, and when there are none."""

import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from orchid.kernel.credentials.keys import TokenKey, generate
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.server.pages.openid import configuration, default_jwks_uri, key_set, problem_with

ISSUER = "https://orchid.test"
KEYS = [
    generate(),
    TokenKey(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    TokenKey(ec.generate_private_key(ec.SECP384R1())),
    TokenKey(ec.generate_private_key(ec.SECP521R1())),
    TokenKey(ed25519.Ed25519PrivateKey.generate()),
]
PUBLIC = [key.public for key in KEYS]


def test_configuration_has_the_references_members_in_order() -> None:
    """Issuer, keys' place, types, and the sorted algorithms of all keys."""
    document = configuration(ISSUER, "https://h:6443/openid/v1/jwks", PUBLIC)

    assert document.media_types == ("application/json",)
    assert document.body == (
        b'{"issuer":"https://orchid.test","jwks_uri":"https://h:6443/openid/v1/jwks",'
        b'"response_types_supported":["id_token"],"subject_types_supported":["public"],'
        b'"id_token_signing_alg_values_supported":["ES256","ES384","ES512","EdDSA","RS256"]}'
    )


def test_the_tag_of_a_document_changes_with_its_keys() -> None:
    """A verifier that has the current document is answered with 304."""
    assert key_set(PUBLIC).tag == key_set(PUBLIC).tag
    assert key_set(PUBLIC).tag != key_set(PUBLIC[:1]).tag


def test_key_set_lists_every_key_once_without_private_parts() -> None:
    """In configured order, under the media type of key sets."""
    document = key_set([*PUBLIC, PUBLIC[0]])

    assert document.media_types == ("application/jwk-set+json", "application/json")
    keys = json.loads(document.body)["keys"]
    assert [key["kid"] for key in keys] == [key.kid for key in PUBLIC]
    assert list(keys[0]) == ["use", "kty", "kid", "crv", "alg", "x", "y"]
    assert list(keys[1]) == ["use", "kty", "kid", "alg", "n", "e"]
    assert not any({"d", "p", "q"} & set(key) for key in keys)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.algorithm)
def test_library_verifies_our_tokens_with_the_published_keys(key: TokenKey) -> None:
    """An independent JOSE library that knows the document alone accepts a token of each key."""
    token = TokenSigner(key, ISSUER, "orch.io").sign_payload({"aud": ["a"], "sub": "s"}).reveal()
    published = jwt.PyJWKSet.from_json(key_set(PUBLIC).body.decode())
    chosen = published[jwt.get_unverified_header(token)["kid"]]

    claims = jwt.decode(token, chosen.key, algorithms=[key.algorithm], audience="a", issuer=ISSUER)

    assert claims["sub"] == "s"


@pytest.mark.parametrize(
    ("issuer", "text"),
    [
        ("", "empty issuer URL"),
        ("http://orchid.test", "issuer URL must use https scheme, got: http://orchid.test"),
        ("orchid", "issuer URL must use https scheme, got: orchid"),
        ("https://o.test?x=1", "issuer URL may not include a query, got: https://o.test?x=1"),
        ("https://o.test#x", "issuer URL may not include a fragment, got: https://o.test#x"),
        ("https://[", "issuer URL cannot be read, got: https://["),
    ],
)
def test_issuer_that_is_no_plain_https_url_has_no_documents(issuer: str, text: str) -> None:
    """The server starts all the same and says why."""
    assert problem_with(issuer, "https://h/x") == text


def test_documents_need_keys_and_a_place_for_them() -> None:
    """And there is no problem when all is there."""
    assert problem_with(ISSUER, "https://h/x") is None
    assert problem_with(ISSUER, "http://h/x") is not None


@pytest.mark.parametrize(
    ("issuer", "place"),
    [
        ("https://id.example.org", "https://id.example.org/openid/v1/jwks"),
        ("https://id.example.org/", "https://id.example.org/openid/v1/jwks"),
        ("https://id.example.org/orchid", "https://id.example.org/orchid/openid/v1/jwks"),
    ],
)
def test_keys_are_under_the_issuer(issuer: str, place: str) -> None:
    """Clients that can reach the issuer can reach its keys, whatever address the server has."""
    assert default_jwks_uri(issuer) == place
