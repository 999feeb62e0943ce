"""The attack: a name that fits a pattern although it belongs to somebody else.

A star in the pattern of a URI matched any characters, so that a policy for `spiffe://a/ns/web/*`
allowed `spiffe://a/ns/web/x/sa/admin`, and `https://*.example.com/` any host. It still matched
`?` then, which ends a host, too. The label `xn--a` decodes to a control character.
"""

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orchid.features.approving.kinds.approval_policy import ApprovalPolicy
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import Api
from tests.unit.features.acme.conftest import AUTHORITIES
from tests.unit.features.approval.cases import ALLOWS
from tests.unit.features.beside import beside
from tests.unit.kernel.credentials import samples

URI, MAIL = x509.UniformResourceIdentifier, x509.RFC822Name


async def outcome(server: Api, name: x509.GeneralName, **allows: Any) -> str:
    request = samples.request("", (), alternative_names=(name,))
    policy = {"signerNames": ["*"], "allows": {**ALLOWS, **allows}}
    asked = {**terms(), "request": base64.b64encode(request).decode(), "policy": policy}
    answer = await server.make(REVIEWS, {"spec": asked})
    return str(answer["status"]["outcome"])


@pytest.mark.parametrize(
    ("pattern", "uri", "decision"),
    [
        ("spiffe://a/ns/web/sa/*", "spiffe://a/ns/web/sa/builder", "Approve"),
        ("spiffe://a/ns/web/sa/*", "spiffe://a/ns/web/sa/x/ns/prod/sa/admin", "Leave"),
        ("spiffe://*/ns/web", "spiffe://evil/x/ns/web", "Leave"),
        ("https://*.example.com/", "https://evil.org/.example.com/", "Leave"),
        ("https://*.example.com/", "https://evil.org:80@x.example.com/", "Leave"),
        ("https://*.example.com", "https://evil.test?.example.com", "Leave"),
        ("https://*.example.com", "https://evil.test#.example.com", "Leave"),
        ("https://*.example.com", "https://evil.test%2F.example.com", "Leave"),
        ("https://*.example.com", "https://a.b.example.com", "Approve"),
        ("https://example.com/*", "https://example.com/%2e%2e", "Leave"),
        ("https://example.com/*", "https://example.com/x\\y", "Leave"),
    ],
)
async def test_a_star_in_a_uri_ends_at_a_separator(
    server: Api, pattern: str, uri: str, decision: str
) -> None:
    """A path has the number of parts that the pattern has, and a host stays in its part."""
    assert await outcome(server, URI(uri), uris=[pattern]) == decision


@pytest.mark.parametrize(
    ("pattern", "decision"), [("*@example.com", "Approve"), ("*example.com", "Leave")]
)
async def test_a_star_in_a_mail_address_ends_at_the_at_sign(
    server: Api, pattern: str, decision: str
) -> None:
    """A pattern for a domain has to name the at sign."""
    assert await outcome(server, MAIL("a@example.com"), emailAddresses=[pattern]) == decision


SIGNER = "example.com/clients"
USAGES = ["digital signature", "client auth"]
SPEC = {
    "signerName": SIGNER,
    "key": {"algorithm": "ECDSA-P256"},
    "subject": {"commonName": "Clients"},
    "issues": {"names": ["uri", "dns"], "usages": USAGES},
}
POLICY = {
    "signerNames": [SIGNER],
    "allows": {
        "uris": ["https://*.example.com", "spiffe://a/*", "spiffe://a/b?query"],
        "dnsNames": ["*.web.example.com"],
        "usages": USAGES,
        "keys": ["*"],
        "maxDuration": "720h",
    },
    "otherwise": "deny",
}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (URI("https://evil.test?.example.com"), URI("https://a.example.com")),
        (URI("spiffe://a/b?query"), URI("spiffe://a/b")),
        (x509.DNSName("xn--a.web.example.com"), x509.DNSName("xn--mnchen-3ya.web.example.com")),
    ],
)
async def test_there_is_no_certificate_for_the_name_of_another(
    server_files: Path, name: x509.GeneralName, other: x509.GeneralName
) -> None:
    """From the request to the signer, with a policy in between."""
    async with (
        beside(server_files) as made,
        made.running("certificate-authority", "csrapproving", "csrsigning"),
    ):
        api = Api(made.server)
        await api.make(AUTHORITIES, {"metadata": {"name": "clients"}, "spec": SPEC})
        await made.until_like(CertificateAuthority, "clients", "", lambda one: one.is_ready)
        await api.make(POLICIES, body("clients", **POLICY))
        await made.until_like(ApprovalPolicy, "clients", "", lambda one: one.is_ready)
        for title, san in (("bad", name), ("good", other)):
            der = samples.request("", (), alternative_names=(san,))
            await made.request(title, der, signer=SIGNER)

        good = await made.until_like(
            CertificateSigningRequest, "good", "", lambda one: bool(one.status.certificate)
        )
        bad = await made.until_like(
            CertificateSigningRequest, "bad", "", lambda one: one.is_decided
        )

    assert good.status.certificate
    assert bad.has("Denied")
    assert not bad.status.certificate
