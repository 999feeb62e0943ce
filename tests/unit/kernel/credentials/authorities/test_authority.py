"""Authorities: what ends up in a certificate, and what is never signed."""

import datetime
import ipaddress
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from orchid.kernel.credentials import files
from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.validity import lifetime_of
from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.credentials.refusals import (
    AuthorityExpired,
    AuthorityUnusable,
    ExposedKeyFile,
    MalformedRequest,
    NotPermitted,
)
from orchid.kernel.credentials.x509 import certificates, names, pem, signing_request, usages
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from tests.unit.kernel.credentials import chains, samples
from tests.unit.kernel.credentials.samples import (
    CLIENT,
    CLIENT_USAGES,
    DAY,
    HOUR,
    LEGACY,
    NODE_CLIENT,
    NODE_SERVING,
    NOW,
    SERVING_USAGES,
    as_pem,
    raw_request,
    request,
    utf8,
)

CA = Authority.create("root", now=NOW)


def sign(
    text: bytes,
    asked: tuple[str, ...] = CLIENT_USAGES,
    profile: profiles.Profile = NODE_CLIENT,
    *,
    lifetime: datetime.timedelta = DAY,
    ca: Authority = CA,
    now: datetime.datetime = NOW,
) -> x509.Certificate:
    parsed = signing_request.parse(text)
    chain = ca.sign(parsed, asked, lifetime, profile=profile, now=now)
    return certificates.parse_blocks(chain)[0]


def value(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> x509.Extension:
    return certificate.extensions.get_extension_for_class(kind)


def test_a_signed_certificate_says_exactly_what_was_agreed() -> None:
    """Version, names, key, extensions in order, key ids and flags, read by the library."""
    certificate = sign(request())

    certificate.verify_directly_issued_by(CA.certificate)
    assert certificate.version is x509.Version.v3
    assert certificate.subject.rfc4514_string() == "CN=node:n1,O=nodes"
    assert certificate.public_key() == samples.P256.public_key()
    assert [type(entry.value).__name__ for entry in certificate.extensions] == [
        "KeyUsage",
        "ExtendedKeyUsage",
        "BasicConstraints",
        "SubjectKeyIdentifier",
        "AuthorityKeyIdentifier",
    ]
    assert value(certificate, x509.KeyUsage).critical
    constraints = value(certificate, x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    own = value(CA.certificate, x509.SubjectKeyIdentifier).value.digest
    assert value(certificate, x509.AuthorityKeyIdentifier).value.key_identifier == own


def test_serial_numbers_are_random_positive_and_short() -> None:
    """Sixteen octets each, never negative, never the same: at one moment, 84 bits are random."""
    serials = {sign(request()).serial_number for _ in range(20)}

    assert len({serial & (1 << 84) - 1 for serial in serials}) == 20
    assert all(serial.bit_length() == 127 for serial in serials)


def test_a_later_certificate_has_a_greater_serial_number() -> None:
    """So records, which are named by it, are ordered by time of issue."""
    moments = [NOW + datetime.timedelta(milliseconds=n) for n in range(20)]
    serials = [sign(request(), now=moment).serial_number for moment in moments]

    assert serials == sorted(serials)


@pytest.mark.parametrize("octets", [b"\x00", b"\xff", b"\x80", b"\x7f"])
def test_no_random_bytes_make_a_bad_serial_number(octets: bytes) -> None:
    """All zeros and all ones still give a positive number of sixteen octets."""
    ca = Authority.create("root", now=NOW, random=lambda size: octets * size)

    assert sign(request(), ca=ca).serial_number.bit_length() == 127


def seconds(**amount: int) -> datetime.timedelta:
    return datetime.timedelta(**amount)


@pytest.mark.parametrize(
    ("lifetime", "whole"),
    [
        (seconds(hours=24), seconds(hours=24)),
        (seconds(hours=20), seconds(hours=20)),
        (seconds(seconds=28800), seconds(hours=8)),
        (seconds(seconds=28799), seconds(hours=8, minutes=4, seconds=59)),
        (seconds(hours=2), seconds(hours=2, minutes=5)),
        (seconds(minutes=10), seconds(minutes=15)),
    ],
)
def test_lifetimes_are_back_dated_as_in_the_reference(
    lifetime: datetime.timedelta, whole: datetime.timedelta
) -> None:
    """Five minutes back; long lives include them, short ones do not; whole seconds."""
    moment = NOW.replace(microsecond=654_321)

    certificate = sign(request(), lifetime=lifetime, now=moment)

    assert certificate.not_valid_before_utc == NOW - seconds(minutes=5)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == whole


@pytest.mark.parametrize("hours", [1, 7, 8, 24, 720])
def test_the_life_that_was_asked_for_is_read_back(hours: int) -> None:
    """From a certificate that was issued, whether back-dating is part of its life or not."""
    asked = seconds(hours=hours)

    certificate = sign(request(), lifetime=asked)

    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    assert lifetime_of(begin, end) == asked


def test_no_certificate_outlives_its_authority() -> None:
    """The end is cut to the authority's; after that nothing is signed."""
    ca = Authority.create("short", now=NOW, lifetime=HOUR)

    assert sign(request(), ca=ca).not_valid_after_utc == NOW + HOUR
    for late, text in ((HOUR, "expired in the past"), (HOUR + seconds(minutes=5), "has expired")):
        with pytest.raises(AuthorityExpired, match=text):
            sign(request(), ca=ca, now=NOW + late)


def test_times_beyond_2049_are_written_in_the_long_form() -> None:
    """The switch of RFC 5280 at the year 2050 reads back to the same moment."""
    ca = Authority.create("long", now=NOW, lifetime=seconds(days=36500))

    certificate = sign(request(), ca=ca, lifetime=seconds(days=20000))

    assert certificate.not_valid_after_utc == NOW + seconds(days=20000) - seconds(minutes=5)
    assert certificate.not_valid_after_utc.year > 2050


@pytest.mark.parametrize("usage", usages.ALL_USAGES)
def test_each_usage_becomes_its_bit_or_its_purpose(usage: str) -> None:
    """All 23 usages map to what the library reads back, and to nothing else."""
    alone = usage not in ("encipher only", "decipher only")
    asked = (usage,) if alone else (usage, "key agreement")

    certificate = sign(request(), asked, LEGACY)

    kinds = {type(entry.value) for entry in certificate.extensions}
    if usage in usages.KEY_USAGES:
        read = value(certificate, x509.KeyUsage).value
        attribute = usage.replace("signing", "digital signature").replace(" ", "_")
        assert getattr(read, attribute.replace("cert_sign", "key_cert_sign"))
        assert x509.ExtendedKeyUsage not in kinds
    else:
        (purpose,) = value(certificate, x509.ExtendedKeyUsage).value
        assert purpose.dotted_string == usages.EXTENDED_USAGES[usage]
        assert x509.KeyUsage not in kinds


def test_all_usages_together_are_written_once_each_in_order() -> None:
    """Synonyms fall together; the order is the table's."""
    certificate = sign(request(), usages.ALL_USAGES, LEGACY)

    purposes = [each.dotted_string for each in value(certificate, x509.ExtendedKeyUsage).value]
    assert purposes == list(dict.fromkeys(usages.EXTENDED_USAGES.values()))


def test_meaningless_usages_are_refused() -> None:
    """Encipher only without key agreement means nothing and is not signed."""
    with pytest.raises(NotPermitted, match="need key agreement"):
        sign(request(), ("encipher only",), LEGACY)


def test_only_permitted_attributes_reach_the_subject() -> None:
    """Nine attributes, in one order and encoding; the last common name; no uid, no email."""
    subject = samples.name(
        (utf8(names.USER_UID, "0"),),
        (utf8("1.2.840.113549.1.9.1", "a@b"),),
        (utf8(names.COMMON_NAME, "ignored"),),
        (utf8(names.ORGANIZATIONAL_UNIT, "unit"),),
        (utf8(names.ORGANIZATION, "zz-org"), utf8(names.ORGANIZATION, "mm-longer-org")),
        (utf8(names.ORGANIZATION, "aa-org"),),
        (utf8(names.COMMON_NAME, "jürgen"),),
        (utf8(names.COUNTRY, "DE"),),
        (utf8("0.9.2342.19200300.100.1.25", "example"),),
    )

    certificate = sign(as_pem(raw_request(subject)), ("client auth",), CLIENT)

    assert [[a.value for a in rdn] for rdn in certificate.subject.rdns] == [
        ["DE"],
        ["aa-org", "zz-org", "mm-longer-org"],
        ["unit"],
        ["jürgen"],
    ]
    assert certificates.identify(certificates.encode(certificate)).uid == ""
    kinds = [a._type.name for a in certificate.subject]
    assert kinds == ["PrintableString"] * 5 + ["UTF8String"]


def test_alternative_names_are_copied_in_groups_and_others_are_dropped() -> None:
    """DNS, email, address, URI, each in the order of the request; nothing else."""
    asked = (
        x509.UniformResourceIdentifier("spiffe://x/y"),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
        x509.DNSName("b.example"),
        x509.IPAddress(ipaddress.ip_address("fd00::1")),
        x509.RFC822Name("a@b.example"),
        x509.DNSName("a.example"),
    )

    certificate = sign(request(alternative_names=asked), ("client auth",), CLIENT)

    written = value(certificate, x509.SubjectAlternativeName)
    assert not written.critical
    assert [entry.value for entry in written.value] == [
        "b.example",
        "a.example",
        "a@b.example",
        ipaddress.ip_address("fd00::1"),
        "spiffe://x/y",
    ]


def test_alternative_names_are_critical_when_there_is_no_subject() -> None:
    """RFC 5280 section 4.2.1.6."""
    text = request("", (), alternative_names=(x509.DNSName("a.example"),))

    certificate = sign(text, ("server auth",), LEGACY)

    assert value(certificate, x509.SubjectAlternativeName).critical


@pytest.mark.parametrize("size", [64, 65, 253])
def test_long_node_names_are_signed(size: int) -> None:
    """Names beyond the 64 characters of X.520 are usual for nodes."""
    subject = samples.name(
        (utf8(names.ORGANIZATION, "nodes"),), (utf8(names.COMMON_NAME, "node:" + "n" * size),)
    )

    certificate = sign(as_pem(raw_request(subject)))

    identity = certificates.identify(certificates.encode(certificate))
    assert identity.user == "node:" + "n" * size


KEYS: dict[str, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey] = {
    "rsa": samples.rsa_key(),
    "p384": ec.derive_private_key(11, ec.SECP384R1()),
    "p521": ec.derive_private_key(12, ec.SECP521R1()),
    "ed25519": samples.ED25519,
}


def outside_authority(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
    subject: str = "outside",
    issuer: tuple[str, ec.EllipticCurvePrivateKey] | None = None,
    *,
    ca: bool = True,
    key_id: bool = True,
) -> x509.Certificate:
    """Make an authority's certificate with the X.509 library."""
    issuer_name, issuer_key = issuer or (subject, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer_name)]))
        .public_key(key.public_key())
        .serial_number(3)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 100 * DAY)
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
    )
    if key_id:
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
    digest = None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(issuer_key, digest)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("requester", ["ec", "rsa", "ed25519"])
def test_every_kind_of_authority_signs_every_kind_of_key(kind: str, requester: str) -> None:
    """RSA, P-384, P-521 and Ed25519 authorities; the library verifies the signature."""
    key = KEYS[kind]
    ca = Authority([outside_authority(key)], key)
    requesters = {"ec": samples.P256, "rsa": samples.rsa_key(), "ed25519": samples.ED25519}

    certificate = sign(request(key=requesters[requester]), ca=ca)

    certificate.verify_directly_issued_by(ca.certificate)


def test_an_authority_without_key_id_signs_without_one() -> None:
    """No authority key identifier is invented."""
    ca = Authority([outside_authority(samples.P256, key_id=False)], samples.P256)

    certificate = sign(request(), ca=ca)

    kinds = {type(entry.value) for entry in certificate.extensions}
    assert x509.AuthorityKeyIdentifier not in kinds


def test_an_intermediate_authority_hands_out_its_chain() -> None:
    """Leaf first, then every certificate below the root; the root is the reader's to know."""
    top = ec.derive_private_key(21, ec.SECP256R1())
    root = outside_authority(top, "root")
    middle = outside_authority(samples.P256, "middle", ("root", top))
    ca = Authority([middle, root], samples.P256)

    chain = ca.sign(
        signing_request.parse(request()), CLIENT_USAGES, DAY, profile=NODE_CLIENT, now=NOW
    )

    leaf, link = certificates.parse_blocks(chain)
    leaf.verify_directly_issued_by(link)
    assert link == middle
    verifier = ClientVerifier([root])
    verifier.verify(certificates.encode(leaf), [certificates.encode(link)], NOW)


def test_certificates_that_form_no_chain_are_refused() -> None:
    """A wrong certificate above the authority is a start-up error, not a broken chain later."""
    stranger = outside_authority(samples.OTHER_P256, "stranger")

    with pytest.raises(AuthorityUnusable, match="chain"):
        Authority([outside_authority(samples.P256), stranger], samples.P256)


def test_every_certificate_above_an_authority_must_be_an_authority_s() -> None:
    """Also the last one, which is handed to nobody."""
    top = ec.derive_private_key(21, ec.SECP256R1())
    root = outside_authority(top, "root", ca=False)
    middle = outside_authority(samples.P256, "middle", ("root", top))

    with pytest.raises(AuthorityUnusable, match="CA bit"):
        Authority([middle, root], samples.P256)


def pair(
    certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> tuple[bytes, bytes]:
    chain = pem.encode(pem.CERTIFICATE, certificates.encode(certificate))
    return chain, encode_private(key).encode()


@pytest.mark.parametrize(
    ("chain", "key", "text"),
    [
        (*pair(outside_authority(samples.P256), samples.OTHER_P256), "does not match"),
        (*pair(outside_authority(samples.P256, ca=False), samples.P256), "CA bit"),
        (b"", pair(CA.certificate, samples.P256)[1], "at least one CERTIFICATE"),
        (CA.certificate_pem, b"", "does not contain a private key"),
        (CA.certificate_pem, CA.certificate_pem, "does not contain a private key"),
        (
            *pair(
                outside_authority(samples.rsa_key("rsa-1024-pkcs8.pem")),
                samples.rsa_key("rsa-1024-pkcs8.pem"),
            ),
            "2048",
        ),
    ],
)
def test_unusable_pairs_are_refused_at_load(chain: bytes, key: bytes, text: str) -> None:
    """Certificate and key must be readable, strong, an authority's, and belong together."""
    with pytest.raises(AuthorityUnusable, match=text):
        Authority.load(chain, key)


def store(directory: Path, ca: Authority) -> tuple[Path, Path]:
    chain, key = directory / "ca.crt", directory / "ca.key"
    files.write_private(chain, ca.chain_pem)
    files.write_private(key, ca.key_pem().reveal().encode())
    return chain, key


def test_an_authority_survives_its_files_and_follows_them(tmp_path: Path) -> None:
    """A new pair is used once it is whole; while half of it is there, the old one signs."""
    chain, key = store(tmp_path, CA)
    followed = Authority.following(chain, key)
    new = Authority.create("new", now=NOW)

    files.write_private(chain, new.chain_pem)
    during = followed.current().certificate
    problem = followed.problem
    files.write_private(key, new.key_pem().reveal().encode())

    assert during == CA.certificate
    assert problem is not None
    assert "does not match" in problem
    assert followed.current().certificate == new.certificate
    assert followed.problem is None


def test_with_a_clock_the_files_are_looked_at_once_a_second(tmp_path: Path) -> None:
    """Frequent signing does not read the disk each time."""
    clock = [100.0]
    pair = store(tmp_path, CA)
    followed = Authority.following(*pair, monotonic=lambda: clock[0])
    followed.current()
    new = Authority.create("new", now=NOW)
    store(tmp_path, new)

    clock[0] += files.CHECK_INTERVAL_SECONDS - 0.25
    before = followed.current().certificate
    clock[0] += 0.25
    after = followed.current().certificate

    assert before == CA.certificate
    assert after == new.certificate


def test_an_exposed_authority_key_is_refused(tmp_path: Path) -> None:
    """The key of an authority must be its owner's alone."""
    chain, key = store(tmp_path, CA)
    key.chmod(0o644)

    with pytest.raises(AuthorityUnusable, match="chmod 0600"):
        Authority.load_files(chain, key)
    assert issubclass(ExposedKeyFile, Exception)


@pytest.mark.parametrize("host", ["", "a b", "10.0.0.1", "münchen.example", "a..b", "*", "a.*"])
def test_bad_host_names_are_not_issued(host: str) -> None:
    """A name from the configuration that is no host name is a refusal, not a traceback."""
    with pytest.raises(NotPermitted):
        CA.issue_serving("server", lifetime=DAY, now=NOW, dns_names=[host])


def test_an_authority_does_not_print_its_key() -> None:
    """Neither its text nor its secret shows key material."""
    assert "PRIVATE" not in f"{CA!r} {CA.key_pem()} {CA.issue_client('a', lifetime=DAY, now=NOW)}"


def test_hostile_requests_are_refused_or_signed_within_the_profile() -> None:
    """Some 350 samples: whatever is signed is a plain client certificate of allowed content."""
    from itertools import chain

    signed = refused = 0
    corpus = chain(
        samples.reserved_group_requests(), samples.broken_requests(), samples.odd_requests()
    )
    for label, text in corpus:
        try:
            certificate = sign(text, ("client auth",), CLIENT)
        except (MalformedRequest, NotPermitted):
            refused += 1
            continue
        signed += 1
        assert not certificates.is_authority(certificate), label
        assert not {"masters"} & set(
            certificates.identify(certificates.encode(certificate)).groups
        ), label
        kinds = {type(entry.value).__name__ for entry in certificate.extensions}
        assert kinds <= {
            "ExtendedKeyUsage",
            "BasicConstraints",
            "SubjectKeyIdentifier",
            "AuthorityKeyIdentifier",
        }, label

    assert refused > 340
    assert signed > 2


# --- other readers ------------------------------------------------------------------------------


@pytest.mark.system_package("openssl")
def test_openssl_accepts_what_each_profile_issues(tmp_path: Path) -> None:
    """Strict verification by another implementation, for the purpose of each signer."""
    (tmp_path / "ca.pem").write_bytes(CA.certificate_pem)
    serving = request(alternative_names=(x509.DNSName("n1.example"),))
    cases = [
        (sign(request()), "sslclient"),
        (sign(request("anyone", ("dev",)), CLIENT_USAGES, CLIENT), "sslclient"),
        (sign(serving, SERVING_USAGES, NODE_SERVING), "sslserver"),
    ]
    at = str(int(NOW.timestamp()))

    for certificate, purpose in cases:
        leaf = tmp_path / "leaf.pem"
        leaf.write_bytes(pem.encode(pem.CERTIFICATE, certificates.encode(certificate)))
        command = ["openssl", "verify", "-x509_strict", "-attime", at, "-purpose", purpose]
        done = subprocess.run(
            [*command, "-CAfile", str(tmp_path / "ca.pem"), str(leaf)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_a_tls_handshake_accepts_our_server_and_client(tmp_path: Path) -> None:
    """Python's ssl speaks both ways with certificates of one authority."""
    now = datetime.datetime.now(datetime.UTC)
    ca = Authority.create("tls", now=now)
    server = ca.issue_serving(
        "server",
        lifetime=HOUR,
        now=now,
        dns_names=["localhost"],
        ip_addresses=[ipaddress.ip_address("127.0.0.1")],
    )
    client = ca.issue_client("alice", lifetime=HOUR, now=now, groups=["dev"])
    contexts = []
    for side, issued in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        path = tmp_path / f"{side}.pem"
        files.write_private(path, issued.key.reveal().encode() + issued.chain)
        context = ssl.SSLContext(side)
        context.load_cert_chain(path)
        context.load_verify_locations(cadata=ca.certificate_pem.decode())
        contexts.append(context)
    contexts[0].verify_mode = ssl.CERT_REQUIRED

    peer = handshake(contexts[0], contexts[1])

    ClientVerifier([ca.certificate]).verify(peer, [], now)
    assert certificates.identify(peer).user == "alice"


def handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bytes:
    """Run a handshake in memory and give the client's certificate as the server saw it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    waiting = [client, server]
    for _ in range(10):
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    peer = server.getpeercert(binary_form=True)
    assert peer is not None
    return peer


def test_no_certificate_outlives_the_root_of_its_chain() -> None:
    """A verifier needs the root, so nothing is valid for longer."""
    root = chains.authority("root", key=samples.OTHER_P256, end=NOW + DAY)
    between = chains.authority(
        "between", issuer="root", signer=samples.OTHER_P256, end=NOW + 100 * DAY
    )
    authority = Authority((between, root), samples.P256)

    made = authority.issue_client("alice", lifetime=30 * DAY, now=NOW)

    leaf = certificates.parse_blocks(made.chain)[0]
    assert leaf.not_valid_after_utc == root.not_valid_after_utc
    with pytest.raises(AuthorityExpired):
        authority.issue_client("alice", lifetime=DAY, now=NOW + 2 * DAY)
