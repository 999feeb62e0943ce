"""Every kind of certificate that we issue, read by an outside linter (pkilint, RFC 5280)."""

import functools
import ipaddress

import pytest
from cryptography import x509

from orchid.features.approval.issuing_terms import IssuingTerms, profile_of, with_default_terms
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.x509 import certificates, signing_request, usages
from tests.linting import findings, unexplained
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import DAY, NOW, request

CA = Authority.create("lint", now=NOW)


def signed(text: bytes, asked: tuple[str, ...], profile: Profile) -> x509.Certificate:
    parsed = signing_request.parse(text)
    return certificates.parse_blocks(CA.sign(parsed, asked, DAY, profile=profile, now=NOW))[0]


HOSTS = (x509.DNSName("n1.example"), x509.IPAddress(ipaddress.ip_address("10.0.0.1")))
SERVING = request(alternative_names=HOSTS)
WEB = profile_of("example.com/web", with_default_terms(IssuingTerms(), ""))
ISSUED = {
    "authority": lambda: CA.certificate,
    "node client": lambda: signed(request(), samples.CLIENT_USAGES, samples.NODE_CLIENT),
    "node serving": lambda: signed(SERVING, samples.SERVING_USAGES, samples.NODE_SERVING),
    "client": lambda: signed(request("ann", ("a", "b")), samples.CLIENT_USAGES, samples.CLIENT),
    "rsa": lambda: signed(
        request(key=samples.rsa_key()), samples.CLIENT_USAGES, samples.NODE_CLIENT
    ),
    **{
        f"own authority, {name}": functools.partial(
            signed, request("", (), key=key, alternative_names=HOSTS), WEB.usages(()), WEB
        )
        for name, key in {
            "ECDSA": samples.P256,
            "Ed25519": samples.ED25519,
            "RSA": samples.rsa_key(),
        }.items()
    },
    "legacy": lambda: signed(request(), ("any", "digital signature"), samples.LEGACY),
    "own server": lambda: certificates.parse_blocks(
        CA.issue_serving("server", lifetime=DAY, now=NOW, dns_names=["a.example"]).chain
    )[0],
}


@pytest.mark.parametrize("kind", ISSUED)
def test_issued_certificates_have_no_lint_that_is_not_explained(kind: str) -> None:
    """No error, warning or notice in anything that a profile or the authority itself issues."""
    assert not unexplained(ISSUED[kind]())


def test_lint_of_the_legacy_signer_is_what_was_asked_for() -> None:
    """All 23 usages at once contradict each other, and the legacy signer permits them."""
    found = findings(signed(request(), usages.ALL_USAGES, samples.LEGACY))

    assert found == {
        "pkix.ee_certificate_keycertsign_keyusage_set",  # asked for as "cert sign"; CA stays false
        "pkix.extended_key_usage_extension_with_timestamping_not_critical",
        "pkix.key_usage_value_prohibited_for_ec",  # key encipherment with an elliptic curve
    }
