"""Certificate requests of authorities, for another authority that signs them elsewhere (RFC 2986).

The request has the name and the key of an authority, and asks for a CA certificate. The X.509
library writes it; nothing here decides what is signed.
"""

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.kernel.credentials.authorities.authority_keys import AuthorityKey
from orchid.kernel.credentials.x509.certificates import uris_of

_NO_USAGES = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


def authority_request(certificate: x509.Certificate, key: AuthorityKey) -> str:
    """A certificate request for a subordinate authority, in PEM: name and URIs of a certificate."""
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(certificate.subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(key_cert_sign=True, crl_sign=True, **_NO_USAGES), critical=True
        )
    )
    if uris := uris_of(certificate):
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(key, _digest(key))
    return request.public_bytes(Encoding.PEM).decode("ascii")


def _digest(key: AuthorityKey) -> hashes.SHA256 | hashes.SHA384 | None:
    """The digest that the algorithm of a key uses; Ed25519 and ML-DSA have their own."""
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp384r1":
        return hashes.SHA384()
    return (
        hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) else None
    )
