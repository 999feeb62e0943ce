"""Credentials that the server issued to users, as a thief can copy them.

Tokens come from answers, certificates from requests that were signed; both have the label of the
operation that asked for them. Nothing is verified here: claims are read as any client can read
them, with PyJWT.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from tests.adversary.calls import Proof
from tests.adversary.pool import Pair, digest, pem


@dataclass
class Credential:
    """A token of an account, a client certificate with its key, or an ACME account."""

    label: str
    user: str
    proof: Proof
    account: tuple[str, str] = ("", "")  # of a token: namespace and name
    account_uid: str = ""
    jti: str = ""
    key_id: str = ""  # of the key that signed the token
    serial: str = ""
    sha256: str = ""
    signer: str = ""
    groups: tuple[str, ...] = ()
    issuer_key: str = ""  # digest of the public key that signed the certificate
    certificate: x509.Certificate | None = field(default=None, repr=False)

    @property
    def is_token(self) -> bool:
        return bool(self.jti)

    @property
    def what(self) -> str:
        if self.is_token:
            return "token"
        return "certificate" if self.sha256 else "ACME account"


def of_token(label: str, token: str) -> Credential:
    claims = jwt.decode(token, options={"verify_signature": False})
    namespace, name = claims["sub"].split(":")[2:]
    account = next(iter(value for key, value in claims.items() if key.endswith(".io")), {})
    return Credential(
        label,
        claims["sub"],
        Proof(token=token),
        account=(namespace, name),
        account_uid=account.get("serviceaccount", {}).get("uid", ""),
        jti=claims["jti"],
        key_id=jwt.get_unverified_header(token)["kid"],
    )


def of_certificate(
    label: str, signer: str, chain: Iterable[x509.Certificate], pair: Pair, directory: Path
) -> Credential:
    """The certificate of a request and the key of the pair, in files as a client has them."""
    certificates = list(chain)
    own = certificates[0]
    names = own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = own.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    stem = directory / label.replace(":", "-").replace(" ", "-")
    paths = stem.with_suffix(".crt"), stem.with_suffix(".key")
    paths[0].write_text("".join(map(pem, certificates)))
    paths[1].touch(mode=0o600)
    paths[1].write_text(pair.key_pem)
    return Credential(
        label,
        str(names[0].value) if names else "",
        Proof(chain=paths[0], key=paths[1]),
        serial=f"{own.serial_number:x}",
        sha256=own.fingerprint(hashes.SHA256()).hex(),
        signer=signer,
        groups=tuple(str(group.value) for group in groups),
        certificate=own,
    )


__all__ = ["Credential", "digest", "of_certificate", "of_token"]
