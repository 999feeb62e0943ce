"""The attack: a name that fits a pattern although it belongs to somebody else.

A star in the pattern of a URI matched any characters, so that a policy for `spiffe://a/ns/web/*`
allowed `spiffe://a/ns/web/x/sa/admin`, and `https://*.example.com/` any host.
"""

import base64
from typing import Any

import pytest
from cryptography import x509

from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import Api
from tests.unit.approval.cases import ALLOWS
from tests.unit.credentials import samples

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
