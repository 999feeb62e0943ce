"""Claims of tokens: their types, and how they are parsed.

The claims of service accounts are typed: `AccountClaims`, or `LegacyClaims` of a token that is
stored in a Secret. `AccountReader` parses both, `read_claims` the registered claims of any issuer.
The signature is verified before, in tokens.py; nothing here decides whether a token is valid.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from orchid.kernel.credentials.refusals import MalformedClaims

C = TypeVar("C")


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that a token is bound to."""

    name: str = ""
    uid: str = ""


class ExchangeClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The policy that allowed an exchange, and the token that was exchanged.

    With its user and time of issue, if its issuer also authenticates users of the API.
    """

    jti: str = ""
    policy: Reference = Reference()
    user: str = ""
    iat: int = 0


class AccountClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The private claim of a service account token: the account and the bound objects."""

    exchange: ExchangeClaims | None = None
    namespace: str = ""
    node: Reference | None = None
    pod: Reference | None = None
    secret: Reference | None = None
    serviceaccount: Reference = Reference()
    warnafter: int | None = None


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outside identity that acts as the subject of a token (RFC 8693, section 4.1)."""

    iss: str = ""
    sub: str = ""


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The supported registered claims."""

    act: Actor | None = None
    aud: tuple[str, ...] = ()
    exp: int | None = None
    iat: int | None = None
    iss: str = ""
    jti: str = ""
    nbf: int | None = None
    sub: str = ""


class LegacyClaims(msgspec.Struct, frozen=True):
    """Claims of a token stored in a Secret: no times, audience or id."""

    sub: str
    namespace: str
    secret_name: str
    account_name: str
    account_uid: str


class AccountToken(msgspec.Struct, frozen=True):
    """A parsed service account token: the registered claims and the private one."""

    claims: Claims
    account: AccountClaims


Payload = Mapping[str, Any]


def legacy_payload(claims: LegacyClaims, prefix: str) -> dict[str, str]:
    """The claims of a Secret's token, which the legacy issuer signs."""
    return {
        f"{prefix}/namespace": claims.namespace,
        f"{prefix}/secret.name": claims.secret_name,
        f"{prefix}/service-account.name": claims.account_name,
        f"{prefix}/service-account.uid": claims.account_uid,
        "sub": claims.sub,
    }


class AccountReader:
    """Parses the payload of a service account token, bound or legacy."""

    def __init__(self, private_claim: str, legacy_issuer: str, legacy_prefix: str) -> None:
        self._private = private_claim
        self._legacy_issuer = legacy_issuer
        self._legacy = legacy_prefix

    def __call__(self, payload: Payload) -> AccountToken | LegacyClaims:
        """Return typed claims; raises MalformedClaims."""
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
    """Parse the registered claims; a single audience may be a string (RFC 7519, 4.1.3)."""
    audience = payload.get("aud")
    return _convert(
        {
            **payload,
            "aud": [audience] if isinstance(audience, str) else audience,
            "exp": seconds_of(payload, "exp"),
            "iat": seconds_of(payload, "iat"),
            "nbf": seconds_of(payload, "nbf"),
        },
        Claims,
    )


def seconds_of(payload: Payload, name: str) -> int | None:
    """A claim that is a time."""
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


def _convert(value: Mapping[str, Any], type_: type[C]) -> C:
    try:
        present = {key: member for key, member in value.items() if member is not None}
        return msgspec.convert(present, type_)
    except msgspec.ValidationError:
        raise MalformedClaims("a claim of the token has the wrong type") from None
