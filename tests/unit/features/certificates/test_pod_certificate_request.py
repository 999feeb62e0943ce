"""PodCertificateRequest: what may be requested, and the one outcome that it may get."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
    PodCertificateRequestStatus,
    declare,
    with_defaults,
)
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.wire.codec.documents import encode, to_builtins
from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.credentials import samples

KIND = declare(ORCH)
NOW = datetime.datetime(2026, 5, 1, 12, 0, 0, tzinfo=datetime.UTC)
MINUTE, HOUR = datetime.timedelta(minutes=1), datetime.timedelta(hours=1)
DAY = 24 * HOUR

STUB = samples.stub()
P224 = ec.derive_private_key(0xC0FFEE, ec.SECP224R1())
P521 = ec.derive_private_key(0xC0FFEE, ec.SECP521R1())


def requested(**spec: Any) -> PodCertificateRequest:
    fields: dict[str, Any] = {
        "signer_name": "example.com/pods",
        "pod_name": "web",
        "pod_uid": "p",
        "service_account_name": "app",
        "service_account_uid": "a",
        "node_name": "n1",
        "node_uid": "n",
        "max_expiration_seconds": 86400,
        "stub_pkcs10_request": STUB,
    }
    spec = fields | spec
    return PodCertificateRequest(
        metadata=ObjectMeta(name="req-1", namespace="ci"), spec=PodCertificateRequestSpec(**spec)
    )


def refusals(new: PodCertificateRequest) -> list[str]:
    return [str(error) for error in KIND.rules.validate(new)]


@pytest.mark.parametrize("key", [samples.P256, P521, samples.ED25519])
def test_a_complete_request_is_accepted(key: Any) -> None:
    """Every key type that TLS clients use, with and without annotations."""
    annotations = {"example.com/Profile": "short"}

    assert refusals(requested(stub_pkcs10_request=samples.stub(key))) == []
    assert refusals(requested(unverified_user_annotations=annotations)) == []


SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"signer_name": ""}, "spec.signerName: Required value"),
        ({"pod_name": "A"}, f'spec.podName: Invalid value: "A": {SUBDOMAIN}'),
        ({"service_account_name": ""}, f'spec.serviceAccountName: Invalid value: "": {SUBDOMAIN}'),
        ({"node_name": "a_b"}, f'spec.nodeName: Invalid value: "a_b": {SUBDOMAIN}'),
        ({"pod_uid": ""}, 'spec.podUID: Invalid value: "": must not be empty'),
        ({"node_uid": "x" * 129}, "spec.nodeUID: Too long: may not be more than 128 bytes"),
        (
            {"service_account_uid": "x" * 129},
            "spec.serviceAccountUID: Too long: may not be more than 128 bytes",
        ),
        (
            {"max_expiration_seconds": 3599},
            "spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]",
        ),
        (
            {"signer_name": "orch.io/x", "max_expiration_seconds": 86401},
            "spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]",
        ),
        (
            {"unverified_user_annotations": {"plain": "x"}},
            'spec.unverifiedUserAnnotations: Invalid value: "plain": must be a domain-prefixed '
            'key (such as "acme.io/foo")',
        ),
        (
            {"unverified_user_annotations": {"a.io/x": "x" * (256 * 1024)}},
            "spec.unverifiedUserAnnotations: Too long: may not be more than 262144 bytes",
        ),
        ({"stub_pkcs10_request": b""}, "spec.stubPKCS10Request: Required value"),
        (
            {"stub_pkcs10_request": b"x" * 10241},
            "spec.stubPKCS10Request: Too long: may not be more than 10240 bytes",
        ),
        (
            {"stub_pkcs10_request": b"junk"},
            "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR: ",
        ),
        (
            {"stub_pkcs10_request": samples.stub(P224)},
            'spec.stubPKCS10Request: Invalid value: "curve secp224r1": elliptic public keys must '
            "use curve P256, P384, or P521",
        ),
        (
            {"stub_pkcs10_request": samples.stub(samples.rsa_key())},
            'spec.stubPKCS10Request: Invalid value: "2048-bit modulus": RSA keys must have modulus '
            "size 3072 or 4096",
        ),
    ],
)
def test_each_field_has_its_rule(spec: dict[str, Any], text: str) -> None:
    """One error for one fault, in the words that clients of Kubernetes know."""
    (found,) = refusals(requested(**spec))

    assert found.startswith(text)


def test_a_stub_with_a_broken_signature_proves_nothing() -> None:
    """The last byte of a signature decides."""
    stub = samples.stub()
    broken = stub[:-1] + bytes([stub[-1] ^ 1])

    (found,) = refusals(requested(stub_pkcs10_request=broken))

    assert "x509: ECDSA verification failure" in found


def test_the_platform_domain_follows_the_naming() -> None:
    """A day is the limit for the platform's own signers, and 91 days for all others."""
    long = requested(signer_name="kubernetes.io/x", max_expiration_seconds=86401)

    assert refusals(long) == []
    assert len(list(declare(KUBERNETES).rules.validate(long))) == 1


def test_a_request_without_a_lifetime_gets_a_day() -> None:
    """The default is filled in before anything is checked."""
    assert with_defaults(requested(max_expiration_seconds=None)) == requested()
    kept = requested(max_expiration_seconds=3600)
    assert with_defaults(kept) is kept


def test_the_spec_never_changes() -> None:
    """Metadata may change; any other field is refused."""
    old = requested()
    new = requested(pod_name="other")

    (found,) = KIND.rules.validate_update(new, old)

    assert str(found).startswith("spec: Invalid value: ")
    assert str(found).endswith("field is immutable")
    assert not list(KIND.rules.validate_update(old, old))


def test_names_in_json_are_those_of_kubernetes() -> None:
    """UIDs and the stub have irregular names; empty fields of the spec are written."""
    empty = b'{"metadata":{},"spec":{"signerName":"","podName":"","podUID":"",'
    empty += b'"serviceAccountName":"","serviceAccountUID":"","nodeName":"","nodeUID":"",'
    empty += b'"stubPKCS10Request":null},"status":{}}'

    assert encode(PodCertificateRequest()) == empty


# --- the outcome ------------------------------------------------------------------------------


def leaf(
    begins: datetime.datetime = NOW - MINUTE,
    life: datetime.timedelta = HOUR,
    *,
    key: Any = samples.P256,
    alternative: tuple[x509.GeneralName, ...] = (),
) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begins)
        .not_valid_after(begins + life)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    signed = builder.sign(samples.OTHER_P256, hashes.SHA256())
    return pem.encode(pem.CERTIFICATE, signed.public_bytes(samples.DER)).decode()


def outcome(type_: str = "Issued", status: str = "True", **fields: Any) -> Condition:
    words: dict[str, Any] = {"reason": "Because", "last_transition_time": NOW} | fields
    return Condition(type=type_, status=status, **words)


def issued(**status: Any) -> PodCertificateRequest:
    begins = NOW - MINUTE
    fields: dict[str, Any] = {
        "conditions": (outcome(),),
        "certificate_chain": leaf(),
        "not_before": begins,
        "begin_refresh_at": begins + 30 * MINUTE,
        "not_after": begins + HOUR,
    }
    return replace(requested(), status=PodCertificateRequestStatus(**(fields | status)))


def outcome_refusals(
    new: PodCertificateRequest,
    old: PodCertificateRequest | None = None,
    now: datetime.datetime = NOW,
) -> list[str]:
    endpoint = KIND.endpoint("status")
    assert endpoint is not None
    old = old or requested()
    found = list(endpoint.rules.validate_update(new, old))
    return [str(error) for error in found or endpoint.rules.validate_times(new, old, now)]


def test_an_issued_certificate_for_the_key_of_the_request_is_accepted() -> None:
    """With three times that agree with the certificate."""
    assert outcome_refusals(issued()) == []
    assert outcome_refusals(replace(requested())) == []


@pytest.mark.parametrize("type_", ["Denied", "Failed"])
def test_a_refusal_has_nothing_but_its_condition(type_: str) -> None:
    """A chain or a time beside a refusal would be read as a certificate."""
    alone = PodCertificateRequestStatus(conditions=(outcome(type_),))

    assert outcome_refusals(replace(requested(), status=alone)) == []
    (found,) = outcome_refusals(issued(conditions=(outcome(type_),)))
    assert found.startswith("status: Invalid value: non-condition status fields must be empty")


LEAF_NAME = "leaf certificate's DNSName should not start or end with '.'"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            {"conditions": (outcome("Odd"),)},
            'status.conditions[0].type: Unsupported value: "Odd": supported values: '
            '"Issued", "Denied", "Failed"',
        ),
        (
            {"conditions": (outcome(), outcome("Denied"))},
            'status.conditions[1].type: Invalid value: "Denied": There may be at most one '
            'condition with type "Issued", "Denied", or "Failed"',
        ),
        (
            {"conditions": (outcome(status="False"),)},
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        ),
        (
            {"conditions": (outcome(reason=""),)},
            "status.conditions[0].reason: Required value",
        ),
        (
            {"conditions": (outcome(reason="two words"),)},
            'status.conditions[0].reason: Invalid value: "two words"',
        ),
        (
            {"conditions": (outcome(last_transition_time=None),)},
            "status.conditions[0].lastTransitionTime: Required value",
        ),
        (
            {"conditions": ()},
            "status: Invalid value: status is immutable unless transitioning to "
            '"Issued", "Denied", or "Failed"',
        ),
        (
            {"certificate_chain": ""},
            "status.certificateChain: Invalid value: must contain at least one CERTIFICATE",
        ),
        (
            {"certificate_chain": leaf() + "-----BEGIN X-----\nAA==\n-----END X-----\n"},
            "status.certificateChain: Invalid value: only CERTIFICATE PEM blocks are allowed",
        ),
        (
            {"certificate_chain": "x" * (100 * 1024 + 1)},
            "status.certificateChain: Too long: may not be more than 102400 bytes",
        ),
        (
            {"certificate_chain": leaf(key=samples.OTHER_P256)},
            "status.certificateChain: Invalid value: leaf certificate was not issued to the "
            "requested public key",
        ),
        (
            {"certificate_chain": leaf(alternative=(x509.DNSName("a.example."),))},
            f'status.certificateChain: Invalid value: "a.example.": {LEAF_NAME}',
        ),
        (
            {"certificate_chain": leaf(alternative=(x509.DNSName("a..example"),))},
            'status.certificateChain: Invalid value: "a..example": leaf certificate\'s DNSName '
            "should not contain '..'",
        ),
        ({"not_before": None}, "status.notBefore: Required value: must be present"),
        ({"not_after": None}, "status.notAfter: Required value: must be present"),
        ({"begin_refresh_at": None}, "status.beginRefreshAt: Required value: must be present"),
        (
            {"not_before": NOW},
            'status.notBefore: Invalid value: "2026-05-01T12:00:00Z": must be set to the NotBefore '
            "time encoded in the leaf certificate",
        ),
        (
            {"not_after": NOW + HOUR},
            'status.notAfter: Invalid value: "2026-05-01T13:00:00Z": must be set to the NotAfter',
        ),
        (
            {"begin_refresh_at": NOW},
            'status.beginRefreshAt: Invalid value: "2026-05-01T12:00:00Z": must be at least 10 '
            "minutes after status.notBefore",
        ),
        (
            {"begin_refresh_at": NOW + HOUR - 11 * MINUTE + MINUTE},
            'status.beginRefreshAt: Invalid value: "2026-05-01T12:50:00Z": must be at least 10 '
            "minutes before status.notAfter",
        ),
    ],
)
def test_each_part_of_an_outcome_has_its_rule(status: dict[str, Any], text: str) -> None:
    """One error for one fault."""
    (found,) = outcome_refusals(issued(**status))

    assert found.startswith(text)


@pytest.mark.parametrize("moment", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("part", ["not_before", "begin_refresh_at", "not_after"])
def test_the_ends_of_time_are_compared(part: str, moment: str) -> None:
    """A time may be the first or the last there is."""
    assert outcome_refusals(
        issued(**{part: datetime.datetime.fromisoformat(f"{moment}T00:00:00Z")})
    )


@pytest.mark.parametrize(
    ("life", "text"),
    [
        (HOUR - MINUTE, "leaf certificate lifetime must be >= 1 hour"),
        (
            DAY + MINUTE,
            "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)",
        ),
    ],
)
def test_a_certificate_lasts_an_hour_at_least_and_no_longer_than_requested(
    life: datetime.timedelta, text: str
) -> None:
    """The life counts from notBefore."""
    begins = NOW - MINUTE
    chain = leaf(life=life)

    (found,) = outcome_refusals(issued(certificate_chain=chain, not_after=begins + life))

    assert found.endswith(text)


@pytest.mark.parametrize(
    ("off", "accepted"),
    [(-4, True), (4, True), (-6, False), (6, False)],
)
def test_a_certificate_begins_about_now(off: int, accepted: bool) -> None:
    """Five minutes of difference between two clocks are tolerated, no more."""
    now = NOW - MINUTE + off * MINUTE

    assert (outcome_refusals(issued(), now=now) == []) is accepted


def test_an_outcome_is_final() -> None:
    """Neither another outcome nor another certificate replaces it, and time does not matter."""
    denied = replace(
        requested(), status=PodCertificateRequestStatus(conditions=(outcome("Denied"),))
    )

    for new, old in ((denied, issued()), (issued(), denied)):
        (found,) = outcome_refusals(new, old)
        assert found == (
            "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or "
            "failed"
        )
    stored = issued()
    assert outcome_refusals(stored, stored, now=NOW + DAY) == []


def test_the_table_shows_the_state() -> None:
    """Pending until there is an outcome; annotations are shown in the wide table only."""
    rows = [
        [column.cell(one, NOW) for column in KIND.columns if not column.priority]
        for one in (requested(), issued())
    ]
    wide: list[Callable[..., Any]] = [c.cell for c in KIND.columns if c.priority]
    noted = requested(unverified_user_annotations={"b.io/y": "2", "a.io/x": "1"})

    assert rows[0] == ["req-1", "web", "app", "n1", "example.com/pods", "Pending"]
    assert rows[1][-1] == "Issued"
    assert [cell(noted, NOW) for cell in wide] == ["a.io/x=1,b.io/y=2"]


def test_fields_that_lists_select_by() -> None:
    """The node lists its own requests; the signer lists those for it."""
    fields = {name: read(requested()) for name, read in KIND.selectable.items()}

    assert fields == {
        "spec.signerName": "example.com/pods",
        "spec.podName": "web",
        "spec.nodeName": "n1",
    }
    assert to_builtins(requested())["spec"]["podUID"] == "p"


def test_rsa_keys_of_3072_bits_are_accepted() -> None:
    """The smallest RSA key that Kubernetes accepts here."""
    key = rsa.generate_private_key(65537, 3072)

    assert refusals(requested(stub_pkcs10_request=samples.stub(key))) == []
