"""Certificates as a host holds them: their names, their end, and when they are renewed."""

import datetime
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.hosts.agent.held_certificate import (
    CertificateUnfit,
    HeldCertificate,
    RequestedNames,
    is_of_type,
    new_key,
    refuse_unfit,
)

NOW = datetime.datetime(2026, 11, 18, 12, 0, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
HOST, ADDRESS, URI = "web.example.com", "192.0.2.1", "spiffe://example.com/ns/web/sa/front"
WITHOUT: Sequence[x509.GeneralName] = ()
NAMES = (
    x509.DNSName(HOST),
    x509.IPAddress(ip_address(ADDRESS)),
    x509.UniformResourceIdentifier(URI),
)
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(
    hours: int = 1, names: Sequence[x509.GeneralName] = NAMES, common_name: str = "web"
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(5)
        .not_valid_before(NOW - HOUR)
        .not_valid_after(NOW + hours * HOUR)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256())


@pytest.mark.parametrize("hours", [(1, 2, 3), (3, 1, 2), (3, 2, 1)])
def test_a_certificate_ends_with_the_first_of_its_chain(hours: Sequence[int]) -> None:
    """Whichever that is: without it, clients cannot build the chain."""
    held = HeldCertificate(tuple(certificate(each) for each in hours), KEY)

    assert held.end == NOW + HOUR


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (RequestedNames(), ""),
        (RequestedNames("web", [HOST.upper()], [ADDRESS], [URI]), ""),
        (RequestedNames("other"), "other"),
        (RequestedNames(hosts=[HOST, "a.example.com"]), "a.example.com"),
        (RequestedNames(addresses=[ADDRESS, "192.0.2.2"]), "192.0.2.2"),
        (RequestedNames(uris=[URI, f"{URI}-2"]), f"{URI}-2"),
        (RequestedNames(uris=[URI.upper()]), URI.upper()),
    ],
)
def test_each_sort_of_name_is_compared(wanted: RequestedNames, missing: str) -> None:
    """A host has no case; a URI has."""
    assert wanted.missing_in(certificate()) == missing


@pytest.mark.parametrize(
    "wanted",
    [
        RequestedNames(hosts=[HOST]),
        RequestedNames(addresses=[ADDRESS]),
        RequestedNames(uris=[URI]),
    ],
)
def test_a_certificate_without_names_lacks_each(wanted: RequestedNames) -> None:
    """It has no extension for them."""
    held = HeldCertificate((certificate(names=WITHOUT),), KEY)

    with pytest.raises(CertificateUnfit, match="lacks the name"):
        refuse_unfit(held, wanted, NOW)


def test_a_certificate_has_expired_at_its_end() -> None:
    """The second of the end is no longer valid."""
    held = HeldCertificate((certificate(),), KEY)

    refuse_unfit(held, RequestedNames(), held.end - datetime.timedelta(seconds=1))
    with pytest.raises(CertificateUnfit, match="expired already"):
        refuse_unfit(held, RequestedNames(), held.end)


TYPES = ("ECDSA-P256", "ECDSA-P384", "ECDSA-P521", "Ed25519", "RSA-2048")


@pytest.mark.parametrize("kind", TYPES)
def test_a_new_key_is_of_its_type_and_no_other(kind: str) -> None:
    """Also not of another curve or size."""
    key = new_key(kind)

    assert [each for each in (*TYPES, "RSA-3072") if is_of_type(key, each)] == [kind]
