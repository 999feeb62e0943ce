"""Tokens: signed claims in compact JWS form (RFC 7515, RFC 7519, RFC 8725).

Start with `TokenSigner` to make them and `Verifier` to open them. The claims of service accounts
are typed (`AccountClaims`, `LegacyClaims`) and read by `AccountReader`; tokens of other issuers are
opened by the same Verifier with a reader of their own.

    verified = verifier.open(token, now)      signature, key and issuer; may come from the cache
    ... the caller compares audiences ...
    verified.check_times(now)                 at every use, never cached

What this module never does: take the algorithm or a key from the token, know HMAC or "none",
accept a second spelling of the same bytes, keep a token (the cache knows keyed hashes only), or
look up whether an account still exists.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from orchid.credentials.keys import (
    SIGNATURE_FAILED,
    SigningKey,
    VerificationKey,
    b64url_decode,
    b64url_encode,
)
from orchid.credentials.refusals import (
    BadSignature,
    CredentialExpired,
    IssuedInFuture,
    MalformedClaims,
    NotAToken,
    NotYetValid,
    UnknownKey,
    UnsafeHeader,
    WrongIssuer,
)
from orchid.credentials.secret import SecretValue

C = TypeVar("C")

LEEWAY = 60
MAX_TOKEN = 16 * 1024
MAX_HEADER = 2 * 1024
MAX_KID = 1024
CACHE_ENTRIES = 20_000

# Headers by which a token would bring its own key or its own rules.
_FORBIDDEN_HEADERS = frozenset(("crit", "jku", "jwk", "x5u", "x5c", "b64", "zip"))
# A token made for another purpose (a logout, a proof of possession) is no credential here.
_TYPES = frozenset(("", "jwt", "at+jwt", "application/at+jwt"))
_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that a token is bound to."""

    name: str = ""
    uid: str = ""


class AccountClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The private claim of a service account token: who it is, and what it is bound to."""

    namespace: str = ""
    node: Reference | None = None
    pod: Reference | None = None
    secret: Reference | None = None
    serviceaccount: Reference = Reference()
    warnafter: int | None = None


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The registered claims that we write and read."""

    aud: tuple[str, ...] = ()
    exp: int | None = None
    iat: int | None = None
    iss: str = ""
    jti: str = ""
    nbf: int | None = None
    sub: str = ""


class LegacyClaims(msgspec.Struct, frozen=True):
    """What the token of a SecretValue says; it has no times, no audience and no id."""

    sub: str
    namespace: str
    secret_name: str
    account_name: str
    account_uid: str


class AccountToken(msgspec.Struct, frozen=True):
    """A service account token, read: the registered claims and the private one."""

    claims: Claims
    account: AccountClaims


Payload = Mapping[str, Any]


class TokenSigner:
    """Sign claims for one issuer with one key.

    The header never changes, so it is encoded once. With an RSA key (`slow`) a signature takes
    milliseconds and belongs in a thread; all others take some sixty microseconds.
    """

    def __init__(self, key: SigningKey, issuer: str, private_claim: str) -> None:
        self.issuer = issuer
        self.kid = key.kid
        self.slow = key.slow
        self._sign = key.sign
        # alg and kid only, in byte order: what the reference writes.
        header = msgspec.json.encode({"alg": key.algorithm, "kid": key.kid})
        self._head = b64url_encode(header) + b"."
        self._private = b"," + msgspec.json.encode(private_claim) + b":"
        self._encode = msgspec.json.Encoder().encode

    def sign(self, claims: Claims, account: AccountClaims) -> SecretValue:
        """Make a service account token; `iss` is always this issuer's."""
        if claims.iss != self.issuer:
            claims = msgspec.structs.replace(claims, iss=self.issuer)
        registered = self._encode(claims)
        private = self._encode(account)
        return self._seal(b"".join((registered[:-1], self._private, private, b"}")))

    def sign_payload(self, payload: Payload) -> SecretValue:
        """Make a token from any claims; `iss` is always this issuer's."""
        return self._seal(self._encode({**payload, "iss": self.issuer}))

    def _seal(self, payload: bytes) -> SecretValue:
        signed = self._head + b64url_encode(payload)
        signature = b64url_encode(self._sign(signed))
        return SecretValue((signed + b"." + signature).decode("ascii"))


def legacy_payload(claims: LegacyClaims, prefix: str) -> dict[str, str]:
    """Spell the claims of a Secret's token; the legacy issuer signs them."""
    return {
        f"{prefix}/namespace": claims.namespace,
        f"{prefix}/secret.name": claims.secret_name,
        f"{prefix}/service-account.name": claims.account_name,
        f"{prefix}/service-account.uid": claims.account_uid,
        "sub": claims.sub,
    }


class AccountReader:
    """Read the payload of a service account token, bound or legacy."""

    def __init__(self, private_claim: str, legacy_issuer: str, legacy_prefix: str) -> None:
        self._private = private_claim
        self._legacy_issuer = legacy_issuer
        self._legacy = legacy_prefix

    def __call__(self, payload: Payload) -> AccountToken | LegacyClaims:
        """Give typed claims; raises MalformedClaims."""
        if payload.get("iss") == self._legacy_issuer:
            return self._read_legacy(payload)
        private = payload.get(self._private)
        if private is not None and not isinstance(private, dict):
            raise MalformedClaims("the private claim is not an object")
        return AccountToken(read_claims(payload), _convert(private or {}, AccountClaims))

    def _read_legacy(self, payload: Payload) -> LegacyClaims:
        def text(key: str) -> str:
            value = payload.get(key)
            if value is not None and not isinstance(value, str):
                raise MalformedClaims("a claim of the token is not a string")
            return value or ""

        return LegacyClaims(
            sub=text("sub"),
            namespace=text(f"{self._legacy}/namespace"),
            secret_name=text(f"{self._legacy}/secret.name"),
            account_name=text(f"{self._legacy}/service-account.name"),
            account_uid=text(f"{self._legacy}/service-account.uid"),
        )


def read_claims(payload: Payload) -> Claims:
    """Read the registered claims; a single audience may be a plain string (RFC 7519, 4.1.3)."""
    audience = payload.get("aud")
    return _convert(
        {
            **payload,
            "aud": [audience] if isinstance(audience, str) else audience,
            "exp": _seconds(payload, "exp"),
            "iat": _seconds(payload, "iat"),
            "nbf": _seconds(payload, "nbf"),
        },
        Claims,
    )


class Verified(msgspec.Struct, Generic[C], frozen=True):
    """A token whose signature and issuer are proven; its times are checked at each use."""

    claims: C
    issuer: str
    kid: str
    expires: int | None
    not_before: int | None
    issued_at: int | None
    generation: int = 0  # of the verifier's keys; with other keys the proof is worth nothing

    def check_times(
        self, now: float, *, leeway: int = LEEWAY, expiry_leeway: int | None = None
    ) -> None:
        """Return if the token is valid at a time; absent claims are not checked."""
        if self.not_before is not None and now + leeway < self.not_before:
            raise NotYetValid("service account token is not valid yet")
        grace = leeway if expiry_leeway is None else expiry_leeway
        if self.expires is not None and now - grace > self.expires:
            raise CredentialExpired("service account token has expired")
        if self.issued_at is not None and now + leeway < self.issued_at:
            raise IssuedInFuture("service account token is issued in the future")

    def valid_times(self, *, leeway: int = LEEWAY) -> tuple[float, float]:
        """The first and the last moment at which `check_times` returns."""
        begins = [moment for moment in (self.not_before, self.issued_at) if moment is not None]
        since = max(begins) - leeway if begins else -inf
        return since, inf if self.expires is None else self.expires + leeway


class KeySet:
    """The keys of one issuer, found by id."""

    def __init__(self, keys: Iterable[VerificationKey]) -> None:
        self.keys = tuple(keys)
        by_id: dict[str, list[VerificationKey]] = {}
        for key in self.keys:
            by_id.setdefault(key.kid, []).append(key)
        self._by_id = {kid: tuple(found) for kid, found in by_id.items()}

    def candidates(self, kid: str) -> tuple[VerificationKey, ...]:
        """Give the keys to try: those of the id, or all when the token names none."""
        return self._by_id.get(kid, ()) if kid else self.keys


@dataclass(frozen=True, slots=True)
class _Parts:
    """A token taken apart, nothing proven yet."""

    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    algorithm: str
    kid: str
    payload: dict[str, Any] = field(repr=False)


class Verifier(Generic[C]):
    """Open tokens of several issuers, each with keys of its own.

    Keys belong to their issuer: one issuer's key never proves another issuer's token. Verified
    signatures are remembered under a keyed hash, newest last, at most until the token expires.
    """

    def __init__(
        self,
        issuers: Mapping[str, KeySet],
        read: Callable[[Payload], C],
        *,
        cache_entries: int = CACHE_ENTRIES,
        cache_key: bytes | None = None,
        max_bytes: int = MAX_TOKEN,
    ) -> None:
        self._issuers = dict(issuers)
        self.generation = 0  # how often the keys were replaced
        self._read = read
        self._max_bytes = max_bytes
        self._entries = cache_entries
        self._hash = hashlib.blake2b(key=cache_key or secrets.token_bytes(32), digest_size=32)
        self._cache: dict[bytes, Verified[C]] = {}

    def replace_issuers(self, issuers: Mapping[str, KeySet]) -> None:
        """Take new keys; what the old ones proved is forgotten."""
        self._issuers = dict(issuers)
        self.generation += 1
        self._cache.clear()

    def verify(self, token: str | bytes, now: float) -> Verified[C]:
        """Open a token and check its times."""
        verified = self.open(token, now)
        verified.check_times(now)
        return verified

    def open(self, token: str | bytes, now: float) -> Verified[C]:
        """Prove signature and issuer of a token and read its claims.

        Raises NotAToken and WrongIssuer for what is not ours to judge, other kinds of
        TokenRefused for what is ours and wrong.
        """
        if len(token) > self._max_bytes:
            raise NotAToken(f"a token has at most {self._max_bytes} bytes")
        try:
            data = token if isinstance(token, bytes) else token.encode("ascii")
        except UnicodeEncodeError:
            raise NotAToken("a token is ASCII text") from None
        digest = self._hash.copy()
        digest.update(data)
        key, cache = digest.digest(), self._cache
        # Taken out and put back at the end: the oldest entry is always the first.
        known = cache.pop(key, None)
        if known is None:
            known = self._prove(data)
        if known.expires is None or now <= known.expires:
            cache[key] = known
            if len(cache) > self._entries:
                del cache[next(iter(cache))]
        return known

    def _prove(self, token: bytes) -> Verified[C]:
        parts = _take_apart(token)
        issuer = parts.payload.get("iss")
        keys = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise WrongIssuer(f'token issuer "{_shown(issuer)}" is invalid')
        assert isinstance(issuer, str)
        candidates = keys.candidates(parts.kid)
        if not candidates:
            raise UnknownKey("invalid signature, no keys found")
        proven = _prove_signature(parts, candidates)
        return Verified(
            claims=self._read(parts.payload),
            issuer=issuer,
            kid=proven.kid,
            expires=_seconds(parts.payload, "exp"),
            not_before=_seconds(parts.payload, "nbf"),
            issued_at=_seconds(parts.payload, "iat"),
            generation=self.generation,
        )


def _prove_signature(parts: _Parts, candidates: Iterable[VerificationKey]) -> VerificationKey:
    for key in candidates:
        # The record's algorithm decides; the header may only agree with it.
        if key.algorithm != parts.algorithm:
            continue
        try:
            key.verify(parts.signature, parts.signed)
        except BadSignature:
            continue
        return key
    raise BadSignature(SIGNATURE_FAILED)


def _take_apart(token: bytes) -> _Parts:
    form = _FORM.fullmatch(token)
    if form is None:
        raise NotAToken("not three base64url parts joined by dots")
    head, body, tail = form.groups()
    if len(head) > MAX_HEADER:
        raise NotAToken(f"the header of a token has at most {MAX_HEADER} bytes")
    try:
        header = _strict_object(b64url_decode(head))
        payload = _strict_object(b64url_decode(body))
        signature = b64url_decode(tail)
    except (ValueError, RecursionError):
        # json's errors quote what they read, which would be the token.
        raise NotAToken("the parts of the token are not strict base64url and JSON") from None
    algorithm, kid = _read_header(header)
    return _Parts(token[: form.end(2)], signature, algorithm, kid, payload)


def _read_header(header: Mapping[str, Any]) -> tuple[str, str]:
    if not _FORBIDDEN_HEADERS.isdisjoint(header):
        raise UnsafeHeader("the header of the token tries to say how to verify it")
    algorithm = header.get("alg")
    kid = header.get("kid", "")
    kind = header.get("typ", "")
    if not (isinstance(algorithm, str) and isinstance(kid, str) and isinstance(kind, str)):
        raise NotAToken("alg, kid and typ of a token are strings")
    if len(kid) > MAX_KID or kind.lower() not in _TYPES:
        raise NotAToken("kid or typ of the token are not acceptable")
    return algorithm, kid


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Two readers of the same token must never see different claims.
        raise ValueError("duplicate member")
    return found


def _no_constants(_: str) -> NoReturn:
    raise ValueError("not a JSON number")


_JSON = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constants)


def _strict_object(data: bytes) -> dict[str, Any]:
    value = _JSON.decode(data.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if b"\\u" in data:
        # Half a surrogate pair is no text: it would fail later, when it is written somewhere.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _seconds(payload: Payload, name: str) -> int | None:
    value = payload.get(name)
    if value is None:
        return None
    # bool is an int in Python, but no time.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedClaims(f"the claim {name} is not a number")
    try:
        return int(value)
    except (OverflowError, ValueError):
        raise MalformedClaims(f"the claim {name} is not a time") from None


def _convert(value: Mapping[str, Any], wanted: type[C]) -> C:
    try:
        present = {key: member for key, member in value.items() if member is not None}
        return msgspec.convert(present, wanted)
    except msgspec.ValidationError:
        raise MalformedClaims("a claim of the token has the wrong type") from None


def _shown(issuer: object) -> str:
    """Make an unproven issuer fit for a message: short and printable."""
    text = issuer if isinstance(issuer, str) else ""
    return "".join(c for c in text[:256] if c.isprintable())
