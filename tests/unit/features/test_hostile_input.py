"""Hostile requests, certificates and bundles: refused in their field or accepted, never raising."""

import pytest

from orchid.features.certificates.kinds import certificate_signing_request as requests
from orchid.features.trust_bundles.kinds import cluster_trust_bundle as bundles
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.credentials.x509.trust import trust_anchors
from orchid.kernel.wire.fields import FieldError
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.data import hostile
from tests.data.hostile import Sample
from tests.data.hostile_outcomes import ACCEPTED, is_expected

CORPUS = tuple(hostile.corpus())
RULES = requests.declare(ORCH).rules
SIGNING = requests.SigningRules()
BUNDLE_RULES = bundles.declare(ORCH).rules

FIELDS = {
    hostile.REQUEST: "spec.request",
    hostile.CERTIFICATE: "status.certificate",
    hostile.BUNDLE: "spec.trustBundle",
}
# Two copies of this are the answer: the message, and its causes.
LARGEST_ANSWER = 512 * 1024


def asking(data: bytes) -> requests.CertificateSigningRequest:
    return requests.CertificateSigningRequest(
        spec=requests.CertificateSigningRequestSpec(
            request=data, signer_name="example.com/s", usages=("client auth",)
        )
    )


def findings(sample: Sample) -> list[FieldError]:
    """Everything that the kind says about a sample in its field."""
    if sample.kind == hostile.REQUEST:
        return list(RULES.validate(asking(sample.data)))
    if sample.kind == hostile.CERTIFICATE:
        approved = asking(b"").with_condition("Approved", "ByTest")
        issued = approved.with_certificate(sample.data)
        return list(SIGNING.validate_update(issued, approved))
    spec = bundles.ClusterTrustBundleSpec(trust_bundle=sample.data.decode("utf-8", "replace"))
    bundle = bundles.ClusterTrustBundle(metadata=ObjectMeta(name="b"), spec=spec)
    return list(BUNDLE_RULES.validate(bundle))


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_hostile_input_is_refused_in_its_field_or_accepted(sample: Sample) -> None:
    """As written down for each; no exception, no answer much larger than what was sent."""
    found = findings(sample)

    assert is_expected(sample.name, not found)
    assert {error.path.text for error in found} <= {FIELDS[sample.kind]}
    assert sum(len(str(error)) for error in found) < LARGEST_ANSWER


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_what_is_accepted_can_be_read_again(sample: Sample) -> None:
    """Signers and consumers read what was stored with the same functions: none fails later."""
    if findings(sample) or not sample.data:
        return

    match sample.kind:
        case hostile.REQUEST:
            wanted = signing_request.parse(sample.data)
            assert wanted.public_key
        case hostile.CERTIFICATE:
            assert certificates.parse_blocks(sample.data)
        case _:
            assert trust_anchors.anchors(sample.data.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    "name",
    [
        "request-rsa-512",
        "request-rsa-16384",
        "request-rsa-exponent-1",
        "request-ec-secp256k1",
        "request-ec-point-not-on-curve",
        "request-dsa",
        "request-names-twice",
        "request-ca-twice",
        "request-signature-of-another",
        "request-algorithm-md5-rsa",
        "request-version-one",
        "request-trailing-octet",
        "request-pem-other-label-first",
        "certificate-serial-negative",
        "certificate-version-four",
        "certificate-then-key",
        "certificate-constraints-twice",
        "bundle-constraints-none",
        "bundle-constraints-explicit-false",
        "bundle-same-in-other-lines",
        "bundle-two-in-a-block",
        "bundle-too-full",
    ],
)
def test_the_plainly_wrong_is_refused(name: str) -> None:
    """A few samples whose refusal is not a matter of taste."""
    (sample,) = (sample for sample in CORPUS if sample.name == name)

    assert findings(sample)


def test_an_absent_certificate_is_no_certificate() -> None:
    """An empty one says nothing and is not judged."""
    empty = replace(asking(b""), status=requests.CertificateSigningRequestStatus())

    assert list(SIGNING.validate_update(empty, empty)) == []


def test_the_corpus_is_large_and_every_sample_has_its_own_name() -> None:
    """At least two hundred, so that a report can point at each."""
    assert len(CORPUS) >= 200
    assert len({sample.name for sample in CORPUS}) == len(CORPUS)
    assert {sample.name for sample in CORPUS} >= ACCEPTED


def test_the_corpus_is_the_same_in_every_run() -> None:
    """A failure can be looked at again tomorrow."""
    assert hostile._built.__wrapped__() == CORPUS
