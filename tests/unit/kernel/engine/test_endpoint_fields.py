"""Fields that an endpoint may write, and those that it therefore never owns."""

import pytest

from orchid.features.accounts.kinds import service_account
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from orchid.features.objects.kinds import namespace
from orchid.kernel.engine.endpoint_fields import blank_unwritten, keep_unwritten, resets
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace

KIND = certificate_signing_request.declare(ORCH)
OLD = CertificateSigningRequest(
    spec=CertificateSigningRequestSpec(signer_name="old/signer"),
    status=CertificateSigningRequestStatus(certificate=b"old"),
)
NEW = CertificateSigningRequest(
    spec=CertificateSigningRequestSpec(signer_name="new/signer"),
    status=CertificateSigningRequestStatus(certificate=b"new"),
).with_meta(labels={"x": "y"})


@pytest.mark.parametrize(
    ("endpoint", "certificate"), [(None, b"old"), ("approval", b"old"), ("status", b"new")]
)
def test_an_endpoint_changes_only_its_own_fields(endpoint: str | None, certificate: bytes) -> None:
    """The rest of the object keeps its stored value, whatever was sent."""
    chosen = KIND.endpoint(endpoint) if endpoint else None
    kept = keep_unwritten(KIND, chosen, NEW, OLD)

    assert kept.spec.signer_name == "old/signer"
    assert kept.status.certificate == certificate
    assert kept.metadata.labels == {"x": "y"}


def test_a_create_begins_without_a_status() -> None:
    """Fields that a create may not set are empty."""
    blank = blank_unwritten(KIND, NEW)

    assert blank.spec.signer_name == "new/signer"
    assert blank.status == CertificateSigningRequestStatus()


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (None, {"spec", "status"}),
        ("status", {"spec", "status.conditions"}),
        ("approval", {"spec", "status.certificate"}),
    ],
)
def test_reset_fields_are_those_of_the_contract(endpoint: str | None, expected: set[str]) -> None:
    """Nobody comes to own through an endpoint what it cannot write."""
    assert set(resets(KIND, KIND.endpoint(endpoint) if endpoint else None)) == expected


def test_an_account_resets_nothing() -> None:
    """All its fields are its writers'."""
    kind = service_account.declare(ORCH)
    account = service_account.ServiceAccount().with_meta(name="a")

    assert resets(kind, None) == ()
    assert keep_unwritten(kind, None, account, service_account.ServiceAccount()) == account


def test_finalize_writes_what_the_main_endpoint_does_not() -> None:
    """A namespace's finalizers change through their own endpoint only."""
    kind = namespace.declare(ORCH)
    old = namespace.Namespace(spec=namespace.NamespaceSpec(finalizers=("a",)))
    new = replace(old, spec=namespace.NamespaceSpec())

    assert keep_unwritten(kind, None, new, old).spec.finalizers == ("a",)
    assert keep_unwritten(kind, kind.endpoint("finalize"), new, old).spec.finalizers == ()
