"""Limits of an authority's chain: usages and names that verifiers would refuse are not issued."""

import datetime
import ipaddress
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchid.kernel.credentials.authorities.issuer_limits import limits_of
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.x509 import signing_request
from tests.unit.kernel.credentials import samples

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = datetime.timedelta(days=1)
KINDS = {
    "dns": x509.DNSName,
    "mail": x509.RFC822Name,
    "uri": x509.UniformResourceIdentifier,
    "ip": lambda text: x509.IPAddress(
        ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text)
    ),
}


def general(text: str) -> x509.GeneralName:
    """`dns=example.com` as a name."""
    kind, _, value = text.partition("=")
    if kind == "subject":
        organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, value)
        return x509.DirectoryName(x509.Name([organization]))
    return KINDS[kind](value)


def constraints(text: str) -> x509.NameConstraints:
    """`+dns=example.com -dns=a.example.com`: permitted and excluded."""
    words = text.split()
    permitted = [general(word[1:]) for word in words if word[0] == "+"]
    excluded = [general(word[1:]) for word in words if word[0] == "-"]
    return x509.NameConstraints(permitted or None, excluded or None)


def authority(*extensions: x509.ExtensionType) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "limited")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(samples.P256.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime.now(datetime.UTC) - DAY)
        .not_valid_after(datetime.datetime.now(datetime.UTC) + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(samples.P256, hashes.SHA256())


def permitted(
    chain: list[x509.Certificate],
    *names: str,
    common_name: str = "",
    organizations: tuple[str, ...] = (),
    usages: tuple[str, ...] = ("server auth",),
) -> bool:
    alternative = tuple(map(general, names))
    request = samples.request(common_name, organizations, alternative_names=alternative)
    limits = limits_of(chain)
    if limits is None:
        return True
    try:
        limits.check(signing_request.parse(request), usages)
    except NotPermitted:
        return False
    return True


# Constraints, a name, and whether it is permitted.
TABLE = [
    ("+dns=example.com", "dns=a.example.com.", False),  # OpenSSL refuses it
    ("+dns=example.com", "dns=example.com", True),
    ("+dns=example.com", "dns=a.b.Example.com", True),
    ("+dns=example.com", "dns=badexample.com", False),
    ("+dns=example.com", "dns=example.com.evil", False),
    ("+dns=example.com", "dns=*.example.com", True),
    ("+dns=a.example.com", "dns=*.example.com", False),
    ("-dns=example.com", "dns=a.example.com", False),
    ("-dns=example.com", "dns=example.org", True),
    ("-dns=a.example.com", "dns=*.example.com", False),
    ("-dns=example.com", "dns=a.example.com.", False),
    ("+dns=example.com -dns=x.example.com", "dns=x.example.com", False),
    ("+dns=example.com +dns=example.org", "dns=b.example.org", True),
    ("+dns=example.com", "ip=10.0.0.1", True),
    ("+ip=10.0.0.0/8", "ip=10.1.2.3", True),
    ("+ip=10.0.0.0/8", "ip=11.1.2.3", False),
    ("+ip=10.0.0.0/8", "ip=fd00::1", False),
    ("-ip=10.0.0.0/8", "ip=10.1.2.3", False),
    ("-ip=10.0.0.0/8", "ip=11.1.2.3", True),
    ("+mail=example.com", "mail=a@example.com", True),
    ("+mail=example.com", "mail=a@b.example.com", False),
    ("+mail=.example.com", "mail=a@b.example.com", True),
    ("+mail=.example.com", "mail=a@example.com", False),
    ("+mail=a@example.com", "mail=a@EXAMPLE.com", True),
    ("+mail=a@example.com", "mail=b@example.com", False),
    ("-mail=example.com", "mail=a@example.com", False),
    ("-mail=a@example.com", "mail=A@example.com", False),
    ("-mail=a@example.com", "mail=b@example.com", True),
    ("+uri=example.com", "uri=spiffe://example.com/a", True),
    ("+uri=example.com", "uri=spiffe://a.example.com/a", False),
    ("+uri=.example.com", "uri=https://a.example.com:8443/a", True),
    ("+uri=.example.com", "uri=https://evil@x.org/.example.com", False),
    ("+uri=example.com", "uri=urn:example.com", False),
    ("-uri=example.com", "uri=spiffe://example.com/a", False),
    ("-uri=example.com", "uri=spiffe://example.org/a", True),
    ("-uri=example.com", "uri=urn:example.com", False),
]
# Excluded here, because another verifier may read the name so; OpenSSL does not.
STRICTER = {
    ("-dns=a.example.com", "dns=*.example.com"),
    ("-dns=example.com", "dns=a.example.com."),
    ("-mail=a@example.com", "mail=A@example.com"),
}


@pytest.mark.parametrize(("limit", "name", "fits"), TABLE)
def test_names_are_within_the_constraints_of_the_chain(limit: str, name: str, fits: bool) -> None:
    """Also where they are those of a certificate above the issuing one."""
    limited, free = authority(constraints(limit)), authority()

    assert permitted([limited], name) is fits
    assert permitted([free, limited], name) is fits


@pytest.mark.system_package("openssl")
@pytest.mark.parametrize(("limit", "name", "fits"), TABLE)
def test_another_verifier_accepts_what_is_permitted(
    tmp_path: Path, limit: str, name: str, fits: bool
) -> None:
    """OpenSSL refuses what is refused here, but for some names that others may find excluded."""
    above = authority(constraints(limit))
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(above.subject)
        .public_key(samples.P256.public_key())
        .serial_number(8)
        .not_valid_before(above.not_valid_before_utc)
        .not_valid_after(above.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([general(name)]), critical=True)
        .sign(samples.P256, hashes.SHA256())
    )
    for file, certificate in (("ca", above), ("leaf", leaf)):
        (tmp_path / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    command = ("openssl", "verify", "-CAfile", tmp_path / "ca", tmp_path / "leaf")
    verified = subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert verified is fits or (limit, name) in STRICTER


@pytest.mark.parametrize(
    ("limit", "organizations", "fits"),
    [
        ("+subject=Dev", ("Dev",), True),
        ("+subject=Dev", ("Dev", "Ops"), True),
        ("+subject=Dev", ("Art", "Dev"), False),
        ("+subject=Dev", ("dev",), False),
        ("-subject=Dev", ("dev",), False),
        ("-subject=Dev", (" De v",), True),
        ("-subject=Dev", ("Ops",), True),
    ],
)
def test_a_subject_begins_with_a_permitted_one(
    limit: str, organizations: tuple[str, ...], fits: bool
) -> None:
    """Exactly with a permitted one, and with no excluded one in any case of letters."""
    chain = [authority(constraints(limit))]

    assert permitted(chain, organizations=organizations) is fits


@pytest.mark.parametrize(("common_name", "fits"), [("a.example.com", True), ("evil.org", False)])
def test_a_common_name_without_dns_names_may_count_as_one(common_name: str, fits: bool) -> None:
    """OpenSSL compares it with the constraints on DNS names."""
    chain = [authority(constraints("+dns=example.com"))]

    assert permitted(chain, common_name=common_name) is fits
    assert permitted(chain, "dns=a.example.com", common_name=common_name)


@pytest.mark.parametrize(
    ("usages", "fits"),
    [
        (("server auth",), True),
        (("digital signature",), True),
        (("client auth",), False),
        (("server auth", "client auth"), False),
        (("any",), False),
    ],
)
def test_extended_usages_are_those_of_the_whole_chain(usages: tuple[str, ...], fits: bool) -> None:
    """A certificate without limits limits nothing."""
    both = authority(x509.ExtendedKeyUsage([SERVER, CLIENT]))
    one = authority(x509.ExtendedKeyUsage([SERVER]))

    assert permitted([both, one], "dns=a", usages=usages) is fits
    assert limits_of([authority()]) is None
