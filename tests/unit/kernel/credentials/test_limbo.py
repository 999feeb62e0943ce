"""The chains of x509-limbo, a suite that several X.509 libraries run, through our own verifier.

Where our verdict is another one, EXPLAINED says why; a case that is there without need fails too.
tests/data/x509-limbo/README.md says where the chains come from.
"""

import base64
import datetime
import json
import lzma
from typing import Any

import pytest

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from tests.unit.kernel.credentials.samples import DATA

FILE = DATA / "x509-limbo" / "client-cases.json.xz"
CASES: list[dict[str, Any]] = json.loads(lzma.decompress(FILE.read_bytes()))
WHENEVER = datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)

ACCEPTED_HERE = {
    "nobody asks for a client by a host name: a client is its subject": """
        webpki::cn::ipv4-hex-mismatch webpki::cn::ipv4-leading-zeros-mismatch
        webpki::cn::ipv6-uppercase-mismatch webpki::cn::ipv6-uncompressed-mismatch
        webpki::cn::ipv6-non-rfc5952-mismatch webpki::cn::punycode-not-in-san
        webpki::cn::utf8-vs-punycode-mismatch webpki::cn::not-in-san webpki::cn::case-mismatch
        webpki::san::mismatch-domain-san webpki::san::mismatch-subdomain-san
        webpki::san::mismatch-subdomain-apex-san webpki::san::mismatch-apex-subdomain-san
        webpki::san::wildcard-match-across-labels-san webpki::san::no-san""",
    "alternative names of a client are not read, however odd they are": """
        rfc5280::san::underscore-dns rfc5280::san::ip-in-dns
        webpki::san::public-suffix-wildcard-san webpki::san::public-suffix-multi-label-wildcard-san
        webpki::san::public-suffix-private-namespace-wildcard-san
        webpki::san::wildcard-embedded-leftmost-san webpki::san::wildcard-not-in-leftmost-san
        webpki::san::wildcard-embedded-ulabel-san webpki::san::unicode-emoji-san
        webpki::san::san-wildcard-only webpki::san::san-wildcard-only-tld
        webpki::san::san-critical-with-nonempty-subject""",
    "without a subject a client is nobody, and `identify` says so": """
        rfc5280::san::noncritical-with-empty-subject""",
    "key identifiers prove nothing, and many older authorities lack them": """
        rfc5280::aki::critical-aki rfc5280::aki::leaf-missing-aki
        rfc5280::aki::intermediate-missing-aki rfc5280::aki::cross-signed-root-missing-aki
        rfc5280::ski::critical-ski rfc5280::ski::root-missing-ski
        rfc5280::ski::intermediate-missing-ski webpki::aki::root-with-aki-missing-keyidentifier
        webpki::aki::root-with-aki-all-fields webpki::aki::root-with-aki-ski-mismatch""",
    "the flag `critical` is the issuer's duty; what the extension says is obeyed either way": """
        rfc5280::nc::permitted-dns-match-noncritical rfc5280::root-non-critical-basic-constraints
        rfc5280::ee-critical-aia-invalid
        webpki::eku::ee-critical-eku""",
    "policies are not processed: one who insists on it marks them critical, and is refused": """
        rfc5280::pc::ica-noncritical-pc""",
    "a leaf signs nothing, so a limit on names or the right to sign in it has no effect": """
        rfc5280::nc::not-allowed-in-ee-noncritical rfc5280::nc::not-allowed-in-ee-critical
        rfc5280::leaf-ku-keycertsign""",
    "some old roots have the serial number zero, and the reference takes them": """
        rfc5280::serial::zero""",
    "a rule of browsers for public authorities, not of RFC 5280": """
        webpki::eku::ee-anyeku webpki::eku::root-has-eku
        webpki::forbidden-rsa-not-divisible-by-8-in-root
        webpki::forbidden-rsa-key-not-divisible-by-8-in-leaf""",
    "the length of a chain is not the caller's choice here: it is 8": """
        pathlen::max-chain-depth-0-exhausted pathlen::max-chain-depth-1-exhausted""",
    "revocation lists are not read here": """
        crl::revoked-certificate-with-crl crl::crlnumber-missing crl::crlnumber-critical
        crl::issuer-missing-crlsign""",
}
REFUSED_HERE = {
    "an authority's own certificate proves no client": """
        pathlen::validation-ignores-pathlen-in-leaf rfc5280::ca-as-leaf""",
    "a client certificate must say client auth": "rfc5280::eku::ee-without-eku",
    "the library counts self-issued certificates too, and so lets in less": """
        pathlen::self-issued-certs-pathlen""",
    "limits on subjects are not supported, so an authority with such proves nobody": """
        rfc5280::nc::permitted-dn-match""",
}
EXPLAINED = {
    **{case: True for cases in ACCEPTED_HERE.values() for case in cases.split()},
    **{case: False for cases in REFUSED_HERE.values() for case in cases.split()},
}


def is_accepted(case: dict[str, Any]) -> bool:
    untrusted = [base64.b64decode(link) for link in case["untrusted"]]
    now = datetime.datetime.fromisoformat(case["time"]) if case["time"] else WHENEVER
    try:
        trusted = [certificates.parse(base64.b64decode(link)) for link in case["trusted"]]
        ClientVerifier(trusted).verify(base64.b64decode(case["leaf"]), untrusted, now)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_chains_are_judged_as_the_suite_says_or_for_a_stated_reason(case: dict[str, Any]) -> None:
    """The suite's verdict, or the other one if a reason is given above."""
    if (ours := EXPLAINED.get(case["id"])) is not None:
        assert ours != case["accepted"], "explained without need"

    assert is_accepted(case) == (case["accepted"] if ours is None else ours)


def test_every_explained_case_exists() -> None:
    """A renamed or removed case must be changed in the lists above."""
    assert EXPLAINED.keys() <= {case["id"] for case in CASES}
    assert len(CASES) == 194
