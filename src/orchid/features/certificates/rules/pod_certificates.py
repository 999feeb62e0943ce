"""Rules of a PodCertificateRequest about X.509: the key of the request, and the certificate.

`stub_errors` checks the request; `leaf_of`, `leaf_name_errors` and `period_errors` the certificate
that a signer writes. Who settles a request, and how often, is in
features/certificates/kinds/pod_certificate_request.py.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.wire.fields import FieldError, Path, invalid, invalid_unshown, required, too_long

STATUS = Path() / "status"
STUB = Path() / "spec" / "stubPKCS10Request"
CHAIN, NOT_BEFORE, NOT_AFTER = (
    STATUS / name for name in ("certificateChain", "notBefore", "notAfter")
)

LARGEST_STUB: Final = 10 * 1024
SHORTEST_LIFE: Final = timedelta(hours=1)
RSA_SIZES: Final = (3072, 4096)
CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")


def stub_errors(stub: bytes) -> Iterator[FieldError]:
    """Check size, signature and key. The signer decides on the contents."""
    if not stub:
        yield required(STUB)
        return
    if len(stub) > LARGEST_STUB:
        yield too_long(STUB, LARGEST_STUB)
        return
    try:
        key = signing_request.parse_der_once(stub).public_key
    except Refusal as refusal:
        yield invalid_unshown(STUB, f"must be a valid PKCS#10 CSR: {refusal}")
        return
    match key:
        case ed25519.Ed25519PublicKey():
            return
        case ec.EllipticCurvePublicKey() if key.curve.name not in CURVES:
            text = "elliptic public keys must use curve P256, P384, or P521"
            yield invalid(STUB, f"curve {key.curve.name}", text)
        case rsa.RSAPublicKey() if key.key_size not in RSA_SIZES:
            text = "RSA keys must have modulus size 3072 or 4096"
            yield invalid(STUB, f"{key.key_size}-bit modulus", text)
        case ec.EllipticCurvePublicKey() | rsa.RSAPublicKey():
            return
        case _:
            text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
            yield invalid_unshown(STUB, text)


def leaf_of(chain: str) -> certificates.ReadCertificate:
    """The first certificate of a chain, in which every block is a certificate; raises Refusal."""
    leaf, *_ = [certificates.read_once(data) for data in certificates.encoded_blocks(chain)]
    return leaf


def leaf_name_errors(leaf: certificates.ReadCertificate) -> Iterator[FieldError]:
    contents = certificates.read_contents(leaf)
    for name in contents.dns_names:
        if not name:
            yield invalid(CHAIN, name, "leaf certificate should not contain empty DNSName")
        if ".." in name:
            yield invalid(CHAIN, name, "leaf certificate's DNSName should not contain '..'")
        if name.startswith(".") or name.endswith("."):
            text = "leaf certificate's DNSName should not start or end with '.'"
            yield invalid(CHAIN, name, text)
    for address in contents.email_addresses:
        if not all(address.rpartition("@")):
            text = "leaf certificate should not contain invalid EmailAddress"
            yield invalid(CHAIN, address, text)


def period_errors(
    leaf: certificates.ReadCertificate, begins: datetime, ends: datetime, longest: int
) -> Iterator[FieldError]:
    certificate = leaf.certificate
    if begins != certificate.not_valid_before_utc:
        text = "must be set to the NotBefore time encoded in the leaf certificate"
        yield invalid(NOT_BEFORE, begins, text)
    if ends != certificate.not_valid_after_utc:
        text = "must be set to the NotAfter time encoded in the leaf certificate"
        yield invalid(NOT_AFTER, ends, text)
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if lifetime < SHORTEST_LIFE:
        yield invalid(CHAIN, str(lifetime), "leaf certificate lifetime must be >= 1 hour")
    elif lifetime > timedelta(seconds=longest):
        text = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"
        yield invalid(CHAIN, str(lifetime), text)
