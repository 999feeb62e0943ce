"""Rules of each signer: every rule, every text, and the order in which they are found."""

import ipaddress
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.approval.platform_signers import platform_profiles
from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.refusals import MalformedRequest, NotPermitted
from orchid.kernel.credentials.x509 import der, names, signing_request
from orchid.kernel.credentials.x509.names import reserved_among
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import (
    CLIENT,
    CLIENT_USAGES,
    LEGACY,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING_USAGES,
    request,
)

DNS = x509.DNSName("n1.example")
IP = x509.IPAddress(ipaddress.ip_address("10.0.0.1"))
EMAIL = x509.RFC822Name("a@b.example")
URI = x509.UniformResourceIdentifier("spiffe://a/b")
FULL_CLIENT = ("client auth", "key encipherment", "digital signature")
FULL_SERVING = ("server auth", "key encipherment", "digital signature")
OWN = profiles.own_authority(
    "example.com/own",
    usages=FULL_CLIENT,
    names=profiles.ALTERNATIVE_NAMES,
    keys=("ECDSA-P256", "RSA-1024"),
    max_duration=timedelta(days=1),
    default_duration=timedelta(days=1),
)


def parsed(*args: object, **options: object) -> signing_request.SigningRequest:
    return signing_request.parse(request(*args, **options))


@pytest.mark.parametrize(
    ("profile", "asked", "usages"),
    [
        (NODE_CLIENT, parsed(), CLIENT_USAGES),
        (NODE_CLIENT, parsed(), FULL_CLIENT),
        (NODE_CLIENT, parsed("node:"), CLIENT_USAGES),
        (NODE_CLIENT, parsed("node:" + "n" * 59), CLIENT_USAGES),
        (NODE_SERVING, parsed(alternative_names=(DNS,)), SERVING_USAGES),
        (NODE_SERVING, parsed(alternative_names=(IP,)), FULL_SERVING),
        (NODE_SERVING, parsed(alternative_names=(DNS, IP)), FULL_SERVING),
        (CLIENT, parsed("anyone", ("dev", "ops")), ("client auth",)),
        (CLIENT, parsed("anyone", (), alternative_names=(DNS, IP, EMAIL, URI)), FULL_CLIENT),
        (LEGACY, parsed("anyone", ()), ("cert sign", "any", "s/mime")),
        (LEGACY, parsed(alternative_names=(x509.DNSName("*.example.com"),)), ("server auth",)),
    ],
)
def test_permitted_requests_pass(
    profile: profiles.Profile, asked: signing_request.SigningRequest, usages: tuple[str, ...]
) -> None:
    """Each signer permits requests for its purpose."""
    profile.check(asked, usages)


@pytest.mark.parametrize(
    ("profile", "purpose"),
    [(CLIENT, "client auth"), (NODE_CLIENT, "client auth"), (NODE_SERVING, "server auth")],
)
def test_usages_are_those_asked_for_or_else_the_usual_ones(
    profile: profiles.Profile, purpose: str
) -> None:
    """The specification says what a TLS client and a TLS server typically need."""
    assert profile.usages(("any",)) == ("any",)
    assert profile.usages(()) == ("digital signature", "key encipherment", purpose)


NODES = "subject organization is not nodes"
NO_DNS = "DNS subjectAltNames are not allowed"
NO_IP = "IP subjectAltNames are not allowed"
BAD_USAGE = "invalid usage for client certificate: server auth"
NO_EMAIL = "Email subjectAltNames are not allowed"
NO_URI = "URI subjectAltNames are not allowed"
NEEDS_NAME = "DNS or IP subjectAltName is required"
CLIENT_SET = "usages did not match [client auth digital signature key encipherment]"
SERVING_SET = "usages did not match [digital signature key encipherment server auth]"
NO_CLIENT = "missing required usage for client certificate: client auth"
RESERVED = "use of example.com/{} signer with masters group is not allowed"
NODE_NAME = "subject common name does not begin with node:"


@pytest.mark.parametrize(
    ("profile", "asked", "usages", "text"),
    [
        (NODE_CLIENT, parsed(organizations=()), CLIENT_USAGES, NODES),
        (NODE_CLIENT, parsed(organizations=("nodes", "x")), CLIENT_USAGES, NODES),
        (NODE_CLIENT, parsed(organizations=("nodes", "nodes")), CLIENT_USAGES, NODES),
        (
            NODE_CLIENT,
            parsed(alternative_names=(DNS,)),
            CLIENT_USAGES,
            "DNS subjectAltNames are not allowed",
        ),
        (NODE_CLIENT, parsed(alternative_names=(EMAIL,)), CLIENT_USAGES, NO_EMAIL),
        (
            NODE_CLIENT,
            parsed(alternative_names=(IP,)),
            CLIENT_USAGES,
            "IP subjectAltNames are not allowed",
        ),
        (NODE_CLIENT, parsed(alternative_names=(URI,)), CLIENT_USAGES, NO_URI),
        (NODE_CLIENT, parsed("n1"), CLIENT_USAGES, NODE_NAME),
        (NODE_CLIENT, parsed(""), CLIENT_USAGES, NODE_NAME),
        (NODE_CLIENT, parsed(), SERVING_USAGES, CLIENT_SET),
        (NODE_CLIENT, parsed(), ("signing", "client auth"), CLIENT_SET),
        (NODE_CLIENT, parsed("n1", ("x",), alternative_names=(DNS,)), (), NODES),
        (NODE_SERVING, parsed(organizations=("x",)), SERVING_USAGES, NODES),
        (NODE_SERVING, parsed(), SERVING_USAGES, NEEDS_NAME),
        (NODE_SERVING, parsed(alternative_names=(EMAIL,)), SERVING_USAGES, NEEDS_NAME),
        (NODE_SERVING, parsed(alternative_names=(DNS, EMAIL)), SERVING_USAGES, NO_EMAIL),
        (NODE_SERVING, parsed(alternative_names=(DNS, URI)), SERVING_USAGES, NO_URI),
        (NODE_SERVING, parsed("n1", alternative_names=(DNS,)), CLIENT_USAGES, SERVING_SET),
        (NODE_SERVING, parsed("n1", alternative_names=(DNS,)), SERVING_USAGES, NODE_NAME),
        (
            CLIENT,
            parsed(),
            ("client auth", "server auth"),
            "invalid usage for client certificate: server auth",
        ),
        (CLIENT, parsed(), ("digital signature",), NO_CLIENT),
        (CLIENT, parsed(), (), NO_CLIENT),
        (CLIENT, parsed("eve", ("masters",)), ("client auth",), RESERVED.format("client")),
        (LEGACY, parsed("eve", ("a", "masters")), ("any",), RESERVED.format("legacy")),
        (LEGACY, parsed(), ("any", "odd"), 'unrecognized usage values: ["odd"]'),
    ],
)
def test_each_rule_refuses_in_the_reference_words(
    profile: profiles.Profile,
    asked: signing_request.SigningRequest,
    usages: tuple[str, ...],
    text: str,
) -> None:
    """The text goes into the Failed condition; the first broken rule gives it."""
    with pytest.raises(NotPermitted) as caught:
        profile.check(asked, usages)

    assert str(caught.value) == text


def permits(
    profile: profiles.Profile, asked: signing_request.SigningRequest, usages: tuple[str, ...]
) -> bool:
    try:
        profile.check(asked, usages)
    except NotPermitted:
        return False
    return True


def test_the_reserved_group_is_refused_however_it_is_written() -> None:
    """String types, multi-valued names, several O, NUL, invisible and wide letters: 210 ways."""
    count = 0
    for label, text in samples.reserved_group_requests():
        count += 1
        try:
            asked = signing_request.parse(text)
        except MalformedRequest:
            continue
        for profile in (CLIENT, LEGACY, NODE_CLIENT, NODE_SERVING):
            for usages in (CLIENT_USAGES, SERVING_USAGES):
                assert not permits(profile, asked, usages), label

    assert count == 210


@pytest.mark.parametrize("group", ["master", "mastersx", "system:masters", "", "dev"])
def test_other_groups_are_not_taken_for_the_reserved_one(group: str) -> None:
    """Only what can be mistaken for the reserved group is refused."""
    assert reserved_among([group], ["masters"]) is None


def test_odd_requests_are_refused_or_harmless() -> None:
    """Every odd request is refused by parser or profile, or has nothing odd that is copied."""
    for label, text in samples.odd_requests():
        try:
            asked = signing_request.parse(text)
            CLIENT.check(asked, CLIENT_USAGES)
        except (MalformedRequest, NotPermitted):
            continue
        assert label in ("ca-true", "own-key-usage", "unknown-critical", "groups-1000")


WEAK = {
    "rsa-1024": (samples.rsa_key("rsa-1024-pkcs8.pem"), "RSA keys must have 2048"),
    "p224": (ec.derive_private_key(7, ec.SECP224R1()), "elliptic curve secp224r1 is too weak"),
}
NODE_NAMES = ("system:node:n1", ("system:nodes",))
SIGNERS = [*platform_profiles(ORCH).values(), *platform_profiles(KUBERNETES).values(), OWN]


@pytest.mark.parametrize("weak", WEAK)
@pytest.mark.parametrize("profile", SIGNERS, ids=lambda profile: profile.signer_name)
def test_weak_keys_are_not_signed(profile: profiles.Profile, weak: str) -> None:
    """A key that the API tolerated is refused by every signer, which takes the rest as it is."""
    serving = "serving" in profile.signer_name
    usages = SERVING_USAGES if serving else CLIENT_USAGES
    names = (DNS,) if serving else ()
    key, refusal = WEAK[weak]
    profile.check(parsed(*NODE_NAMES, alternative_names=names), usages)

    with pytest.raises(NotPermitted, match=refusal):
        profile.check(parsed(*NODE_NAMES, alternative_names=names, key=key), usages)


def test_endless_names_are_not_signed() -> None:
    """A name of two thousand letters could only be an attack on a parser."""
    subject = samples.name((samples.utf8(names.COMMON_NAME, "x" * 1025),))
    endless = signing_request.parse(samples.as_pem(samples.raw_request(subject)))

    with pytest.raises(NotPermitted, match="more than 1024 characters"):
        CLIENT.check(endless, CLIENT_USAGES)


@pytest.mark.parametrize(
    ("tag", "address"),
    [
        (0x81, "a@b@c.example"),
        (0x81, "@b.example"),
        (0x81, "nobody"),
        (0x81, "a@b c"),
        (0x86, "javascript:alert(1)"),
        (0x86, "/relative"),
        (0x86, "spiffe://a/" + "b" * 2048),
        (0x86, "https://example.com:0/"),
        (0x86, "https:///path"),
        (0x86, "https://evil%2f.example.com/"),
        (0x86, "https://a,b/"),
        (0x86, "urn:"),
        (0x86, "spiffe://a"),
        (0x86, "spiffe://a/"),
        (0x86, "spiffe://a/b/"),
        (0x86, "spiffe://a//b"),
        (0x86, "spiffe://a/b/../c"),
        (0x86, "spiffe://a/."),
        (0x86, "spiffe://a/b?c"),
        (0x86, "spiffe://a/b#c"),
        (0x86, "spiffe://a/%62"),
        (0x86, "spiffe://a:1/b"),
        (0x86, "spiffe://u@a/b"),
        (0x86, "spiffe://A/b"),
        (0x86, "SPIFFE://a/b"),
        (0x81, "a@xn--a.example.com"),
        (0x82, "xn--a.example.com"),
    ],
)
def test_malformed_addresses_are_not_signed(tag: int, address: str) -> None:
    """An invalid address would mislead readers of the certificate."""
    value = der.encode(der.SEQUENCE, der.encode(tag, address.encode()))
    subject = samples.name((samples.utf8(names.COMMON_NAME, "ann"),))
    raw = samples.raw_request(subject, samples.extension("2.5.29.17", value))

    with pytest.raises(NotPermitted, match="subjectAltName is not"):
        CLIENT.check(signing_request.parse(samples.as_pem(raw)), CLIENT_USAGES)


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://a/b",
        "spiffe://-a_b.c/B/..c/d-_.e",
        "https://example.com:8443/x?y#z",
        "https://[::1]/",
        "https://1.2.3.4",
        "urn:uuid:1-2",
    ],
)
def test_usual_uris_are_signed(uri: str) -> None:
    """Workload identities and resource names are what the field is for."""
    named = parsed(alternative_names=(x509.UniformResourceIdentifier(uri),))

    CLIENT.check(named, CLIENT_USAGES)


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (None, 86400),
        (172800, 86400),
        (2**31 - 1, 86400),
        (72000, 72000),
        (600, 600),
        (1, 600),
        (86400, 86400),
    ],
)
def test_lifetimes_stay_between_ten_minutes_and_the_maximum(
    asked: int | None, granted: int
) -> None:
    """The requested lifetime is granted within the limits."""
    assert CLIENT.lifetime(asked, timedelta(days=1)) == timedelta(seconds=granted)


def recognised(asked: signing_request.SigningRequest, **options: str) -> list[str]:
    given = {"signer_name": NODE_CLIENT.signer_name, "username": "bootstrap", "agent": "agent"}
    found = profiles.recognise_node_client(NODE_CLIENT, asked, CLIENT_USAGES, **(given | options))
    return [recognition.subresource for recognition in found]


def test_node_client_requests_are_recognised() -> None:
    """A node's own renewal may be approved in two ways, a new node's request in one."""
    assert recognised(parsed()) == ["nodeclient"]
    assert recognised(parsed(), username="node:n1") == ["selfnodeclient", "nodeclient"]
    assert recognised(parsed(), signer_name="example.com/other") == []
    assert recognised(parsed(organizations=("x",))) == []


def test_recognitions_say_what_the_condition_will_say() -> None:
    """The messages are the reference's, with the agent's name handed in."""
    found = profiles.recognise_node_client(
        NODE_CLIENT,
        parsed(),
        CLIENT_USAGES,
        signer_name=NODE_CLIENT.signer_name,
        username="node:n1",
        agent="agent",
    )

    assert [recognition.message for recognition in found] == [
        "Auto approving self agent client certificate after SubjectAccessReview.",
        "Auto approving agent client certificate after SubjectAccessReview.",
    ]


def test_the_usages_are_the_23_of_the_specification() -> None:
    """The table is complete and sorted by bytes."""
    assert len(ALL_USAGES) == 23
    assert list(ALL_USAGES) == sorted(ALL_USAGES, key=str.encode)


SVIDS = profiles.svids(
    "example.com/mesh",
    trust_domain="example.org",
    keys=("ECDSA-P256",),
    max_duration=timedelta(days=1),
    default_duration=timedelta(hours=1),
)
SVID = x509.UniformResourceIdentifier("spiffe://example.org/ns/web/sa/frontend.v2")


def test_an_svid_has_the_id_of_an_account() -> None:
    """One URI, no subject, both purposes."""
    SVIDS.check(parsed("", (), alternative_names=(SVID,)), SVIDS.usages(()))


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://example.org",
        "spiffe://example.org/ns/web",
        "spiffe://example.org/ns/web/sa/",
        "spiffe://example.org/ns/web/sa/a/b",
        "spiffe://example.org/ns/web/sa/..",
        "spiffe://example.org/ns/../sa/a",
        "spiffe://example.org/ns/a.b/sa/a",
        "spiffe://example.org/ns/web/sa/A",
        "spiffe://example.org/ns/web/sa/a?b",
        "spiffe://example.org/ns/web/sa/a#b",
        "spiffe://example.org/ns/web/sa/%61",
        "spiffe://example.org:1/ns/web/sa/a",
        "spiffe://u@example.org/ns/web/sa/a",
        "spiffe://example.org.evil/ns/web/sa/a",
        "SPIFFE://example.org/ns/web/sa/a",
        "https://example.org/ns/web/sa/a",
    ],
)
def test_other_uris_are_no_ids(uri: str) -> None:
    """The ID is computed from an account; there are no others."""
    asked = parsed("", (), alternative_names=(x509.UniformResourceIdentifier(uri),))

    with pytest.raises(NotPermitted, match="has one URI, of the form"):
        SVIDS.check(asked, SVIDS.usages(()))


@pytest.mark.parametrize(
    ("asked", "usages", "text"),
    [
        (parsed("", ()), profiles.SVID_USAGES, "one URI"),
        (parsed("", (), alternative_names=(SVID, SVID)), profiles.SVID_USAGES, "one URI"),
        (parsed("", (), alternative_names=(SVID, DNS)), profiles.SVID_USAGES, "DNS"),
        (parsed("app", (), alternative_names=(SVID,)), profiles.SVID_USAGES, "subject"),
        (parsed("", (), alternative_names=(SVID,)), ("client auth",), "usages"),
        (parsed("", (), alternative_names=(SVID,)), FULL_CLIENT, "usages"),
    ],
)
def test_an_svid_has_nothing_else(
    asked: signing_request.SigningRequest, usages: tuple[str, ...], text: str
) -> None:
    """Verifiers refuse some of these, and none of them is needed."""
    with pytest.raises(NotPermitted, match=text):
        SVIDS.check(asked, usages)


@pytest.mark.parametrize(
    ("profile", "names", "usages"),
    [(NODE_CLIENT, (), CLIENT_USAGES), (NODE_SERVING, (DNS,), SERVING_USAGES)],
    ids=["client", "serving"],
)
@pytest.mark.parametrize(
    "oid",
    [
        x509.NameOID.SERIAL_NUMBER,
        x509.NameOID.ORGANIZATIONAL_UNIT_NAME,
        x509.NameOID.DOMAIN_COMPONENT,  # dropped when the certificate is signed
        x509.NameOID.COMMON_NAME,
    ],
)
def test_the_subject_of_a_node_has_nothing_but_its_name_and_groups(
    profile: profiles.Profile,
    names: tuple[x509.GeneralName, ...],
    usages: tuple[str, ...],
    oid: x509.ObjectIdentifier,
) -> None:
    """Not even a second common name: the text of another attribute can look like one."""
    subject = [
        x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "nodes"),
        x509.NameAttribute(oid, "node:n0"),
        x509.NameAttribute(x509.NameOID.COMMON_NAME, "node:n1"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(samples.P256, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    with pytest.raises(NotPermitted, match="one common name and organizations only"):
        profile.check(signing_request.parse(made), usages)
