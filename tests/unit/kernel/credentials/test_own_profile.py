"""CertificateAuthorities sign only what their `issues` allows."""

import ipaddress
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, mldsa

from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.keys import encode_private, spki
from orchid.kernel.credentials.refusals import MalformedRequest, NotPermitted, UnsoundCertificate
from orchid.kernel.credentials.x509 import certificates, der, issued_facts, names, signing_request
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.own_authorities import ML_DSA, is_ml_dsa_signature, own
from tests.unit.kernel.credentials.samples import DAY, HOUR, NOW, name, raw_request, request, utf8

USAGES = ("digital signature", "key encipherment", "server auth")
KEYS = ("ECDSA-P256", "ECDSA-P384", "RSA-2048", "Ed25519")
DNS = x509.DNSName("web.example.com")
IP = x509.IPAddress(ipaddress.ip_address("10.0.0.1"))
EMAIL = x509.RFC822Name("a@b.example")
URI = x509.UniformResourceIdentifier("spiffe://a/b")


def profile(
    usages: tuple[str, ...] = USAGES,
    names: tuple[str, ...] = ("dns", "ip"),
    keys: tuple[str, ...] = KEYS,
    **options: object,
) -> profiles.Profile:
    given = {"max_duration": 90 * DAY, "default_duration": 30 * DAY} | options
    return profiles.own_authority("example.com/web", usages=usages, names=names, keys=keys, **given)


WEB = profile()


def parsed(
    *alternative_names: x509.GeneralName, common_name: str = "", **options: object
) -> SigningRequest:
    text = request(common_name, (), alternative_names=alternative_names, **options)
    return signing_request.parse(text)


def issue(
    asked: SigningRequest, by: profiles.Profile = WEB, ca: str = "ECDSA-P256"
) -> x509.Certificate:
    chain = own(ca).sign(asked, by.usages(()), DAY, profile=by, now=NOW)
    return certificates.parse_blocks(chain)[0]


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ((), ""),
        (("commonName", "organizations"), ""),
        (("commonName",), "organizations"),
        (("organizations", "countries"), "commonName"),
    ],
)
def test_only_listed_parts_of_a_subject_are_allowed(allowed: tuple[str, ...], refused: str) -> None:
    """Without a list all are; alternative names are another matter."""
    asked = signing_request.parse(request("jane", ("dev",)))
    own_terms = profile(usages=("client auth",), subject=allowed)

    own_terms.check(parsed(DNS), ())
    if not refused:
        own_terms.check(asked, ())
        return
    with pytest.raises(NotPermitted, match=f"the subject may not have {refused}"):
        own_terms.check(asked, ())


def test_a_request_without_usages_gets_all_that_are_permitted() -> None:
    """Which are the usual ones of this authority; who asks for fewer gets fewer."""
    assert WEB.usages(()) == USAGES
    assert WEB.usages(("server auth",)) == ("server auth",)

    found = issue(parsed(DNS, IP, key=samples.rsa_key()))

    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [purpose._name for purpose in purposes] == ["serverAuth"]
    assert found.extensions.get_extension_for_class(x509.KeyUsage).value.key_encipherment


@pytest.mark.parametrize(
    ("asked", "usages", "text"),
    [
        (parsed(DNS), ("client auth",), "usage is not allowed: client auth"),
        (parsed(DNS), ("server auth", "cert sign"), "usage is not allowed: cert sign"),
        (parsed(DNS, EMAIL), USAGES, "Email subjectAltNames are not allowed"),
        (parsed(DNS, URI), USAGES, "URI subjectAltNames are not allowed"),
        (parsed(x509.DNSName("*.example.com")), USAGES, "not a host name"),
        (parsed(), USAGES, "needs a subject or a subjectAltName"),
        (parsed(DNS, common_name="evil.example.com"), USAGES, "common name is not among"),
        (parsed(DNS, common_name="10.0.0.1"), USAGES, "common name is not among"),
        (parsed(DNS, common_name="fd00::1"), USAGES, "common name is not among"),
        (
            parsed(DNS, key=ec.derive_private_key(5, ec.SECP521R1())),
            USAGES,
            "ECDSA-P521 keys are not allowed; allowed are ECDSA-P256, ECDSA-P384",
        ),
        (parsed(DNS, key=samples.rsa_key("rsa-1024-pkcs8.pem")), USAGES, "2048"),
    ],
)
def test_what_is_not_on_a_list_is_refused(
    asked: SigningRequest, usages: tuple[str, ...], text: str
) -> None:
    """The refusal says what, and what would be allowed."""
    with pytest.raises(NotPermitted, match=text):
        WEB.check(asked, usages)


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        (parsed(DNS, IP), WEB),
        (parsed(DNS, common_name="web.example.com"), WEB),
        (parsed(DNS, common_name="WEB.example.com"), WEB),
        (parsed(DNS, common_name="web"), WEB),
        (parsed(DNS, common_name="Web of Example Inc."), WEB),
        (parsed(IP, common_name="10.0.0.1"), WEB),
        (parsed(common_name="web"), WEB),
        (parsed(DNS, key=samples.rsa_key()), WEB),
        (parsed(x509.DNSName("*.example.com")), profile(wildcards=True)),
        (parsed(EMAIL, URI), profile(names=("email", "uri"))),
        (parsed(common_name="evil.example.com"), profile(usages=("client auth",))),
    ],
)
def test_what_is_on_the_lists_is_signed(asked: SigningRequest, by: profiles.Profile) -> None:
    """Each request comes out with the names that it had."""
    found = issue(asked, by)

    contents = certificates.read_contents(certificates.read(certificates.encode(found)))
    assert contents.subject == asked.certified_subject
    assert contents.dns_names == asked.dns_names
    assert contents.email_addresses == asked.email_addresses


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (None, 30 * DAY),
        (3600, HOUR),
        (1, timedelta(minutes=10)),
        (90 * 86400, 90 * DAY),
        (90 * 86400 + 1, 90 * DAY),
    ],
)
def test_an_authority_has_a_usual_and_a_longest_life(asked: int | None, granted: timedelta) -> None:
    """Its own, whatever the longest is that the server permits elsewhere, unless that is less."""
    assert WEB.lifetime(asked) == granted
    assert WEB.lifetime(asked, 365 * DAY) == granted
    assert WEB.lifetime(asked, HOUR) == min(granted, HOUR)


def test_reserved_groups_and_unknown_usages_are_refused_here_too() -> None:
    """A CertificateAuthority does not issue for system:masters."""
    clients = profile(usages=("client auth",), reserved_groups=("system:masters",))
    with pytest.raises(NotPermitted, match="system:masters"):
        clients.check(signing_request.parse(request("eve", ("system:masters",))), ("client auth",))
    with pytest.raises(NotPermitted, match="unrecognized usage"):
        profile(usages=("party",))


def test_what_was_sent_beside_the_names_reaches_no_certificate() -> None:
    """Of two common names the last is judged and signed; attributes of no use are dropped."""
    subject = name(
        (utf8(names.COMMON_NAME, "evil.example.com"),),
        (utf8("2.5.4.97", "somebody else"),),
        (utf8(names.COMMON_NAME, "web.example.com"),),
    )
    hosts = samples.extension("2.5.29.17", der.encode(der.SEQUENCE, b"\x82\x0fweb.example.com"))
    authority = samples.extension("2.5.29.19", b"\x30\x03\x01\x01\xff", critical=True)
    asked = signing_request.parse_der(raw_request(subject, hosts, authority))

    found = issue(asked)

    assert found.subject.rfc4514_string() == "CN=web.example.com"
    assert b"evil" not in certificates.encode(found)
    assert not certificates.is_authority(found)


def test_two_lists_of_alternative_names_are_refused() -> None:
    """One reader might judge the first and another sign the second."""
    first, second = (
        samples.extension("2.5.29.17", der.encode(der.SEQUENCE, der.encode(0x82, host)))
        for host in (b"web.example.com", b"evil.example")
    )

    with pytest.raises(MalformedRequest, match="duplicate"):
        signing_request.parse_der(raw_request(name(), first, second))


def test_the_lists_are_held_against_the_bytes_that_are_signed() -> None:
    """A request that shows the rules one name and the certificate another is not signed."""

    good = ("web.example.com",)
    answers: Iterator[tuple[str, ...]] = iter(())

    class TwoFaced(SigningRequest):
        dns_names = property(lambda _: next(answers, ("*.example.com",)))

    two_faced = object.__new__(TwoFaced)
    two_faced.__dict__.update(
        {field: value for field, value in vars(parsed(DNS)).items() if field != "dns_names"}
    )
    outcomes = set()
    for honest in range(12):
        answers = iter([good] * honest)
        try:
            found = issue(two_faced)
        except (NotPermitted, UnsoundCertificate) as refusal:
            outcomes.add(type(refusal))
        else:
            outcomes.add(
                certificates.read_contents(certificates.read(certificates.encode(found))).dns_names
            )

    assert outcomes == {NotPermitted, UnsoundCertificate, good}


# --- ML-DSA ---------------------------------------------------------------------------------------


def test_a_post_quantum_chain_is_asked_for_issued_and_verified() -> None:
    """Request, leaf and root with ML-DSA-65; the signature is checked by another implementation."""
    key = mldsa.MLDSA65PrivateKey.generate()
    asked = parsed(DNS, key=key)

    found = issue(
        asked, profile(keys=(ML_DSA,), usages=("digital signature", "server auth")), ML_DSA
    )

    root = own(ML_DSA).certificate
    assert asked.key_algorithm == ML_DSA
    assert found.public_key() == key.public_key()
    assert is_ml_dsa_signature(root, found.tbs_certificate_bytes, found.signature)
    assert "PRIVATE KEY" in encode_private(key)


@pytest.mark.parametrize(
    "platform", [samples.CLIENT, samples.NODE_CLIENT, samples.LEGACY], ids=lambda p: p.signer_name
)
def test_platform_signers_sign_no_ml_dsa_keys(platform: profiles.Profile) -> None:
    """No client could use them in TLS, and our own door knows them not."""
    asked = signing_request.parse(request(key=mldsa.MLDSA65PrivateKey.generate()))

    with pytest.raises(NotPermitted, match="ML-DSA-65 keys are not allowed"):
        platform.check(asked, ("digital signature", "client auth"))


def test_an_ml_dsa_request_must_be_signed_by_its_key() -> None:
    """Changed after signing, or signed with another algorithm, it proves nothing."""
    key = mldsa.MLDSA65PrivateKey.generate()
    good = parsed(DNS, key=key).der

    with pytest.raises(MalformedRequest, match="ML-DSA-65 verification failure"):
        signing_request.parse_der(good.replace(b"web.example.com", b"bad.example.com"))
    with pytest.raises(MalformedRequest, match=r"an ECDSA public key, but have .* ML-DSA-65"):
        signing_request.parse_der(raw_request(name(), key_info=spki(key.public_key())))


EVERY_KEY_USAGE = (
    "digital signature",
    "content commitment",
    "key encipherment",
    "data encipherment",
    "key agreement",
    "encipher only",
)


@pytest.mark.parametrize(
    ("key", "omitted"),
    [
        (samples.rsa_key(), {"key agreement", "encipher only"}),
        (samples.P256, {"key encipherment", "data encipherment"}),
        (
            samples.ED25519,
            {"key encipherment", "data encipherment", "key agreement", "encipher only"},
        ),
        (
            mldsa.MLDSA65PrivateKey.generate(),
            {"key encipherment", "data encipherment", "key agreement", "encipher only"},
        ),
    ],
    ids=["RSA", "ECDSA", "Ed25519", "ML-DSA"],
)
def test_usages_that_the_key_cannot_serve_are_omitted(key: Any, omitted: set[str]) -> None:
    """The others stay, and so do the extended usages."""
    every = (*EVERY_KEY_USAGE, "server auth")
    by = profile(every, keys=(*KEYS, ML_DSA))

    issued = issue(parsed(DNS, key=key), by)

    facts = issued_facts.read_issued(issued.public_bytes(serialization.Encoding.PEM))
    assert set(facts.usages) == set(every) - omitted


def test_no_certificate_is_without_the_key_usages_that_were_asked_for() -> None:
    """A certificate without that extension is good for every usage, so it is refused."""
    by = profile(("key encipherment", "server auth"))

    with pytest.raises(NotPermitted, match="ECDSA-P256 cannot be used for key encipherment"):
        issue(parsed(DNS), by)


def test_a_usage_that_is_not_permitted_is_refused_though_it_would_be_omitted() -> None:
    """The requested usages are checked, not those that remain."""
    by = profile(("digital signature", "server auth"))

    with pytest.raises(NotPermitted, match="usage is not allowed: key encipherment"):
        own("ECDSA-P256").sign(parsed(DNS), USAGES, DAY, profile=by, now=NOW)


def test_platform_signers_sign_the_usages_as_asked() -> None:
    """As the reference does."""
    asked = signing_request.parse(request("ann", ()))
    wanted = ("digital signature", "key encipherment", "client auth")

    chain = own("ECDSA-P256").sign(asked, wanted, DAY, profile=samples.CLIENT, now=NOW)

    assert issued_facts.read_issued(chain).usages == wanted
