"""Tokens: what we sign others accept, what others sign we accept, all else is refused."""

import contextlib
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from orchid.kernel.credentials import keys, tokens
from orchid.kernel.credentials.refusals import (
    BadSignature,
    CredentialExpired,
    IssuedInFuture,
    MalformedClaims,
    NotAToken,
    NotYetValid,
    TokenRefused,
    UnknownKey,
    UnsafeHeader,
    WrongIssuer,
)
from orchid.kernel.credentials.token_claims import (
    AccountClaims,
    AccountReader,
    Claims,
    LegacyClaims,
    Payload,
    Reference,
    legacy_payload,
)
from tests.unit.kernel.credentials.samples import DATA, ED25519, OTHER_P256, P256, rsa_key

ISSUER = "https://issuer.example"
NOW = 1_767_323_045.5
KEY = keys.TokenKey(P256)
READER = AccountReader("example.io", "example/serviceaccount", "example.io/serviceaccount")

CLAIMS = Claims(
    aud=("https://issuer.example",),
    exp=1_767_326_645,
    iat=1_767_323_045,
    jti="0c1f3f0e-8f5b-4b0e-9a55-6a0f4d7f1f11",
    nbf=1_767_323_045,
    sub="system:serviceaccount:ci:builder",
)
ACCOUNT = AccountClaims(
    namespace="ci",
    node=Reference("n1", "node-uid"),
    pod=Reference("p1", "pod-uid"),
    serviceaccount=Reference("builder", "account-uid"),
)


def all_keys() -> list[keys.TokenKey]:
    names = ("p384-sec1.pem", "p521-sec1.pem")
    stored = [keys.read_private_key((DATA / "keys" / name).read_bytes()) for name in names]
    return [keys.TokenKey(key) for key in (P256, rsa_key(), ED25519, *stored)]


def verifier(*signing: keys.TokenKey, **options: Any) -> tokens.Verifier[Any]:
    key_set = tokens.KeySet(key.public for key in signing or (KEY,))
    return tokens.Verifier({ISSUER: key_set}, READER, **options)


def payload_reader(payload: Payload) -> Payload:
    return payload


def good(key: keys.TokenKey = KEY) -> str:
    return tokens.TokenSigner(key, ISSUER, "example.io").sign(CLAIMS, ACCOUNT).reveal()


def encoded(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return keys.b64url_encode(data)


def forge(
    header: object,
    payload: object = None,
    sign: Callable[[bytes], bytes] = KEY.sign,
) -> bytes:
    """Create a token with any header and payload, correctly signed by default."""
    claims = {"iss": ISSUER, "exp": NOW + 60} if payload is None else payload
    signed = encoded(header) + b"." + encoded(claims)
    return signed + b"." + keys.b64url_encode(sign(signed))


def header(**extra: object) -> dict[str, object]:
    return {"alg": "ES256", "kid": KEY.kid, **extra}


# --- what we make -------------------------------------------------------------------------


def test_a_token_has_the_reference_form() -> None:
    """Header of alg and kid only; audiences as a list; the private claim as an object."""
    head, body, _ = good().split(".")

    assert json.loads(keys.b64url_decode(head.encode())) == {"alg": "ES256", "kid": KEY.kid}
    assert json.loads(keys.b64url_decode(body.encode())) == {
        "aud": ["https://issuer.example"],
        "exp": 1767326645,
        "iat": 1767323045,
        "iss": ISSUER,
        "jti": "0c1f3f0e-8f5b-4b0e-9a55-6a0f4d7f1f11",
        "nbf": 1767323045,
        "sub": "system:serviceaccount:ci:builder",
        "example.io": {
            "namespace": "ci",
            "node": {"name": "n1", "uid": "node-uid"},
            "pod": {"name": "p1", "uid": "pod-uid"},
            "serviceaccount": {"name": "builder", "uid": "account-uid"},
        },
    }


def test_the_issuer_cannot_be_chosen_by_the_claims() -> None:
    """A claim that names another issuer is overwritten."""
    issuer = tokens.TokenSigner(KEY, ISSUER, "example.io")

    token = issuer.sign(Claims(iss="https://evil.example"), ACCOUNT)
    plain = issuer.sign_payload({"iss": "https://evil.example"})

    for each in (token, plain):
        body = keys.b64url_decode(each.reveal().split(".")[1].encode())
        assert json.loads(body)["iss"] == ISSUER


def test_a_token_reads_back_as_typed_claims() -> None:
    """Opening returns what was signed, with the issuer filled in."""
    verified = verifier().verify(good(), NOW)

    assert verified.claims.account == ACCOUNT
    assert verified.claims.claims.sub == CLAIMS.sub
    assert verified.claims.claims.aud == CLAIMS.aud
    assert verified.issuer == ISSUER
    assert verified.kid == KEY.kid


def test_legacy_tokens_carry_and_yield_their_claims() -> None:
    """The token of a Secret has its own claims, no times, and reads back typed."""
    claims = LegacyClaims("system:serviceaccount:ci:b", "ci", "b-token", "b", "uid")
    issuer = tokens.TokenSigner(KEY, "example/serviceaccount", "example.io")
    token = issuer.sign_payload(legacy_payload(claims, "example.io/serviceaccount"))
    check = tokens.Verifier({"example/serviceaccount": tokens.KeySet([KEY.public])}, READER)

    verified = check.verify(token.reveal(), NOW)

    assert verified.claims == claims
    assert verified.expires is None


# --- other implementations ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # joserfc prefers the name Ed25519
@pytest.mark.parametrize("key", all_keys(), ids=lambda key: key.algorithm)
def test_pyjwt_and_joserfc_accept_what_we_sign(key: keys.TokenKey) -> None:
    """Two independent libraries verify our signature with our published key."""
    token = good(key)
    jwk = key.public.jwk()
    imports = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}

    by_pyjwt = jwt.decode(
        token,
        jwt.PyJWK.from_dict(jwk).key,
        [key.algorithm],
        audience=ISSUER,
        options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )
    by_joserfc = jws.deserialize_compact(
        token, imports[jwk["kty"]].import_key(jwk), algorithms=[key.algorithm]
    )

    assert by_pyjwt["example.io"]["namespace"] == "ci"
    assert json.loads(by_joserfc.payload) == by_pyjwt


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # joserfc prefers the name Ed25519
@pytest.mark.parametrize("key", all_keys(), ids=lambda key: key.algorithm)
def test_we_accept_what_pyjwt_and_joserfc_sign(key: keys.TokenKey) -> None:
    """Tokens of two independent libraries open with our verifier."""
    private = serialization.load_pem_private_key(key.pem().reveal().encode(), None)
    claims = {"iss": ISSUER, "sub": "s", "aud": "one", "exp": int(NOW) + 60}
    imports = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}
    owner = imports[key.public.jwk()["kty"]].import_key(key.pem().reveal())
    head = {"alg": key.algorithm, "kid": key.kid}

    by_pyjwt = jwt.encode(claims, private, key.algorithm, headers={"kid": key.kid})
    by_joserfc = jws.serialize_compact(
        head, json.dumps(claims).encode(), owner, algorithms=[key.algorithm]
    )

    for token in (by_pyjwt, by_joserfc):
        assert verifier(key).verify(token, NOW).claims.claims.aud == ("one",)


def test_the_example_of_rfc_7515_is_accepted() -> None:
    """The published ES256 token opens with the published key, without a key id."""
    vector = json.loads((DATA / "tokens" / "rfc7515-appendix-a3.json").read_text())
    published = tokens.KeySet(keys.read_jwks({"keys": [vector["jwk"]]}, ["ES256"]))
    check = tokens.Verifier({"joe": published}, payload_reader)

    verified = check.verify(vector["token"], 1_300_819_380)

    assert verified.claims["http://example.com/is_root"] is True


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS384", "PS512"])
def test_other_rsa_algorithms_open_only_where_permitted(algorithm: str) -> None:
    """An outside issuer's RSA key serves exactly the algorithms that were permitted for it."""
    private = rsa_key()
    jwk = keys.TokenKey(private).public.jwk()
    del jwk["alg"]
    token = jwt.encode({"iss": ISSUER}, private, algorithm, headers={"kid": jwk["kid"]})

    permitted = tokens.KeySet(keys.read_jwks({"keys": [jwk]}, [algorithm]))
    other = tokens.KeySet(keys.read_jwks({"keys": [jwk]}, ["RS256"]))

    assert tokens.Verifier({ISSUER: permitted}, payload_reader).open(token, NOW)
    with pytest.raises(BadSignature):
        tokens.Verifier({ISSUER: other}, payload_reader).open(token, NOW)


# --- attacks: algorithm and key confusion ---------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "nOnE", "NONE", "", "HS256", "es256", "RS256"]
)
def test_another_algorithm_in_the_header_never_verifies(algorithm: str) -> None:
    """Neither an unsigned token nor one with a good signature under a wrong name gets in."""
    for sign in (KEY.sign, lambda _: b""):
        with pytest.raises(BadSignature):
            verifier().open(forge(header(alg=algorithm), sign=sign), NOW)


def public_forms() -> list[bytes]:
    public = KEY.public.public
    openssh = public.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    der_form = keys.spki(public)
    pem_form = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return [pem_form, pem_form.strip(), der_form, openssh, json.dumps(KEY.public.jwk()).encode()]


@pytest.mark.parametrize("secret", public_forms(), ids=["pem", "stripped", "der", "ssh", "jwk"])
@pytest.mark.parametrize("digest", ["256", "384", "512"])
def test_the_public_key_is_never_an_hmac_secret(secret: bytes, digest: str) -> None:
    """HS256 and its sisters, keyed with our public key in any form, do not verify."""
    algorithm = f"HS{digest}"

    def sign(signed: bytes) -> bytes:
        return hmac.new(secret, signed, f"sha{digest}").digest()

    for kid in ({"kid": KEY.kid}, {}):
        with pytest.raises(BadSignature):
            verifier().open(forge({"alg": algorithm, **kid}, sign=sign), NOW)


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "crit", "b64", "zip"])
def test_a_header_that_brings_its_own_key_or_rules_is_refused(name: str) -> None:
    """Even with a good signature, a token may not say how to verify it."""
    values: dict[str, object] = {"jwk": KEY.public.jwk(), "crit": ["exp"], "b64": False}

    with pytest.raises(UnsafeHeader):
        verifier().open(forge(header(**{name: values.get(name, "https://evil.example")})), NOW)


def test_an_unknown_key_id_is_not_tried_with_other_keys() -> None:
    """A key id selects; there is no fall-back to the remaining keys."""
    with pytest.raises(UnknownKey, match=r"^invalid signature, no keys found$"):
        verifier().open(forge(header(kid="other")), NOW)


def test_without_a_key_id_every_key_of_the_issuer_is_tried() -> None:
    """A token that names no key is accepted if any key of its issuer made it."""
    other = keys.TokenKey(OTHER_P256)

    assert verifier(other, KEY).open(forge({"alg": "ES256"}), NOW).kid == KEY.kid
    with pytest.raises(BadSignature):
        verifier(other).open(forge({"alg": "ES256"}), NOW)


def test_one_issuers_key_does_not_sign_for_another() -> None:
    """A token of tenant A that claims to be of B, under A's key id, is refused."""
    mine, theirs = KEY, keys.TokenKey(OTHER_P256)
    issuers = {
        "https://a.example": tokens.KeySet([mine.public]),
        "https://b.example": tokens.KeySet([theirs.public]),
    }
    check = tokens.Verifier(issuers, payload_reader)

    for kid in ({"kid": mine.kid}, {"kid": theirs.kid}, {}):
        with pytest.raises((UnknownKey, BadSignature)):
            check.open(forge({"alg": "ES256", **kid}, {"iss": "https://b.example"}), NOW)


@pytest.mark.parametrize(
    "issuer",
    ["", "https://issuer.exampl", "https://issuer.example/", "HTTPS://ISSUER.EXAMPLE", [ISSUER], 7],
)
def test_the_issuer_must_match_exactly(issuer: object) -> None:
    """No prefix, no other case, no list: equal text or not ours."""
    with pytest.raises(WrongIssuer, match=r'^token issuer ".*" is invalid$'):
        verifier().open(forge(header(), {"iss": issuer}), NOW)


# --- attacks: the bytes -------------------------------------------------------------------------


def test_zero_and_oversized_numbers_in_a_signature_are_refused() -> None:
    """ECDSA signatures with r or s of zero, or not below the order, never verify."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    for r, s in ((0, 0), (0, 1), (1, 0), (order, order), (order, 1), (2**256 - 1, 2**256 - 1)):
        raw = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        with pytest.raises(BadSignature):
            verifier().open(forge(header(), sign=lambda _, raw=raw: raw), NOW)


def test_only_the_fixed_size_signature_form_is_accepted() -> None:
    """The same numbers in DER, or padded, or cut, are another spelling and refused."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    def as_der(signed: bytes) -> bytes:
        return P256.sign(signed, ec.ECDSA(hashes.SHA256()))

    def wide(signed: bytes) -> bytes:
        r, s = decode_dss_signature(as_der(signed))
        return r.to_bytes(33, "big") + s.to_bytes(33, "big")

    def padded(signed: bytes) -> bytes:
        raw = KEY.sign(signed)
        return raw[:32] + b"\0" + raw[32:]  # a reader that takes the rest for s finds the same s

    for sign in (
        as_der,
        wide,
        padded,
        lambda signed: KEY.sign(signed) + b"\0",
        lambda m: KEY.sign(m)[:-1],
    ):
        with pytest.raises(BadSignature):
            verifier().open(forge(header(), sign=sign), NOW)


def test_duplicate_members_are_refused_in_header_and_claims() -> None:
    """Two readers must never see two different tokens in the same bytes."""
    kid = KEY.kid.encode()
    twice_header = b'{"alg":"none","alg":"ES256","kid":"' + kid + b'"}'
    twice_claim = b'{"iss":"https://evil.example","iss":"https://issuer.example"}'
    nested = b'{"iss":"https://issuer.example","example.io":{"namespace":"a","namespace":"b"}}'

    for head, body in ((twice_header, None), (header(), twice_claim), (header(), nested)):
        with pytest.raises(NotAToken):
            verifier().open(forge(head, body), NOW)


@pytest.mark.parametrize(
    "body",
    [
        b'{"iss":"https://issuer.example","exp":NaN}',
        b'{"iss":"https://issuer.example","exp":Infinity}',
        b'{"iss":"https://issuer.example","x":"\\ud800"}',
        b'["https://issuer.example"]',
        b'"text"',
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"{",
        b'{"iss":"https://issuer.example"} ,',
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
    ],
)
def test_payloads_that_are_not_strict_json_objects_are_refused(body: bytes) -> None:
    """Numbers that are none, half characters, other types, deep nesting: not a token."""
    with pytest.raises(NotAToken):
        verifier(max_bytes=100_000).open(forge(header(), body), NOW)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t + b"=",
        lambda t: t + b"\n",
        lambda t: b" " + t,
        lambda t: t + b".",
        lambda t: b"." + t,
        lambda t: t.replace(b".", b"..", 1),
        lambda t: t.rsplit(b".", 1)[0],
        lambda t: t.replace(b".", b".=", 1),
        lambda t: t.replace(b".", b"+.", 1),
        lambda t: b"",
        lambda t: b"a.b.c.d.e",
        lambda t: b"\xff" + t,
    ],
)
def test_other_spellings_of_a_token_are_refused(change: Callable[[bytes], bytes]) -> None:
    """Padding, blanks, extra parts and foreign characters make it no token."""
    with pytest.raises(NotAToken):
        verifier().open(change(good().encode()), NOW)


def test_the_last_character_of_a_part_has_one_spelling() -> None:
    """Unused bits must be zero, or one signature would have four texts."""
    token = good()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert len(token.rsplit(".", 1)[1]) == 86
    at = alphabet.index(token[-1])

    for other in range(at + 1, at + 16):
        with pytest.raises(NotAToken):
            verifier().open(token[:-1] + alphabet[other], NOW)


def test_oversized_tokens_headers_and_key_ids_are_refused() -> None:
    """The size is checked before anything is decoded."""
    with pytest.raises(NotAToken, match=f"at most {tokens.MAX_TOKEN} bytes"):
        verifier().open(b"a" * (tokens.MAX_TOKEN + 1), NOW)
    for token in (
        forge(header(kid="k" * (tokens.MAX_KID + 1))),
        forge(header(x="y" * tokens.MAX_HEADER)),
    ):
        with pytest.raises(NotAToken):
            verifier().open(token, NOW)
    with pytest.raises(NotAToken):
        verifier().open("é" * 10, NOW)


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "secevent+jwt", "JOSE", 7, None])
def test_tokens_made_for_another_purpose_are_refused(kind: object) -> None:
    """A typed token of another kind is no credential, however well it is signed."""
    with pytest.raises(NotAToken):
        verifier().open(forge(header(typ=kind)), NOW)


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt"])
def test_usual_types_are_accepted(kind: str) -> None:
    """A type header of an ordinary token does no harm."""
    assert verifier().open(forge(header(typ=kind)), NOW)


@given(place=st.integers(min_value=0), change=st.integers(min_value=1, max_value=255))
def test_no_changed_byte_survives(place: int, change: int) -> None:
    """A token with any byte changed to any other is refused by name."""
    token = bytearray(TOKEN)
    token[place % len(token)] ^= change

    with pytest.raises(TokenRefused):
        VERIFIER.open(bytes(token), NOW)


TOKEN = good().encode()
VERIFIER = verifier()


@given(st.binary(max_size=400) | st.text(max_size=400))
def test_any_input_is_refused_by_name(token: bytes | str) -> None:
    """Any input gives a named refusal."""
    with pytest.raises(TokenRefused):
        VERIFIER.open(token, NOW)


# --- claims and times ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": 1e400},
        {"nbf": []},
        {"aud": 5},
        {"aud": [1]},
        {"sub": 5},
        {"example.io": "text"},
        {"example.io": {"namespace": 5}},
        {"example.io": {"pod": "p"}},
        {"example.io": {"serviceaccount": {"name": []}}},
    ],
)
def test_signed_claims_of_the_wrong_type_are_refused(claims: dict[str, object]) -> None:
    """A signature does not excuse a malformed claim."""
    body = json.dumps({"iss": ISSUER, **claims}).replace("Infinity", "1e400").encode()

    with pytest.raises(MalformedClaims):
        verifier().open(forge(header(), body), NOW)


def test_null_claims_count_as_absent() -> None:
    """Clients in other languages write null for nothing."""
    body = {"iss": ISSUER, "exp": None, "aud": None, "example.io": {"pod": None, "warnafter": None}}

    verified = verifier().open(forge(header(), body), NOW)

    assert verified.expires is None
    assert verified.claims.account.pod is None


@pytest.mark.parametrize(
    ("claims", "offset", "refusal"),
    [
        ({"nbf": 0}, -60, None),
        ({"nbf": 0}, -61, NotYetValid),
        ({"exp": 0}, 60, None),
        ({"exp": 0}, 61, CredentialExpired),
        ({"iat": 0}, -60, None),
        ({"iat": 0}, -61, IssuedInFuture),
        ({"nbf": 100, "exp": -100, "iat": 100}, 0, NotYetValid),
    ],
)
def test_times_are_checked_with_a_minute_of_leeway(
    claims: dict[str, int], offset: int, refusal: type[Exception] | None
) -> None:
    """Valid to the second at the edge of the leeway, refused one second beyond."""
    moment = 1_800_000_000
    body = {"iss": ISSUER, **{name: moment + value for name, value in claims.items()}}
    token = forge(header(), body)

    if refusal is None:
        verifier().verify(token, moment + offset)
    else:
        with pytest.raises(refusal, match=r"^service account token "):
            verifier().verify(token, moment + offset)


@pytest.mark.parametrize(
    "claims", [{}, {"nbf": 50}, {"iat": 70}, {"nbf": 50, "iat": 70, "exp": 90}]
)
def test_the_valid_times_are_those_at_which_the_times_are_accepted(claims: dict[str, int]) -> None:
    """So that a cache need not check each claim again."""
    verified = verifier().open(forge(header(), {"iss": ISSUER, **claims}), 0)
    since, until = verified.valid_times()
    accepted = set()

    for moment in range(-20, 200):
        with contextlib.suppress(NotYetValid, IssuedInFuture, CredentialExpired):
            verified.check_times(moment)
            accepted.add(moment)

    assert accepted == {moment for moment in range(-20, 200) if since <= moment <= until}


def test_outside_issuers_get_no_leeway_on_expiry() -> None:
    """The leeway on expiry can be switched off separately."""
    verified = verifier().open(forge(header(), {"iss": ISSUER, "exp": 1000}), 900)

    verified.check_times(1000, expiry_leeway=0)
    with pytest.raises(CredentialExpired):
        verified.check_times(1001, expiry_leeway=0)


# --- the cache ------------------------------------------------------------------------------------


class Counting:
    """A reader that counts how often a token was really opened."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, payload: Payload) -> Payload:
        self.count += 1
        return payload


def counted(**options: Any) -> tuple[tokens.Verifier[Payload], Counting]:
    reader = Counting()
    return tokens.Verifier({ISSUER: tokens.KeySet([KEY.public])}, reader, **options), reader


def test_a_proven_signature_is_remembered_and_times_are_not() -> None:
    """The second look costs no signature check, yet an expired token is refused from the cache."""
    check, reader = counted()
    token = forge(header(), {"iss": ISSUER, "exp": 1000})

    check.verify(token, 900)
    check.verify(token.decode(), 950)
    with pytest.raises(CredentialExpired):
        check.verify(token, 1061)

    assert reader.count == 1


def test_nothing_is_remembered_beyond_expiry() -> None:
    """An expired token is verified each time and never cached."""
    check, reader = counted()
    token = forge(header(), {"iss": ISSUER, "exp": 1000})

    for now in (900, 1001, 1001):
        check.open(token, now)

    assert reader.count == 2
    assert not check._cache


def test_the_cache_is_bounded_and_drops_the_least_recently_used() -> None:
    """A flood of tokens cannot grow memory; a token in use stays."""
    check, reader = counted(cache_entries=2)
    first, second, third = (forge(header(), {"iss": ISSUER, "n": n}) for n in range(3))

    for token in (first, second, first, third, first):
        check.open(token, NOW)
    assert reader.count == 3

    check.open(second, NOW)
    assert reader.count == 4
    assert len(check._cache) == 2


def test_the_cache_holds_keyed_hashes_and_no_tokens() -> None:
    """Nobody who sees the keys of the cache can test a guess against them."""
    check, _ = counted()
    token = forge(header())

    check.open(token, NOW)

    (key,) = check._cache
    assert key not in {hashlib.blake2b(token, digest_size=32).digest(), token}


def test_refused_tokens_are_not_remembered() -> None:
    """Only proof is cached."""
    check, _ = counted()

    with pytest.raises(BadSignature):
        check.open(forge(header(), sign=lambda _: b"\1" * 64), NOW)

    assert not check._cache


def test_new_keys_forget_what_old_keys_proved() -> None:
    """After a rotation that drops a key, its tokens are refused at once."""
    check, _ = counted()
    token = forge(header())
    check.open(token, NOW)

    check.replace_issuers({ISSUER: tokens.KeySet([keys.TokenKey(OTHER_P256).public])})

    with pytest.raises(UnknownKey):
        check.open(token, NOW)


def test_refusals_never_quote_the_token() -> None:
    """No part of a refused token appears in the text of its refusal."""
    canary = "canarycanary"
    attempts = [
        canary.encode(),
        forge(header(kid=canary)),
        forge(header(x5u=canary)),
        forge(header(), {"iss": ISSUER, "sub": {"a": canary}}),
        forge(header(), b'{"iss": ' + canary.encode()),
    ]
    for token in attempts:
        with pytest.raises(TokenRefused) as caught:
            verifier().open(token, NOW)
        assert canary not in str(caught.value)
        assert caught.value.__cause__ is None
