"""An approval is for one certificate: each part of it refuses more by itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from orchid.features.approval.kept_approvals import (
    REASON,
    ApprovedTerms,
    KeptApproval,
    excess,
    kept_approval,
)
from orchid.kernel.credentials.x509.names import (
    COMMON_NAME,
    ORGANIZATION,
    Attribute,
    DistinguishedName,
)
from tests.unit.features.approval.cases import SIGNER, WEB, case

HOST = "a.web.example.com"
CERTIFICATE = case(HOST, "b.web.example.com", common_name=HOST).certificate
TERMS = ApprovedTerms(WEB.username, WEB.uid, SIGNER, CERTIFICATE)
COMMON = Attribute(COMMON_NAME, HOST)


def certificate(**parts: Any) -> ApprovedTerms:
    return replace(TERMS, certificate=replace(CERTIFICATE, **parts))


def subject(*attributes: Attribute) -> dict[str, Any]:
    return {"subject": DistinguishedName(attributes)}


@pytest.mark.parametrize(
    "requested",
    [
        TERMS,
        certificate(dns_names=(HOST,)),
        certificate(dns_names=(HOST.upper(),)),
        certificate(**subject()),
        certificate(usages=("server auth",)),
        certificate(lifetime=timedelta(minutes=10)),
    ],
)
def test_an_approval_is_for_the_same_or_less(requested: ApprovedTerms) -> None:
    assert excess(requested, TERMS) == ""


@pytest.mark.parametrize(
    ("part", "requested"),
    [
        ("requester", replace(TERMS, username="system:serviceaccount:web:other")),
        ("requester", replace(TERMS, uid="u2")),
        ("signer", replace(TERMS, signer_name="example.com/clients")),
        ("names", certificate(dns_names=(HOST, "c.web.example.com"))),
        ("names", certificate(email_addresses=(f"x@{HOST}",))),
        ("names", certificate(uris=(f"spiffe://{HOST}/x",))),
        ("names", certificate(ip_addresses=(HOST,))),
        ("subject", certificate(**subject(Attribute(COMMON_NAME, "payments-admin")))),
        ("subject", certificate(**subject(COMMON, Attribute(ORGANIZATION, "admins")))),
        ("usages", certificate(usages=("server auth", "client auth"))),
        ("key", certificate(key="RSA-2048")),
        ("lifetime", certificate(lifetime=timedelta(days=1, seconds=1))),
        ("lifetime", certificate(lifetime=None)),
    ],
)
def test_an_approval_is_for_no_more(part: str, requested: ApprovedTerms) -> None:
    assert excess(requested, TERMS) == part


def test_a_part_of_the_subject_is_another_subject() -> None:
    """Its last common name is the user: without that one, it is somebody else."""
    both = certificate(**subject(COMMON, Attribute(COMMON_NAME, "b.web.example.com")))

    assert excess(TERMS, both) == "subject"
    assert excess(both, both) == ""


def test_an_approval_without_a_lifetime_is_for_none() -> None:
    assert excess(TERMS, certificate(lifetime=None)) == "lifetime"


def test_the_message_of_an_approval_is_read_back() -> None:
    """So that an approval is not extended by being kept twice."""
    time = datetime(2026, 11, 19, 12, tzinfo=UTC)
    kept = KeptApproval("Alice of the web team", "acme-1", time, "0a1b")

    assert kept_approval(REASON, str(kept)) == kept
    assert kept_approval("ApprovedByPerson", str(kept)) is None
    assert kept_approval(REASON, "Alice approved something") is None
    assert kept_approval(REASON, str(kept).replace("2026-11-19T12:00:00Z", "noon")) is None
