"""Cross certificates in chains: verifiers that trust only an earlier key accept the new one."""

from collections.abc import Mapping

import msgspec

from orchid.kernel.credentials.authorities.issuer_chain import issuer_key_id
from orchid.kernel.credentials.x509 import certificates, pem


class CertifiedKey(msgspec.Struct, frozen=True):
    """A key of an authority: its chain, and its certificate by the previous key, in PEM."""

    chain: str
    cross: str


def cross_chain(signer: CertifiedKey, earlier: Mapping[str, CertifiedKey]) -> str:
    """Certificates by which verifiers that trust only an earlier key accept the signer, in PEM.

    For each earlier key, by its id: the certificate of the next key by it, and the chain above it.
    Issued chains leave out the roots among these.
    """
    text, key, left = "", signer, dict(earlier)
    while key.cross:
        (cross, *_) = certificates.parse_blocks(key.cross)
        before = left.pop(issuer_key_id(cross).hex(), None)
        if before is None:
            return text
        above = certificates.parse_blocks(before.chain)
        text += b"".join(
            pem.encode(pem.CERTIFICATE, certificates.encode(certificate))
            for certificate in (cross, *above)
        ).decode("ascii")
        key = before
    return text
