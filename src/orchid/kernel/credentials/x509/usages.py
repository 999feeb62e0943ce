"""The 23 key usages that a request may have, and their encoding in a certificate.

`key_usage_bits` and `extended_usages` are the two halves of the table; a usage is in exactly one.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from orchid.kernel.credentials.refusals import NotPermitted

DIGITAL_SIGNATURE = "digital signature"
KEY_ENCIPHERMENT = "key encipherment"
CLIENT_AUTH = "client auth"
SERVER_AUTH = "server auth"

# Bit numbers of RFC 5280 section 4.2.1.3.
KEY_USAGES = {
    "signing": 0,
    DIGITAL_SIGNATURE: 0,
    "content commitment": 1,
    KEY_ENCIPHERMENT: 2,
    "data encipherment": 3,
    "key agreement": 4,
    "cert sign": 5,
    "crl sign": 6,
    "encipher only": 7,
    "decipher only": 8,
}

# In the order of encoding.
EXTENDED_USAGES = {
    "any": "2.5.29.37.0",
    SERVER_AUTH: "1.3.6.1.5.5.7.3.1",
    CLIENT_AUTH: "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}

_AGREEMENT = frozenset((4, 7, 8))
_ENCIPHERMENT = frozenset((2, 3))
# Bits that a type of key does not support, by the prefix of its name: RFC 3279 section 2.3.1,
# RFC 5480 section 3, RFC 8410 section 5, RFC 9881 section 5.
_UNFIT_BITS = {
    "RSA": _AGREEMENT,
    "ECDSA": _ENCIPHERMENT,
    "Ed25519": _ENCIPHERMENT | _AGREEMENT,
    "ML-DSA": _ENCIPHERMENT | _AGREEMENT,
}

# The preferred name of each bit (the last of two) and of each purpose (the first), in table order.
_OF_BITS = {bit: usage for usage, bit in KEY_USAGES.items()}
_OF_OIDS = {oid: usage for usage, oid in reversed(EXTENDED_USAGES.items())}
_OF_OIDS = dict(reversed(_OF_OIDS.items()))

# Byte-sorted, as Kubernetes lists them in errors.
ALL_USAGES = tuple(sorted({*KEY_USAGES, *EXTENDED_USAGES}))


def key_usage_bits(usages: Iterable[str]) -> frozenset[int]:
    """Key usage bits of some usages."""
    return frozenset(KEY_USAGES[usage] for usage in usages if usage in KEY_USAGES)


def extended_usages(usages: Iterable[str]) -> tuple[str, ...]:
    """Extended usages as object identifiers, without duplicates, in table order."""
    asked = set(usages)
    return tuple(dict.fromkeys(oid for usage, oid in EXTENDED_USAGES.items() if usage in asked))


@lru_cache(maxsize=64)  # most certificates of a signer have the same usages
def agreed_usages(usages: tuple[str, ...]) -> tuple[frozenset[int], tuple[str, ...]]:
    """Key usage bits and extended key usages of a certificate for some usages."""
    bits = key_usage_bits(usages)
    # RFC 5280 section 4.2.1.3: without key agreement these two are undefined.
    if {7, 8} & bits and 4 not in bits:  # noqa: PLR2004 - bit numbers of the RFC
        raise NotPermitted("encipher only and decipher only need key agreement")
    return bits, extended_usages(usages)


@lru_cache(maxsize=256)
def usages_of(bits: frozenset[int], oids: tuple[str, ...]) -> tuple[str, ...]:
    """The usages of a certificate, in table order; of two names for one the preferred."""
    return (
        *(usage for bit, usage in _OF_BITS.items() if bit in bits),
        *(usage for oid, usage in _OF_OIDS.items() if oid in oids),
    )


def fitting_usages(usages: Sequence[str], key: str) -> tuple[str, ...]:
    """The usages that a key of this algorithm supports; others would make a bad certificate.

    Refuses a request without a remaining key usage: a certificate without any is unlimited.
    """
    unfit = next((bits for name, bits in _UNFIT_BITS.items() if key.startswith(name)), frozenset())
    fitting = tuple(usage for usage in usages if KEY_USAGES.get(usage) not in unfit)
    if key_usage_bits(usages) and not key_usage_bits(fitting):
        unusable = ", ".join(usage for usage in usages if usage in KEY_USAGES)
        raise NotPermitted(f"keys of type {key} cannot be used for {unusable}")
    return fitting


def refuse_unknown(usages: Iterable[str]) -> None:
    """Refuse usages outside of the table; only data older than this check can have them."""
    unknown = [
        usage for usage in usages if usage not in KEY_USAGES and usage not in EXTENDED_USAGES
    ]
    if unknown:
        quoted = " ".join(f'"{usage}"' for usage in unknown)
        raise NotPermitted(f"unrecognized usage values: [{quoted}]")
