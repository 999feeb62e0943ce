"""A certificate with its key, as a host holds it: parsing, checks, and when to renew it.

`HeldCertificate` is read from the files of an output. `refuse_unfit` checks a new certificate
before it is written. `renewal_time` follows the renewal information of the server (RFC 9773).
"""

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from orchid.features.hosts.agent.calls import ApiRefused, IdentityRefused, ServerCalls
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued

LONGEST_CHAIN: Final = 10
_CURVES: Final[dict[str, type[ec.EllipticCurve]]] = {
    "ECDSA-P256": ec.SECP256R1,
    "ECDSA-P384": ec.SECP384R1,
    "ECDSA-P521": ec.SECP521R1,
}


class CertificateUnfit(Exception):
    """The certificate is not the requested one; nothing was written."""


class UntrustedChain(CertificateUnfit):
    """The chain does not end in the bundle; a newer bundle may change that."""


class HeldCertificate(NamedTuple):
    """A certificate, its chain and its key."""

    chain: tuple[x509.Certificate, ...]
    key: keys.PrivateKey

    @property
    def leaf(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def end(self) -> datetime.datetime:
        return min(one.not_valid_after_utc for one in self.chain)

    def at(self, share: float) -> datetime.datetime:
        """The moment at a share of the life of the leaf."""
        start = self.leaf.not_valid_before_utc
        return start + (self.leaf.not_valid_after_utc - start) * share


def read_held(chain: bytes, key: bytes) -> HeldCertificate | None:
    """A certificate and its key; None if they cannot be used or do not belong together."""
    try:
        links = tuple(certificates.parse_blocks(chain))
        private = keys.read_private_key(key)
    except (Refusal, ValueError):
        return None
    if not links or links[0].public_key() != private.public_key():
        return None
    return HeldCertificate(links, private)


def new_key(kind: str) -> keys.PrivateKey:
    if kind in _CURVES:
        return ec.generate_private_key(_CURVES[kind]())
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=int(kind.removeprefix("RSA-")))


def is_of_type(key: keys.PrivateKey, kind: str) -> bool:
    if kind in _CURVES:
        return isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES[kind])
    if kind == "Ed25519":
        return isinstance(key, ed25519.Ed25519PrivateKey)
    return isinstance(key, rsa.RSAPrivateKey) and f"RSA-{key.key_size}" == kind


# --- checks -----------------------------------------------------------------------------------


class RequestedNames(NamedTuple):
    """The names that a certificate must have."""

    common_name: str = ""
    hosts: Sequence[str] = ()
    addresses: Sequence[str] = ()
    uris: Sequence[str] = ()

    def missing_in(self, leaf: x509.Certificate) -> str:
        """The first name that a certificate lacks; empty if it has all."""
        contents = certificates.read_contents(certificates.read(certificates.encode(leaf)))
        if self.common_name and contents.subject.common_name != self.common_name:
            return self.common_name
        hosts = {name.lower() for name in contents.dns_names}
        addresses = set(map(str, contents.ip_addresses))
        lacking = [name for name in self.hosts if name.lower() not in hosts]
        lacking += [address for address in self.addresses if _canonical(address) not in addresses]
        lacking += [uri for uri in self.uris if uri not in contents.uris]
        return lacking[0] if lacking else ""


def refuse_unfit(held: HeldCertificate, names: RequestedNames, now: datetime.datetime) -> None:
    """Refuse a certificate that lacks a name or has expired."""
    if missing := names.missing_in(held.leaf):
        raise CertificateUnfit(f"the certificate lacks the name {missing}; nothing was written")
    if held.end <= now:
        raise CertificateUnfit("the certificate has expired already; nothing was written")


def refuse_untrusted(held: HeldCertificate, bundle: bytes) -> None:
    """Refuse a chain that does not end in the bundle."""
    anchors = certificates.parse_blocks(bundle)
    last = held.leaf
    for _ in range(LONGEST_CHAIN):
        if any(certificate == last or has_issued(certificate, last) for certificate in anchors):
            return
        above = next(
            (
                certificate
                for certificate in held.chain
                if certificate != last and has_issued(certificate, last)
            ),
            None,
        )
        if above is None:
            break
        last = above
    raise UntrustedChain("the chain does not end in the signer's bundle; nothing was written")


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))


# --- renewal ----------------------------------------------------------------------------------


def renewal_time(calls: ServerCalls, held: HeldCertificate) -> datetime.datetime:
    """When to renew: a moment in the server's window, or at 60 to 70 % of life without one."""
    share = fraction(certificates.encode(held.leaf))
    window = _window(calls, held.leaf)
    if window is None or window[1] >= held.end:
        return local_renewal_time(held)  # no answer, or one that could let it expire
    start, end = window
    return start + (end - start) * share


def local_renewal_time(held: HeldCertificate) -> datetime.datetime:
    """When to renew if the server gives no answer."""
    return held.at(0.6 + 0.1 * fraction(certificates.encode(held.leaf)))


def fraction(data: bytes) -> float:
    """A number from 0 to 1, uniform over credentials and the same after each restart."""
    return int.from_bytes(hashlib.sha256(data).digest()[:4]) / (1 << 32)


def _window(
    calls: ServerCalls, leaf: x509.Certificate
) -> tuple[datetime.datetime, datetime.datetime] | None:
    """The server's suggestion; None if it has none for this certificate."""
    identifier = renewal_identifier(leaf)
    if not identifier:
        return None
    try:
        suggested = calls.get(f"/renewal-info/{identifier}").get("suggestedWindow") or {}
        start, end = (datetime.datetime.fromisoformat(suggested[word]) for word in ("start", "end"))
    except IdentityRefused:
        raise
    except (ApiRefused, KeyError, TypeError, ValueError, AttributeError):
        return None
    if start.tzinfo is None or end.tzinfo is None or end < start:
        return None
    return start, end


def renewal_identifier(leaf: x509.Certificate) -> str:
    """The identifier of RFC 9773 section 4.1; empty without an authority key identifier."""
    try:
        extension = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (x509.ExtensionNotFound, ValueError):
        return ""
    if not extension.key_identifier:
        return ""
    number = leaf.serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1)  # with the sign bit, as DER
    return ".".join(
        keys.b64url_encode(part).decode() for part in (extension.key_identifier, serial)
    )
