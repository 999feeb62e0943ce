"""Certificate requests on the client: create a key, build a request, decode one.

`make` writes a new ECDSA P-256 key that only its owner can read and never overwrites one; `build`
returns the PEM of a request; `facts_of` and `certificate_facts` decode PEM.
"""

import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from orchid.commands.terminal import times
from orchid.commands.terminal.output import USAGE, Cell, Complaint
from orchid.credentials import files, keys
from orchid.credentials.refusals import Refusal
from orchid.credentials.x509 import certificates, signing_request
from orchid.credentials.x509.signing_request import SigningRequest

_SHORT = {
    "2.5.4.3": "CN",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.5": "serialNumber",
}

Facts = list[tuple[str, Any]]


def make(path: Path) -> keys.PrivateKey:
    """A new key in a new file."""
    if path.exists():
        raise Complaint(f"{path} is already there; use it with --key {path}, or move it", USAGE)
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        files.write_private(path, keys.encode_private(key).encode())
    except OSError as error:
        raise Complaint(f"cannot write {path}: {error.strerror}") from None
    return key


def load(path: Path) -> keys.PrivateKey:
    """An existing key; refused if others can read it."""
    try:
        return keys.read_private_key(files.read_private(path), str(path))
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None


class AlternativeNames(NamedTuple):
    """Alternative names of the requested certificate."""

    hosts: list[str]
    addresses: list[str]
    uris: list[str]
    mailboxes: list[str]

    def encoded(self) -> list[x509.GeneralName]:
        return [
            *map(x509.DNSName, self.hosts),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in self.addresses),
            *map(x509.UniformResourceIdentifier, self.uris),
            *map(x509.RFC822Name, self.mailboxes),
        ]


def build(key: keys.PrivateKey, user: str, *, groups: list[str], names: AlternativeNames) -> bytes:
    """The PEM of a request, signed with the key."""
    try:
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject += [x509.NameAttribute(NameOID.COMMON_NAME, user)] if user else []
        others = names.encoded()
    except ValueError as error:
        raise Complaint(f"that cannot stand in a request: {error}", USAGE) from None
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def facts_of(data: bytes) -> Facts:
    """Attributes of a request; reports a malformed one."""
    try:
        request = signing_request.parse(data)
    except Refusal as refusal:
        return [("Request", Cell(f"not readable: {refusal}", "bad"))]
    names = _names(request)
    found: Facts = [("Subject", _subject(request)), ("Names", names or ["none"])]
    key = describe_key(request.public_key)
    found.append(
        ("Key", Cell(f"{key}, weak: {request.weakness}", "bad") if request.weakness else key)
    )
    return found


def _subject(request: SigningRequest) -> str:
    parts = [
        f"{_SHORT.get(each.oid, each.oid)}={each.value if each.value is not None else '?'}"
        for each in request.subject.attributes
    ]
    return ", ".join(parts) or "none"


def _names(request: SigningRequest) -> list[str]:
    found = [f"DNS {name}" for name in request.dns_names]
    found += [f"IP {address}" for address in request.ip_addresses]
    found += [f"email {address}" for address in request.email_addresses]
    found += [f"URI {uri}" for uri in request.uris]
    if request.other_names:
        found.append(f"{request.other_names} of other kinds, which no signer copies")
    return found


def describe_key(key: Any) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA, {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA, {key.curve.name}"
    return "Ed25519" if isinstance(key, ed25519.Ed25519PublicKey) else "of another kind"


def certificate_facts(data: bytes) -> Facts:
    """The issued certificate in a few lines; empty if there is none."""
    if not data:
        return []
    try:
        leaf, *_ = certificates.parse_blocks(data)
    except (Refusal, ValueError):
        return [("Certificate", Cell("not readable", "bad"))]
    return [
        ("Serial", f"{leaf.serial_number:x}"),
        ("Issued by", leaf.issuer.rfc4514_string()),
        ("Expires", times.until(leaf.not_valid_after_utc)),
        ("SHA-256", leaf.fingerprint(hashes.SHA256()).hex()),
    ]
