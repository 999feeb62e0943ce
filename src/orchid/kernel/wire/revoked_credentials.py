"""Credentials that a CredentialRevocation can name, one class for each way (`Revoked…`).

Each is one field of the spec (features/revocation/kinds/credential_revocation.py); `…_errors` are
the rules that need nothing else.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.wire.fields import FieldError, Path, invalid, required, too_long, too_many
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors
from orchid.kernel.wire.struct import Wire, describe, proto
from orchid.kernel.wire.user import ANONYMOUS, account_of

LONGEST_ID: Final = 256
LONGEST_USERNAME: Final = 1024
MOST_OTHERS: Final = 4

_is_sha256 = re.compile(r"[0-9a-f]{64}").fullmatch
_is_serial = re.compile(r"(?:0|[1-9a-f][0-9a-f]{0,39})").fullmatch


class RevokedCertificate(Wire):
    """One certificate: by fingerprint, by signer and serial number, or by its request.

    The server fills in the other fields if it can.
    """

    sha256: Annotated[str, proto(1), describe("SHA-256 of the certificate (DER), in hex.")] = ""
    signer_name: Annotated[str, proto(2), describe("The signer.")] = ""
    serial_number: Annotated[str, proto(3), describe("The serial number, in hex.")] = ""
    request_name: Annotated[str, proto(4), describe("The request that it was issued for.")] = ""
    authority_key: Annotated[
        str, proto(5), describe("The identifier of the key that signed it, in hex.")
    ] = ""
    other_sha256: Annotated[
        tuple[str, ...],
        proto(6),
        describe(
            "In a cluster: SHA-256 of the same certificate with its ECDSA signature written in the "
            "other valid way. The server fills it in if it has the certificate."
        ),
    ] = ()
    key_sha256: Annotated[
        str,
        proto(7),
        describe(
            "SHA-256 of its public key (SPKI), in hex. Filled in by the server, which issues "
            "nothing more for a compromised key."
        ),
    ] = ""


class RevokedToken(Wire):
    """A token of an account or of an issuer, by its id. With neither: any token with that id."""

    jti: Annotated[
        str, proto(1), describe("Its id, shown behind `JTI=` in audit records and reviews.")
    ] = ""
    namespace: Annotated[str, proto(2), describe("The namespace of its account.")] = ""
    name: Annotated[str, proto(3), describe("The name of its account.")] = ""
    expires: Annotated[
        Time | None,
        proto(4),
        describe("The expiry of the token (claim `exp`); the revocation ends then, too."),
    ] = None
    issuer: Annotated[
        str,
        proto(5),
        describe(
            "The issuer of the token (claim `iss`), one that this server "
            "accepts. Not together with an account."
        ),
    ] = ""


class RevokedAccount(Wire):
    """All tokens of an account that were issued up to a time."""

    namespace: Annotated[str, proto(1), describe("The namespace of the account.")] = ""
    name: Annotated[str, proto(2), describe("The name of the account.")] = ""
    issued_before: Annotated[
        Time | None,
        proto(3),
        describe("Tokens issued up to and including this second. Default: now."),
    ] = None


class RevokedAuthority(Wire):
    """All certificates of a signer that were issued up to a time."""

    signer_name: Annotated[str, proto(1), describe("The signer.")] = ""
    issued_before: Annotated[
        Time | None,
        proto(2),
        describe("Certificates issued up to and including this second. Default: now."),
    ] = None
    keys: Annotated[
        tuple[str, ...],
        proto(3),
        describe(
            "SHA-256 of the signer's public keys (SPKI), in hex. Filled in by the server, which "
            "uses it to refuse certificates that are not in the inventory."
        ),
    ] = ()


class RevokedUser(Wire):
    """Every credential of a user name, issued until some moment, by any way to authenticate."""

    username: Annotated[str, proto(1), describe("The user name.")] = ""
    issued_before: Annotated[
        Time | None,
        proto(2),
        describe(
            "Certificates and tokens issued until then, that second included. By default: until "
            "now. A time in the future locks the user out until then. Credentials without a time "
            "of issue (static tokens, request headers, webhook answers) are refused as long as the "
            "revocation exists. In a cluster, only certificates in the inventory have a time of "
            "issue, and it must not be in the future."
        ),
    ] = None


class RevokedKey(Wire):
    """Every token that a token key has signed, and the key itself."""

    name: Annotated[str, proto(1), describe("The name of the SigningKey.")] = ""
    key_id: Annotated[str, proto(2), describe("The `kid` of the key. The server fills it in.")] = (
        field(name="keyID", default="")
    )
    sha256: Annotated[
        str,
        proto(3),
        describe("SHA-256 of the public key (SPKI), in hex. Filled in by the server."),
    ] = ""


def certificate_errors(named: RevokedCertificate, path: Path) -> Iterator[FieldError]:
    if not (named.sha256 or named.serial_number or named.request_name):
        yield required(path, "say which: sha256, signerName and serialNumber, or requestName")
    if named.sha256 and not _is_sha256(named.sha256):
        yield invalid(path / "sha256", named.sha256, "must be 64 lower-case hexadecimal digits")
    for index, other in enumerate(named.other_sha256):
        if not _is_sha256(other):
            text = "must be 64 lower-case hexadecimal digits"
            yield invalid((path / "otherSha256")[index], other, text)
    if len(named.other_sha256) > MOST_OTHERS:
        yield too_many(path / "otherSha256", len(named.other_sha256), MOST_OTHERS)
    if named.serial_number:
        if not _is_serial(named.serial_number):
            text = "must be up to 40 lower-case hexadecimal digits without leading zeros"
            yield invalid(path / "serialNumber", named.serial_number, text)
        if not named.signer_name:
            yield required(path / "signerName", "serial numbers are unique per signer only")


def token_errors(named: RevokedToken, path: Path) -> Iterator[FieldError]:
    if not named.jti:
        yield required(path / "jti")
    elif len(named.jti) > LONGEST_ID:
        yield too_long(path / "jti", LONGEST_ID)
    if bool(named.namespace) != bool(named.name):
        yield required(path / ("name" if named.namespace else "namespace"))
    yield from name_errors(named, path)
    if named.issuer and (named.namespace or named.name):
        yield invalid(path / "issuer", named.issuer, "must not be given together with an account")


def account_errors(named: RevokedAccount, path: Path) -> Iterator[FieldError]:
    for name, value in (("namespace", named.namespace), ("name", named.name)):
        if not value:
            yield required(path / name)
    yield from name_errors(named, path)


def user_errors(name: str, path: Path) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif len(name) > LONGEST_USERNAME:
        yield too_long(path, LONGEST_USERNAME)
    elif account_of(name):
        yield invalid(path, name, "is a service account: name it as account")
    elif name == ANONYMOUS:
        yield invalid(path, name, "anonymous requests have no credential that could be revoked")


def future_errors(moment: Time | None, path: Path, created: Time | None) -> Iterator[FieldError]:
    """Validate that the time of issue is not after the creation of the revocation."""
    if moment is not None and created is not None and moment > created:
        yield invalid(path / "issuedBefore", moment, "must not be in the future")


def name_errors(named: RevokedToken | RevokedAccount, path: Path) -> Iterator[FieldError]:
    """A name that no account can have would silently revoke nothing."""
    rules = (("namespace", named.namespace, label_errors), ("name", named.name, subdomain_errors))
    for name, value, rule in rules:
        if value:
            for problem in rule(value):
                yield invalid(path / name, value, problem)
