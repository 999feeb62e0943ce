"""The attack: an outside issuer publishes keys with which anybody makes the server work.

A token with the id of these keys, or without one, needs no valid signature.
"""

import json
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from orchid.kernel.credentials.keys import VerificationKey, b64url_encode, read_jwks
from orchid.kernel.credentials.refusals import BadSignature
from orchid.kernel.credentials.tokens import MOST_TRIED, KeySet, Verifier

ISSUER = "https://issuer.example"
KEYS = 256  # as many as a set may have


def key_set(*ids: str) -> KeySet:
    keys = [ed25519.Ed25519PrivateKey.generate().public_key().public_bytes_raw() for _ in ids]
    entries = [
        {"kty": "OKP", "crv": "Ed25519", "x": b64url_encode(key).decode(), "kid": kid}
        for key, kid in zip(keys, ids, strict=True)
    ]
    return KeySet(read_jwks({"keys": entries}, ("EdDSA",)))


def token(**header: str) -> str:
    head = json.dumps({"alg": "EdDSA", **header}).encode()
    payload = json.dumps({"iss": ISSUER}).encode()
    return ".".join(b64url_encode(part).decode() for part in (head, payload, b"x" * 64))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the keys that were tried."""
    ids: list[str] = []
    verify = VerificationKey.verify

    def counted(key: VerificationKey, signature: bytes, message: bytes) -> None:
        ids.append(key.kid)
        verify(key, signature, message)

    monkeypatch.setattr(VerificationKey, "verify", counted)
    return ids


def refuse(keys: KeySet, sent: str) -> None:
    verifier = Verifier({ISSUER: keys}, lambda payload: payload)
    with pytest.raises(BadSignature):
        verifier.verify(sent, time.time())


def test_a_token_is_tried_with_few_keys_of_one_id(tried: list[str]) -> None:
    """256 RSA keys of 8,192 bits held the event loop for 0.3 s, for each token of a stranger."""
    refuse(key_set(*["same"] * KEYS), token(kid="same"))

    assert len(tried) == MOST_TRIED


def test_a_token_without_an_id_is_tried_with_few_keys(tried: list[str]) -> None:
    refuse(key_set(*map(str, range(KEYS))), token())

    assert len(tried) == MOST_TRIED


def test_a_token_is_tried_with_the_key_of_its_id(tried: list[str]) -> None:
    """Whatever the number of others."""
    refuse(key_set(*map(str, range(KEYS))), token(kid="200"))

    assert tried == ["200"]


def test_keys_of_one_id_are_replaced_without_comparing_all_of_them() -> None:
    """1,536 with 1,536 took 1.5 s on the event loop, whenever the issuer published others."""
    assert len(key_set(*["same"] * KEYS).keys) == MOST_TRIED
