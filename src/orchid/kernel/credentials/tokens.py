"""Tokens: signed claims in compact JWS form (RFC 7515, RFC 7519, RFC 8725).

Start with `TokenSigner` to issue and `Verifier` to verify them. Claims are parsed by a reader: the
AccountReader of token_claims.py, or that of another issuer.

    verified = verifier.open(token, now)      signature, key and issuer; may come from the cache
    ... the caller compares audiences ...
    verified.check_times(now)                 at every use, never cached

This module never takes the algorithm or a key from the token, supports HMAC or "none", accepts a
second encoding of the same bytes, stores a token (the cache has keyed hashes only), or checks
whether an account still exists.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from orchid.kernel.credentials.keys import (
    SIGNATURE_FAILED,
    TokenKey,
    VerificationKey,
    b64url_decode,
    b64url_encode,
)
from orchid.kernel.credentials.refusals import (
    BadSignature,
    CredentialExpired,
    IssuedInFuture,
    NotAToken,
    NotYetValid,
    UnknownKey,
    UnsafeHeader,
    WrongIssuer,
)
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.token_claims import AccountClaims, Claims, Payload, seconds_of

C = TypeVar("C")

LEEWAY = 60
MAX_TOKEN = 16 * 1024
MAX_HEADER = 2 * 1024
MAX_KID = 1024
MOST_TRIED = 8  # keys for one token: anybody can send one, and each key takes a millisecond
CACHE_ENTRIES = 20_000
EVENT_TYPE = "secevent+jwt"

# Headers that would provide a key or rules for the verification.
_FORBIDDEN_HEADERS = frozenset(("crit", "jku", "jwk", "x5u", "x5c", "b64", "zip"))
# Tokens for other purposes (a logout, a proof of possession) are no credentials here.
_TYPES = frozenset(("", "jwt", "at+jwt", "application/at+jwt"))
_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


class TokenSigner:
    """Sign claims for one issuer with one key.

    The header is constant and encoded once. With an RSA key (`slow`) a signature takes milliseconds
    and belongs in a thread; all others take some sixty microseconds.
    """

    def __init__(
        self, key: TokenKey, issuer: str, private_claim: str, *, long_after: float = inf
    ) -> None:
        """`long_after`: the lifetime in seconds above which a token has to be recorded."""
        self.issuer = issuer
        self.long_after = long_after
        self.kid = key.kid
        self.slow = key.slow
        self._sign = key.sign
        # Only alg and kid, sorted, as in Kubernetes.
        header = msgspec.json.encode({"alg": key.algorithm, "kid": key.kid})
        self._head = b64url_encode(header) + b"."
        self._algorithm = key.algorithm
        self._private = b"," + msgspec.json.encode(private_claim) + b":"
        self._encode = msgspec.json.Encoder().encode

    def sign(self, claims: Claims, account: AccountClaims) -> SecretValue:
        """Sign a service account token; `iss` is always this issuer."""
        if claims.iss != self.issuer:
            claims = msgspec.structs.replace(claims, iss=self.issuer)
        registered = self._encode(claims)
        private = self._encode(account)
        return self._seal(b"".join((registered[:-1], self._private, private, b"}")))

    def sign_payload(self, payload: Payload) -> SecretValue:
        """Sign any claims; `iss` is always this issuer."""
        return self._seal(self._encode({**payload, "iss": self.issuer}))

    def sign_event(self, claims: Payload) -> str:
        """Sign a Security Event Token (RFC 8417); its type keeps it from being a credential."""
        header = {"alg": self._algorithm, "kid": self.kid, "typ": EVENT_TYPE}
        head = b64url_encode(msgspec.json.encode(header)) + b"."
        return self._seal(self._encode(claims), head).reveal()

    def _seal(self, payload: bytes, head: bytes = b"") -> SecretValue:
        signed = (head or self._head) + b64url_encode(payload)
        signature = b64url_encode(self._sign(signed))
        return SecretValue((signed + b"." + signature).decode("ascii"))


class Verified(msgspec.Struct, Generic[C], frozen=True):
    """A token with a valid signature and issuer; its times are checked at each use."""

    claims: C
    issuer: str
    kid: str
    expires: int | None
    not_before: int | None
    issued_at: int | None

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
        """The first and the last time at which `check_times` returns."""
        begins = [moment for moment in (self.not_before, self.issued_at) if moment is not None]
        since = max(begins) - leeway if begins else -inf
        return since, inf if self.expires is None else self.expires + leeway


class KeySet:
    """The keys of one issuer, by id."""

    def __init__(self, keys: Iterable[VerificationKey]) -> None:
        """Of an issuer with many keys of one id, the first ones count."""
        by_id: dict[str, list[VerificationKey]] = {}
        for key in keys:
            same = by_id.setdefault(key.kid, [])
            if sum(other.algorithm == key.algorithm for other in same) < MOST_TRIED:
                same.append(key)
        self._by_id = {kid: tuple(candidates) for kid, candidates in by_id.items()}
        self.keys = tuple(chain.from_iterable(self._by_id.values()))

    def candidates(self, kid: str) -> tuple[VerificationKey, ...]:
        """The keys to try: those of the id, or all if the token has no key id."""
        return self._by_id.get(kid, ()) if kid else self.keys


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a token, not verified."""

    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    algorithm: str
    kid: str
    payload: dict[str, Any] = field(repr=False)


class Verifier(Generic[C]):
    """Verifies tokens of several issuers, each with its own keys.

    A key only verifies tokens of its issuer. Verified signatures are cached under a keyed hash, at
    most until the token expires; the oldest entries are dropped first.
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
        self.kids = _kids(self._issuers)
        self._read = read
        self._max_bytes = max_bytes
        self._entries = cache_entries
        self._hash = hashlib.blake2b(key=cache_key or secrets.token_bytes(32), digest_size=32)
        self._cache: dict[bytes, Verified[C]] = {}

    def replace_issuers(self, issuers: Mapping[str, KeySet]) -> None:
        """Use other keys; cached verifications by a key that is gone are dropped."""
        removed = {
            (issuer, key.kid)
            for issuer, before in self._issuers.items()
            for key in before.keys
            if issuer not in issuers or key not in issuers[issuer].candidates(key.kid)
        }
        self._issuers = dict(issuers)
        self.kids = _kids(self._issuers)
        if removed:
            self._cache = {
                digest: verified
                for digest, verified in self._cache.items()
                if (verified.issuer, verified.kid) not in removed
            }

    def verify(self, token: str | bytes, now: float) -> Verified[C]:
        """Verify a token and check its times."""
        verified = self.open(token, now)
        verified.check_times(now)
        return verified

    def open(self, token: str | bytes, now: float) -> Verified[C]:
        """Verify signature and issuer of a token and parse its claims.

        Raises NotAToken and WrongIssuer for tokens of others, other subclasses of TokenRefused for
        invalid tokens of ours.
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
        # Removed and inserted again at the end: the oldest entry is always the first.
        verified = cache.pop(key, None)
        if verified is None:
            verified = self._prove(data)
        if verified.expires is None or now <= verified.expires:
            cache[key] = verified
            if len(cache) > self._entries:
                del cache[next(iter(cache))]
        return verified

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
            expires=seconds_of(parts.payload, "exp"),
            not_before=seconds_of(parts.payload, "nbf"),
            issued_at=seconds_of(parts.payload, "iat"),
        )


def _kids(issuers: Mapping[str, KeySet]) -> frozenset[str]:
    """The ids of all keys."""
    return frozenset(key.kid for found in issuers.values() for key in found.keys)


def _prove_signature(parts: _Parts, candidates: Iterable[VerificationKey]) -> VerificationKey:
    # The key record decides on the algorithm; the header must agree with it.
    fitting = (key for key in candidates if key.algorithm == parts.algorithm)
    for key in islice(fitting, MOST_TRIED):
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
        # json's errors quote their input, which would be the token.
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
    members = dict(pairs)
    if len(members) != len(pairs):
        # Two parsers of the same token must never see different claims.
        raise ValueError("duplicate member")
    return members


def _no_constants(_: str) -> NoReturn:
    raise ValueError("not a JSON number")


_JSON = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constants)


def _strict_object(data: bytes) -> dict[str, Any]:
    value = _JSON.decode(data.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if b"\\u" in data:
        # Half a surrogate pair is no text: encoding it would fail later.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _shown(issuer: object) -> str:
    """An unverified issuer for a message: short and printable."""
    text = issuer if isinstance(issuer, str) else ""
    return "".join(c for c in text[:256] if c.isprintable())
