"""Signed requests: the same JWS is accepted here and by josepy, and nothing else is."""

import json
from typing import Any

import josepy
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from orchid.features.acme.protocol import jws
from orchid.features.acme.protocol.problems import AcmeProblem
from orchid.kernel.credentials.jwk import read_jwk_text
from orchid.kernel.credentials.keys import TokenKey, generate
from tests.unit.features.acme.acme_client import b64, public

URL = "https://acme.test/acme/servers/new-order"
P521, RSA = ec.generate_private_key(ec.SECP521R1()), rsa.generate_private_key(65537, 2048)


def made(algorithm: str) -> TokenKey:
    others = {"ES512": P521, "RS256": RSA}
    return TokenKey(others[algorithm]) if algorithm in others else generate(algorithm)


def signed(key: TokenKey, payload: bytes = b"{}", **header: Any) -> dict[str, str]:
    head = b64({"alg": key.algorithm, "url": URL, "jwk": public(key), **header})
    body = b64(payload)
    return {
        "protected": head,
        "payload": body,
        "signature": b64(key.sign(f"{head}.{body}".encode())),
    }


def problem_of(body: bytes) -> str:
    def verify() -> None:
        parsed = jws.parse(body)
        parsed.verify(parsed.key())

    with pytest.raises(AcmeProblem) as caught:
        verify()
    return caught.value.type


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256"])
def test_josepy_signs_and_we_verify(algorithm: str) -> None:
    """And the thumbprint of the key is the same."""
    key = made(algorithm)._private
    theirs: Any = josepy.JWKRSA(key=key) if algorithm == "RS256" else josepy.JWKEC(key=key)
    alg = josepy.JWASignature.from_json(algorithm)
    body = josepy.JWS.sign(
        payload=b'{"a":1}', key=theirs, alg=alg, include_jwk=True, protect={"alg", "jwk"}
    )

    found = json.loads(body.json_dumps())
    flat = {name: found[name] for name in ("protected", "payload", "signature")}
    parsed = jws.parse(json.dumps(flat).encode())
    ours = parsed.key()

    parsed.verify(ours)
    assert parsed.payload == b'{"a":1}'
    assert ours.thumbprint == b64(theirs.thumbprint())
    assert read_jwk_text(ours.text).thumbprint == ours.thumbprint


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256"])
def test_we_sign_and_josepy_verifies(algorithm: str) -> None:
    flat = signed(made(algorithm))

    theirs = josepy.JWS.from_json(flat)

    assert theirs.verify()


def test_an_edwards_key_signs() -> None:
    parsed = jws.parse(json.dumps(signed(generate("EdDSA"))).encode())

    parsed.verify(parsed.key())


def test_a_changed_part_is_refused() -> None:
    """Each of the three parts, and a signature of another key."""
    good, other = signed(made("ES256")), signed(made("ES256"))
    for name in good:
        changed = {**good, name: other[name] if name != "payload" else b64([])}
        assert problem_of(json.dumps(changed).encode()) == "malformed"


@pytest.mark.parametrize(
    ("header", "type_"),
    [
        ({"alg": "none"}, "badSignatureAlgorithm"),
        ({"alg": "HS256"}, "badSignatureAlgorithm"),
        ({"alg": "ES384"}, "badSignatureAlgorithm"),
        ({"alg": "PS256"}, "badSignatureAlgorithm"),
        ({"crit": ["b64"], "b64": False}, "malformed"),
        ({"b64": False}, "malformed"),
        ({"alg": 5}, "malformed"),
        ({"jwk": {"kty": "oct", "k": "AAAA"}}, "badPublicKey"),
        ({"jwk": {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}}, "badPublicKey"),
        ({"jwk": {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}}, "badPublicKey"),
        ({"jwk": {"kty": "RSA", "n": "_" * 40_000, "e": "AQAB"}}, "badPublicKey"),
        ({"jwk": {"kty": "RSA", "n": "_" * 170, "e": "AQAB"}}, "badPublicKey"),
        ({"jwk": {"kty": "RSA", "n": "_" * 342, "e": "_" * 600}}, "badPublicKey"),
        ({"jwk": {"kty": "RSA"}}, "badPublicKey"),
        ({"jwk": []}, "malformed"),
        ({"kid": {}}, "malformed"),
    ],
)
def test_a_header_must_fit(header: dict[str, Any], type_: str) -> None:
    key = made("ES256")

    assert problem_of(json.dumps(signed(key, **header)).encode()) == type_


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"protected":"e30","payload":"","signature":""}',
        b'{"protected":"e30=","payload":"","signature":""}',
        b'{"protected":"","payload":"","signature":""}',
        b'{"protected":"bnVsbA","payload":"","signature":""}',
        b'{"protected":"\xc3\xbc","payload":"","signature":""}',
        b'{"payload":"","signatures":[{"protected":"e30","signature":""}]}',
        b'{"protected":"e30","header":{"alg":"ES256"},"payload":"","signature":""}',
        b"[" * 60_000,
        b'{"protected":' + b"[" * 60_000,
        b'{"protected":"' + b64(b"[" * 40_000).encode() + b'","payload":"","signature":""}',
        b'{"protected":"' + b64(b'{"alg":"ES256","x":' + b"[" * 40_000).encode() + b'",'
        b'"payload":"","signature":""}',
        b"x" * (jws.LARGEST + 1),
    ],
    ids=range(17),
)  # fmt: skip
def test_anything_else_is_malformed(body: bytes) -> None:
    assert problem_of(body) == "malformed"
