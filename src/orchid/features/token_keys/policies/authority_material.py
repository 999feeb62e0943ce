"""The material of a new key of an authority: a certificate, and a cross certificate.

Start with `authority_material`. The server creates key and certificate of a successor; or only the
certificate, for a key in its HSM; or it reads those of a Secret: the one that the caller names, or
for the present key that of the authority. The
signer so far certifies the new key, for verifiers that trust only the old one. The subject of a
successor differs, because verifiers may not accept two keys of one name. A key that has issued
nothing yet gets its first revocation list, which is empty: verifiers that check lists reject a
certificate without one.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority, profile
from orchid.features.token_keys.kinds.signing_key import (
    IMPORTED,
    MADE,
    PKCS11,
    PRIVATE_KEY,
    SigningKey,
    authority_key_id,
    key_location,
)
from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import algorithm_name
from orchid.kernel.credentials.authorities.hsm import KeysOfHsm
from orchid.kernel.credentials.authorities.issuer_chain import may_certify, refuse_broken, spki_of
from orchid.kernel.credentials.refusals import AuthorityUnusable, Refusal
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.revocation_list import (
    Edition,
    RevokedCertificates,
    list_url,
    next_edition,
)
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyStatus
from orchid.kernel.wire.struct import replace

CERTIFICATE: Final = "tls.crt"

AuthorityKeysOf = Callable[[str], list[SigningKey]]
ReadSecret = Callable[[SecretReference], Mapping[str, bytes] | None]


class PrivateKeys(NamedTuple):
    """Where private keys are: in Secrets, and in the HSM of the server."""

    secret: ReadSecret
    hsm: KeysOfHsm


class FirstList(NamedTuple):
    """The first revocation list of a key."""

    edition: Edition
    encoded: bytes


class KeyMaterial(msgspec.Struct, frozen=True):
    """The status of a new key, the data of its Secret, and its first revocation list.

    Without data the key stays in another Secret. Without a list the publisher signs the first one.
    """

    status: SigningKeyStatus
    data: Mapping[str, bytes]
    revocation_list: FirstList | None

    def __repr__(self) -> str:
        return f"KeyMaterial({self.status.key_id})"


class SignerReference(msgspec.Struct, frozen=True):
    """A signer: its chain, where its private key is, and the URL of its list."""

    chain: str
    secret: SecretReference
    hsm_label: str  # of a key in the HSM; there is no Secret then
    crl_url: str


class SignerReferences(msgspec.Struct, frozen=True):
    """The signers of this server, by key."""

    home: str  # the system namespace
    crl_url: str  # the base URL of revocation lists

    def of(self, key: SigningKey, chain: str) -> SignerReference:
        url = list_url(self.crl_url, key.status.revocation_list)
        return SignerReference(chain, key_location(key, self.home), key.hsm_label, url)


class NewKey(msgspec.Struct, frozen=True):
    """A key that is to be stored."""

    key: SigningKey
    authority: CertificateAuthority
    predecessor: SignerReference | None  # the signer so far
    parent: SignerReference | None  # the signer of the authority above
    is_present: bool  # whether it is the key that the authority has now
    now: datetime


async def authority_material(new: NewKey, private: PrivateKeys) -> KeyMaterial:
    """Create the key of a successor, or read that of its Secret; raises Refusal."""
    # Generating an RSA key takes seconds, verifying a chain of RSA keys many milliseconds.
    return await asyncio.to_thread(_material, new, private)


def _material(new: NewKey, private: PrivateKeys) -> KeyMaterial:
    reference, data = new.key.spec.secret_ref, dict[str, bytes]()
    if reference is not None:
        authority = _load(reference, private.secret, now=None if new.is_present else new.now)
    else:
        authority = _created(new, private)
    if new.key.spec.algorithm:
        data = {
            CERTIFICATE: authority.chain_pem,
            PRIVATE_KEY: authority.key_pem().reveal().encode(),
        }
    status = _status(new, authority, _cross_certificate(new, authority, private))
    return KeyMaterial(status, data, _first_list(new, authority, status))


def _first_list(new: NewKey, authority: Authority, status: SigningKeyStatus) -> FirstList | None:
    """An empty list of a key that has issued nothing; None if that is not certain."""
    if status.source not in (MADE, PKCS11) or not status.certificate:
        return None
    revoked = RevokedCertificates()
    edition = next_edition(revoked, new.now)
    return FirstList(edition, authority.sign_revocation_list(revoked, edition))


def _created(new: NewKey, private: PrivateKeys) -> Authority:
    """A new key with its certificate: self-signed, or signed by the authority above."""
    label = new.key.hsm_label
    authority = Authority.create(
        new.authority.name_of_key(new.key.number),
        now=new.now,
        lifetime=new.authority.lifetime,
        algorithm=new.key.spec.algorithm,
        uris=new.authority.uris,
        key=private.hsm.key(label) if label else None,
    )
    if new.parent is None:
        return authority
    parent = _signer(new.parent, private, now=new.now)
    signed = parent.certify(authority.certificate, now=new.now, crl_url=new.parent.crl_url)
    return authority.below((*certificates.parse_blocks(signed), *parent.chain))


def installed(
    key: SigningKey, signer: SignerReference, private: PrivateKeys, now: datetime
) -> SigningKeyStatus:
    """The status with the chain that another authority signed; raises Refusal.

    The chain is checked with the private key. That authority chooses the key identifier, once.
    """
    if not signer.hsm_label and private.secret(signer.secret) is None:
        raise AuthorityUnusable("the Secret with the private key is gone")
    authority = _signer(signer, private, now=now)
    if key.status.certificate and authority_id(authority) != key.key_id:
        raise AuthorityUnusable("it has another subject key identifier than the one before")
    return replace(
        key.status, key_id=authority_id(authority), certificate=authority.chain_pem.decode("ascii")
    )


def root_of(chain: str) -> bytes:
    """The last certificate of a chain in PEM, which verifiers trust; raises Refusal."""
    *_, root = certificates.encoded_blocks(chain)
    return bytes(root)


def is_below_same_root(chain: str, before: str) -> bool:
    """Whether each certificate of a chain is signed by the next, up to the root of another chain.

    Raises Refusal for a chain that is broken.
    """
    refuse_broken(certificates.parse_blocks(chain))
    return bool(before) and root_of(chain) == root_of(before)


def chain_in_secret(reference: SecretReference, read: ReadSecret) -> str:
    """The chain in the Secret of an authority, checked with its private key; raises Refusal."""
    return _load(reference, read).chain_pem.decode("ascii")


def _load(
    reference: SecretReference, read: ReadSecret, *, now: datetime | None = None
) -> Authority:
    data = read(reference)
    if data is None:
        raise AuthorityUnusable(f"there is no Secret {reference}")
    chain, key = data.get(CERTIFICATE, b""), data.get(PRIVATE_KEY, b"")
    return Authority.load_untrusted(chain, key, now=now)


def _signer(
    reference: SignerReference, private: PrivateKeys, *, now: datetime | None = None
) -> Authority:
    if reference.hsm_label:
        return Authority.of_key(
            reference.chain.encode(), private.hsm.key(reference.hsm_label), now=now
        )
    data = private.secret(reference.secret) or {}
    return Authority.load_untrusted(reference.chain.encode(), data.get(PRIVATE_KEY, b""), now=now)


def _cross_certificate(new: NewKey, authority: Authority, private: PrivateKeys) -> str:
    """The certificate of a new key by the signer so far; none if that one cannot give it."""
    before = new.predecessor
    if before is None or new.authority.spec.parent is not None:
        return ""  # the root above stays the same
    try:
        signer = _signer(before, private)
        if not may_certify(signer.certificate) or authority_id(signer) == authority_id(authority):
            return ""
        return signer.certify(authority.certificate, now=new.now, crl_url=before.crl_url).decode(
            "ascii"
        )
    except Refusal:
        return ""  # its key is lost, or it has ended: there is nothing to certify with


def _status(new: NewKey, authority: Authority, cross: str) -> SigningKeyStatus:
    is_made = new.key.spec.secret_ref is None
    dependents = None
    if not is_made:
        # Certificates may have been issued elsewhere before.
        longest = profile(new.authority).max_duration
        dependents = KeyDependents(unknown_until=whole_seconds(new.now) + longest)
    parent = new.authority.spec.parent
    is_external = parent is not None and parent.external and new.key.spec.secret_ref is None
    return SigningKeyStatus(
        key_id=authority_id(authority),
        source=PKCS11 if new.key.hsm_label else MADE if is_made else IMPORTED,
        request=authority.request() if is_external else "",
        public_key=pem.encode(pem.PUBLIC_KEY, spki_of(authority.certificate)).decode("ascii"),
        algorithm=algorithm_name(authority.public_key),
        dependents=dependents,
        certificate="" if is_external else authority.chain_pem.decode("ascii"),
        cross_certificate=cross,
    )


def authority_id(made: Authority) -> str:
    return authority_key_id(made.chain_pem.decode("ascii"))
