"""Certification paths: which chains prove a client, and every way in which others do not."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchid.kernel.credentials import files
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.refusals import CertificateRefused
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.trust import certification_path
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.chains import ANY, CLIENT, ROOT, SERVER, authority, make
from tests.unit.kernel.credentials.samples import DAY, HOUR, NOW, OTHER_P256, P256


def verify(
    leaf: x509.Certificate,
    *intermediates: x509.Certificate,
    pool: tuple[x509.Certificate, ...] = (ROOT,),
) -> x509.Certificate:
    verifier = ClientVerifier(pool)
    chain = [certificates.encode(link) for link in intermediates]
    return verifier.verify(certificates.encode(leaf), chain, NOW).leaf


@pytest.mark.parametrize(
    "leaf",
    [
        make(),
        make(usages=(SERVER, CLIENT)),
        make(usages=(ANY,)),
        make(ca=None),
        make(key=samples.rsa_key()),
        make(key=samples.ED25519),
        make("x" * 64),
        make(start=NOW, end=NOW),
    ],
    ids=["plain", "both", "any", "no-constraints", "rsa", "ed25519", "long-name", "one-second"],
)
def test_client_certificates_of_the_pool_are_accepted(leaf: x509.Certificate) -> None:
    """Without alternative names, with any key we use, for client auth or any use."""
    assert verify(leaf) == leaf


def test_a_root_that_the_client_sends_is_not_verified_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL adds it to the chain of each client that trusts it; it is in the pool already."""
    verified = []
    issued = certification_path.has_issued
    monkeypatch.setattr(
        certification_path, "has_issued", lambda *pair: bool(verified.append(pair)) or issued(*pair)
    )
    leaf = make()

    assert verify(leaf, ROOT, ROOT) == leaf
    assert verified == []


WEAK = samples.rsa_key("rsa-1024-pkcs8.pem")


@pytest.mark.parametrize(
    "leaf",
    [
        make(usages=(SERVER,)),
        make(usages=None),
        make(usages=None, extra=[(x509.SubjectAlternativeName([x509.DNSName("a")]), False)]),
        make(ca=True),
        make(key=WEAK),
        make(key=ec.derive_private_key(3, ec.SECP224R1())),
        make(start=NOW + HOUR, end=NOW + DAY),
        make(start=NOW - DAY, end=NOW - HOUR),
        make(issuer="other"),
        make(signer=OTHER_P256),
        make(
            extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), b"\x05\x00"), True)]
        ),
        authority("alice", usages=(CLIENT,)),
        make("alice", "alice", key=OTHER_P256, signer=OTHER_P256),
        ROOT,
    ],
    ids=[
        "server-only",
        "no-usage",
        "no-usage-with-names",
        "authority",
        "rsa-1024",
        "p224",
        "future",
        "expired",
        "other-issuer",
        "forged",
        "unknown-critical",
        "own-authority",
        "self-signed",
        "the-root-itself",
    ],
)
def test_certificates_that_prove_no_client_are_refused(leaf: x509.Certificate) -> None:
    """Each of these passes some verifier somewhere; none passes here."""
    with pytest.raises(CertificateRefused, match=r"^verifying certificate SN=\d+, SKID=.* failed:"):
        verify(leaf)


def test_certificate_out_of_its_time_is_refused_in_clear_words() -> None:
    """The error distinguishes not yet valid and expired."""
    with pytest.raises(CertificateRefused, match="certificate is not yet valid"):
        verify(make(start=NOW + HOUR, end=NOW + DAY))
    with pytest.raises(CertificateRefused, match="certificate has expired"):
        verify(make(start=NOW - DAY, end=NOW - HOUR))


def test_weak_key_in_the_chain_is_refused_in_clear_words() -> None:
    """A strong leaf is worth no more than the keys above it."""
    leaf = make(issuer="middle", signer=WEAK)

    with pytest.raises(CertificateRefused, match="the certificate's key is not acceptable"):
        verify(leaf, make("middle", "ca", key=WEAK, ca=True, usages=None))


def test_chains_over_intermediates_are_followed_and_checked() -> None:
    """An intermediate must be an authority, permitted to sign, in time and strong."""
    middle_key = ec.derive_private_key(99, ec.SECP256R1())
    leaf = make(issuer="middle", signer=middle_key)

    def middle(**options: object) -> x509.Certificate:
        given = {"key": middle_key, "ca": True, "usages": None}
        return make("middle", "ca", **(given | options))

    no_signing = x509.KeyUsage(True, False, False, False, False, False, True, False, False)
    bad = {
        "not-an-authority": middle(ca=False),
        "no-constraints": middle(ca=None),
        "expired": middle(start=NOW - DAY, end=NOW - HOUR),
        "may-not-sign": middle(extra=[(no_signing, True)]),
        "foreign": middle(signer=OTHER_P256),
    }

    assert verify(leaf, middle())
    assert verify(leaf, make("noise"), middle())
    with pytest.raises(CertificateRefused):
        verify(leaf)
    for link in bad.values():
        with pytest.raises(CertificateRefused):
            verify(leaf, link)
    with pytest.raises(CertificateRefused):
        verify(leaf, middle(), pool=(authority(path_length=0, serial=9),))


LIMITS = {
    "none": (None, True),
    "client": ((CLIENT,), True),
    "client and server": ((SERVER, CLIENT), True),
    "any": ((ANY,), True),
    "server": ((SERVER,), False),
    "ocsp": ((ExtendedKeyUsageOID.OCSP_SIGNING,), False),
}


@pytest.mark.parametrize("limited", ["root", "upper", "lower"])
@pytest.mark.parametrize("limit", LIMITS)
def test_every_issuer_must_be_one_for_clients(limited: str, limit: str) -> None:
    """An authority limited to other purposes issues no client certificates, at any depth."""
    upper_key, lower_key = (ec.derive_private_key(n, ec.SECP256R1()) for n in (98, 99))
    usages, good = LIMITS[limit]
    of = {limited: usages}
    root = authority(usages=of.get("root"))
    upper = make("upper", "ca", key=upper_key, ca=True, usages=of.get("upper"))
    lower = make("lower", "upper", key=lower_key, signer=upper_key, ca=True, usages=of.get("lower"))
    leaf = make(issuer="lower", signer=lower_key)

    if good:
        assert verify(leaf, lower, upper, pool=(root,))
    else:
        with pytest.raises(CertificateRefused, match="unknown authority"):
            verify(leaf, lower, upper, pool=(root,))


@pytest.mark.parametrize("critical", [True, False])
@pytest.mark.parametrize("place", ["root", "middle"])
def test_an_authority_with_limits_on_subjects_makes_no_clients(place: str, critical: bool) -> None:
    """The limits cannot be enforced here, so nobody is let in by them, critical or not."""
    key = ec.derive_private_key(99, ec.SECP256R1())
    alice = x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")]))
    for limit in (x509.NameConstraints(None, [alice]), x509.NameConstraints([alice], None)):
        extra = {place: [(limit, critical)]}
        root = authority(extra=extra.get("root", ()))
        middle = make("middle", "ca", key=key, ca=True, usages=None, extra=extra.get("middle", ()))

        with pytest.raises(CertificateRefused, match="unknown authority"):
            verify(make(issuer="middle", signer=key), middle, pool=(root,))


def test_a_certificate_is_good_to_the_end_of_its_last_second() -> None:
    """Its time is written in whole seconds; a clock is finer."""
    data = certificates.encode(make(end=NOW))
    verifier = ClientVerifier([ROOT])
    last, over = NOW.replace(microsecond=999_999), NOW + datetime.timedelta(seconds=1)

    assert verifier.verify(data, [], last)
    with pytest.raises(CertificateRefused, match="expired"):
        verifier.verify(data, [], over)


def test_nothing_that_authorities_signed_proves_a_client_after_their_end() -> None:
    """Not even a certificate that claims to last longer: its revocation can go by then."""
    leaf = certificates.encode(make(end=NOW + 2 * DAY))
    verifier = ClientVerifier([ROOT, authority("other", end=NOW + DAY, key=OTHER_P256)])

    assert verifier.end == NOW + DAY
    assert verifier.verify(leaf, [], NOW)
    with pytest.raises(CertificateRefused, match="unknown authority"):
        verifier.verify(leaf, [], verifier.end + datetime.timedelta(seconds=1))


def test_another_way_up_is_found_beside_a_limited_one() -> None:
    """Two certificates of one authority, one limited: the other proves the client."""
    key = ec.derive_private_key(99, ec.SECP256R1())
    limited = make("middle", "ca", key=key, ca=True, usages=(SERVER,), serial=8)
    free = make("middle", "ca", key=key, ca=True, usages=None, serial=9)
    leaf = make(issuer="middle", signer=key)

    assert verify(leaf, limited, free)
    assert verify(leaf, free, limited)


@pytest.mark.parametrize(("before", "is_found"), [(7, True), (8, False)])
def test_eight_intermediates_are_looked_at(before: int, is_found: bool) -> None:
    """A client may send more; what comes after the eighth is ignored."""
    key = ec.derive_private_key(99, ec.SECP256R1())
    middle = make("middle", "ca", key=key, ca=True, usages=None)
    others = [make(f"other-{count}", ca=True, usages=None) for count in range(before)]
    leaf = make(issuer="middle", signer=key)

    if is_found:
        assert verify(leaf, *others, middle)
    else:
        with pytest.raises(CertificateRefused, match="unknown authority"):
            verify(leaf, *others, middle)


def test_a_twin_of_a_trusted_certificate_is_refused() -> None:
    """Same names, serial number and key ids, another key: not the same certificate."""
    key_id = x509.SubjectKeyIdentifier(b"\x01" * 20)
    real = authority(serial=5, extra=[(key_id, False)])
    twin = authority(serial=5, extra=[(key_id, False)], key=OTHER_P256)
    of_twin = make(signer=OTHER_P256, key=P256)

    for chain in ((), (twin,)):
        with pytest.raises(CertificateRefused):
            verify(of_twin, *chain, pool=(real,))


@pytest.mark.parametrize(
    "pool",
    [
        (),
        (make(),),
        (ROOT, make("alice", "alice", key=P256)),
        (authority(key=WEAK),),
        (authority(key=samples.ED25519),),
        (authority(ca=None),),
    ],
    ids=["empty", "leaf", "leaf-beside-root", "weak", "ed25519", "no-constraints"],
)
def test_a_pool_holds_authorities_only(pool: tuple[x509.Certificate, ...]) -> None:
    """A directly trusted leaf would skip the checks that authorities make; refused at start."""
    with pytest.raises(CertificateRefused):
        ClientVerifier(pool)


def test_the_pool_is_read_from_a_file_and_followed(tmp_path: Path) -> None:
    """A pool file is PEM with any number of authorities."""
    path = tmp_path / "ca.pem"
    path.write_bytes(pem.encode(pem.CERTIFICATE, certificates.encode(ROOT)))
    followed = files.Reloading((path,), lambda: ClientVerifier.load(path))
    leaf = certificates.encode(make(issuer="new", signer=OTHER_P256, key=P256))
    with pytest.raises(CertificateRefused):
        followed.current().verify(leaf, [], NOW)

    new = authority("new", key=OTHER_P256)
    path.write_bytes(path.read_bytes() + pem.encode(pem.CERTIFICATE, certificates.encode(new)))

    assert followed.current().verify(leaf, [], NOW)


def test_our_own_issue_passes_our_own_door() -> None:
    """A certificate that the authority issues to a client is accepted and read by the verifier."""
    own = Authority.create("own", now=NOW)
    issued = own.issue_client("admin", lifetime=HOUR, now=NOW, groups=["g1", "g2"])
    block = pem.first(issued.chain)
    assert block is not None

    ClientVerifier([own.certificate]).verify(block.data, [], NOW)

    assert certificates.identify(block.data).groups == ("g1", "g2")
    key = serialization.load_pem_private_key(issued.key.reveal().encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
