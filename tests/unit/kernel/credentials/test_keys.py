"""Key files in every form, key ids, key strength, and what is published of a key."""

import json
import os
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials import files, keys, refusals
from orchid.kernel.credentials.refusals import (
    BadSignature,
    ExposedKeyFile,
    UnreadableKey,
    UnsupportedKey,
)
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import pem
from tests.unit.kernel.credentials.samples import DATA

KEYS = DATA / "keys"


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("rsa-2048-pkcs1.pem", "RS256"),
        ("rsa-2048-pkcs8.pem", "RS256"),
        ("p256-sec1-with-parameters.pem", "ES256"),
        ("p256-pkcs8.pem", "ES256"),
        ("p384-sec1.pem", "ES384"),
        ("p521-sec1.pem", "ES512"),
        ("ed25519-pkcs8.pem", "EdDSA"),
    ],
)
def test_private_keys_load_in_every_form_and_fix_their_algorithm(name: str, algorithm: str) -> None:
    """PKCS#8, SEC 1 and PKCS#1 are read; the algorithm follows from the key alone."""
    key = keys.TokenKey(keys.read_private_key((KEYS / name).read_bytes()))

    signature = key.sign(b"message")

    assert key.algorithm == algorithm
    key.public.verify(signature, b"message")
    with pytest.raises(BadSignature):
        key.public.verify(signature, b"other")


@pytest.mark.parametrize(
    "name",
    [
        "p256-sec1-with-parameters.pem",
        "p256-pkcs8.pem",
        "p256-public-pkix.pem",
        "p256-certificate.pem",
    ],
)
def test_one_key_has_one_id_whatever_file_it_comes_from(name: str) -> None:
    """Private key, public key and certificate of the same key give the same key id."""
    expected = keys.TokenKey(keys.read_private_key((KEYS / "p256-pkcs8.pem").read_bytes())).kid

    (found,) = keys.read_verification_keys((KEYS / name).read_bytes())

    assert found.kid == expected


@pytest.mark.parametrize("name", ["rsa-2048-public-pkix.pem", "rsa-2048-public-pkcs1.pem"])
def test_rsa_public_keys_load_in_both_forms(name: str) -> None:
    """PKIX and PKCS#1 public keys are the same key."""
    private = keys.TokenKey(keys.read_private_key((KEYS / "rsa-2048-pkcs1.pem").read_bytes()))

    (found,) = keys.read_verification_keys((KEYS / name).read_bytes())

    assert found.kid == private.kid


def test_several_keys_in_one_file_keep_their_order_and_appear_once() -> None:
    """A rotation file with old and new keys yields each key once, in the file's order."""
    parts = ("p384-sec1.pem", "p256-public-pkix.pem", "ed25519-pkcs8.pem", "p256-certificate.pem")
    data = b"\n".join((KEYS / name).read_bytes() for name in parts)

    found = keys.read_verification_keys(data)

    assert [key.algorithm for key in found] == ["ES384", "ES256", "EdDSA"]


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("rsa-1024-pkcs8.pem", UnsupportedKey),
        ("secp256k1-sec1.pem", UnsupportedKey),
        ("p256-encrypted-pkcs8.pem", UnreadableKey),
        ("rsa-2048-encrypted-pkcs1.pem", UnreadableKey),
        ("p256-public-pkix.pem", UnreadableKey),
    ],
)
def test_unusable_private_keys_are_refused_by_name(name: str, refusal: type[Exception]) -> None:
    """Weak, encrypted, public or exotic keys are refused before anything is signed."""
    with pytest.raises(refusal):
        keys.TokenKey(keys.read_private_key((KEYS / name).read_bytes()))


def test_key_ids_are_those_of_the_reference() -> None:
    """The ids of the keys with private number 1 equal the recorded ones."""
    vectors = json.loads((DATA / "tokens" / "key-ids.json").read_text())
    curves = {"secp256r1": ec.SECP256R1(), "secp384r1": ec.SECP384R1(), "secp521r1": ec.SECP521R1()}

    found = {
        name: keys.key_id(ec.derive_private_key(1, c).public_key()) for name, c in curves.items()
    }

    assert found == vectors


def test_ed25519_signature_of_rfc_8037_is_accepted() -> None:
    """The published example verifies with the published key."""
    vector = json.loads((DATA / "tokens" / "rfc8037-appendix-a4.json").read_text())

    (key,) = keys.read_jwks({"keys": [vector["jwk"]]}, ["EdDSA"])

    key.verify(keys.b64url_decode(vector["signature"].encode()), vector["signed"].encode())


def test_published_keys_read_back_to_the_same_keys() -> None:
    """The keys of the JWKS endpoint are enough to verify, in the reference's member order."""
    names = ("rsa-2048-public-pkix.pem", "p384-sec1.pem", "p521-sec1.pem", "ed25519-pkcs8.pem")
    own = keys.read_verification_keys(b"\n".join((KEYS / name).read_bytes() for name in names))

    published = [key.jwk() for key in own]
    read = keys.read_jwks({"keys": published}, ["RS256", "ES384", "ES512", "EdDSA"])

    assert [(k.kid, k.algorithm) for k in read] == [(k.kid, k.algorithm) for k in own]
    assert list(published[0]) == ["use", "kty", "kid", "alg", "n", "e"]
    assert list(published[1]) == ["use", "kty", "kid", "crv", "alg", "x", "y"]
    assert all("d" not in entry for entry in published)


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "a"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "A" * 9_999_996 + "AAAE", "y": "A" * 80},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": 5, "e": None},
        {"kty": "OKP", "crv": "Ed25519", "x": 7},
        {"use": "enc", "kty": "OKP", "crv": "Ed25519", "x": "AA"},
        "text",
        None,
    ],
)
def test_unusable_published_keys_are_left_out(entry: object) -> None:
    """A key set with keys for others, or with nonsense, costs us nothing but those keys."""
    permitted = ["RS256", "ES256", "EdDSA", "HS256", "none"]

    assert keys.read_jwks({"keys": [entry]}, permitted) == ()


def test_a_key_without_algorithm_stands_for_each_permitted_one() -> None:
    """An RSA key that names no algorithm becomes one record per permitted algorithm."""
    (own,) = keys.read_verification_keys((KEYS / "rsa-2048-public-pkix.pem").read_bytes())
    entry = own.jwk()
    del entry["alg"]

    found = keys.read_jwks({"keys": [entry]}, ["RS256", "PS512", "ES256"])

    assert [key.algorithm for key in found] == ["RS256", "PS512"]


def test_a_key_counts_for_the_use_and_algorithm_that_it_names() -> None:
    """A good key for encryption signs nothing, and one for RS512 makes no RS256 signatures."""
    (own,) = keys.read_verification_keys((KEYS / "rsa-2048-public-pkix.pem").read_bytes())
    permitted = ["RS256", "RS512", "ES256"]

    def algorithms(**members: str) -> list[str]:
        found = keys.read_jwks({"keys": [own.jwk() | members]}, permitted)
        return [key.algorithm for key in found]

    assert algorithms() == ["RS256"]
    assert algorithms(alg="RS512") == ["RS512"]
    assert algorithms(alg="ES256") == []
    assert algorithms(use="enc") == []


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": [None] * 257}])
def test_key_sets_of_the_wrong_shape_are_refused(document: object) -> None:
    """Something that is not a key set is a named refusal, not a traceback."""
    with pytest.raises(UnreadableKey):
        keys.read_jwks(document, ["RS256"])


def copy(name: str, to: Path, mode: int) -> Path:
    path = to / name
    path.write_bytes((KEYS / name).read_bytes())
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_private_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """Start-up fails with the command to fix it."""
    path = copy("p256-pkcs8.pem", tmp_path, mode)

    with pytest.raises(ExposedKeyFile, match="chmod 0600"):
        keys.load_signing_key(path)
    with pytest.raises(ExposedKeyFile):
        keys.load_verification_keys(path)


def test_a_private_key_of_its_owner_alone_loads(tmp_path: Path) -> None:
    """Mode 0600 is accepted; a public key may be readable by all."""
    assert keys.load_signing_key(copy("p256-pkcs8.pem", tmp_path, 0o600)).algorithm == "ES256"
    assert keys.load_verification_keys(copy("p256-public-pkix.pem", tmp_path, 0o644))


def test_missing_directory_pipe_and_oversized_files_are_refused(tmp_path: Path) -> None:
    """A path that is no regular file is refused immediately, also a pipe without a writer."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "big").write_bytes(b"x" * (files.MAX_KEY_FILE + 1))
    (tmp_path / "big").chmod(0o600)

    for place in ("absent", ".", "pipe", "big"):
        with pytest.raises(UnreadableKey):
            keys.load_signing_key(tmp_path / place)


def test_written_keys_are_whole_private_and_readable(tmp_path: Path) -> None:
    """Writing replaces the file at once, with mode 0600, and leaves nothing else behind."""
    path = tmp_path / "key.pem"
    path.write_text("old")
    path.chmod(0o644)
    key = keys.generate()

    files.write_private(path, key.pem().reveal().encode())

    assert keys.load_signing_key(path).kid == key.kid
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["key.pem"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A value that cannot be written changes nothing."""
    path = tmp_path / "key.pem"
    path.write_text("old")

    with pytest.raises(TypeError):
        files.write_private(path, "text")

    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_secrets_do_not_print_hash_or_pickle() -> None:
    """A secret shows as stars in every rendering, and compares by content."""
    secret = SecretValue("canary")

    assert "canary" not in f"{secret} {secret!r} {[secret]} {vars} {secret!s}"
    assert secret == SecretValue("canary")
    assert secret != SecretValue("other")
    assert secret != "canary"
    for action in (lambda: hash(secret), lambda: pickle.dumps(secret)):
        with pytest.raises(TypeError):
            action()
    assert "PRIVATE" not in repr(keys.generate())


def test_pieces_of_secrets_do_not_print() -> None:
    """Neither a PEM block nor a token taken apart shows what it holds."""
    block = pem.first((KEYS / "p256-pkcs8.pem").read_bytes())
    assert block is not None

    assert str(block.data) not in repr(block)


def test_changed_files_are_followed_and_bad_ones_are_not(tmp_path: Path) -> None:
    """A new key is used once it is readable; until then the old one stays and the reason shows."""
    path = copy("p256-pkcs8.pem", tmp_path, 0o600)
    followed = files.Reloading((path,), lambda: keys.load_signing_key(path))
    first = followed.current().kid

    files.write_private(path, b"half a file")
    during = followed.current().kid
    problem = followed.problem
    files.write_private(path, (KEYS / "p384-sec1.pem").read_bytes())
    after = followed.current()

    assert during == first
    assert problem is not None
    assert "private key" in problem
    assert after.algorithm == "ES384"
    assert followed.problem is None


@given(st.binary(max_size=200))
def test_base64url_has_one_spelling_for_each_value(data: bytes) -> None:
    """Decoding inverts encoding, and every other text of the same length decodes to other bytes."""
    text = keys.b64url_encode(data)

    assert keys.b64url_decode(text) == data
    assert b"=" not in text


@given(st.text("ABab01-_+/=.\n ", max_size=12))
def test_what_base64url_decodes_encodes_back_to_itself(text: str) -> None:
    """No padding, blank, foreign or non-canonical character gets through."""
    data = text.encode()
    try:
        value = keys.b64url_decode(data)
    except ValueError:
        return

    assert keys.b64url_encode(value) == data


def test_every_refusal_is_in_the_tree_of_its_module() -> None:
    """A caller can catch everything with one name, and the picture in the docstring is complete."""
    found = [each for each in vars(refusals).values() if isinstance(each, type)]
    named = [each for each in found if issubclass(each, Exception)]

    assert all(issubclass(each, refusals.Refusal) for each in named)
    assert all(each.__name__ in (refusals.__doc__ or "") for each in named)


@pytest.mark.parametrize("size", [32, 48, 66])
@given(data=st.data())
def test_a_signature_is_taken_out_of_its_der_as_two_numbers(size: int, data: st.DataObject) -> None:
    """Whatever the numbers are: small ones are shorter in DER, and some have a zero before them."""
    largest = 256 ** data.draw(st.integers(1, size)) - 1
    if size == 66:
        largest = min(largest, 2**521 - 1)
    r, s = data.draw(st.tuples(*[st.integers(1, largest)] * 2))

    found = keys.two_numbers(encode_dss_signature(r, s), size)

    assert found == r.to_bytes(size, "big") + s.to_bytes(size, "big")
