"""Issued and refused credentials are counted once, under labels that no client can invent."""

from datetime import UTC, datetime

import pytest

from orchid.features.accounts.kinds import token_request
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    TokenRequest,
    TokenRequestSpec,
)
from orchid.features.accounts.token_issuer import IssuingSettings, TokenIssuer
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.certificates.credentials_metrics import MOST_NAMED, IssuanceMetrics
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.credentials.keys import generate
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.request_conditions import APPROVED, DENIED, FAILED
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import API, Repeatable
from tests.unit.kernel.access.world import World

SIGNER = TokenSigner(generate(), API[0], ORCH.private_claim)


@pytest.fixture
def metrics(here: World) -> IssuanceMetrics:
    authorities = SignerAuthorities(here.feed.of(CertificateAuthority), ORCH)
    return IssuanceMetrics(ORCH, here.feed, authorities)


def asked_of(signer: str, name: str = "alice") -> CertificateSigningRequest:
    return CertificateSigningRequest(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=CertificateSigningRequestSpec(request=b"pem", signer_name=signer),
    )


async def test_certificate_is_counted_once(here: World, metrics: IssuanceMetrics) -> None:
    """Neither the request and its approval nor a later change of the object counts."""
    approved = asked_of(ORCH.client_signer).with_condition(APPROVED, "Good")
    await here.put(asked_of(ORCH.client_signer))
    await here.put(approved)
    waiting = metrics.certificates.value(ORCH.client_signer, "issued")

    issued = approved.with_certificate(b"pem")
    await here.put(issued)
    await here.put(issued.with_meta(labels={"later": "yes"}))
    await here.delete(issued)

    assert waiting == 0
    assert metrics.certificates.value(ORCH.client_signer, "issued") == 1


@pytest.mark.parametrize(("condition", "outcome"), [(DENIED, "denied"), (FAILED, "failed")])
async def test_refusals_are_counted_by_reason(
    here: World, metrics: IssuanceMetrics, condition: str, outcome: str
) -> None:
    """Somebody said no, or the signer could not."""
    await here.put(asked_of(ORCH.legacy_signer).with_condition(condition, "Because"))

    assert metrics.certificates.value(ORCH.legacy_signer, outcome) == 1


@pytest.mark.parametrize("outcome", ["Issued", "Denied", "Failed"])
async def test_requests_for_pods_are_counted_once(
    here: World, metrics: IssuanceMetrics, outcome: str
) -> None:
    """By the same name as other requests."""
    spec = PodCertificateRequestSpec(signer_name=ORCH.pod_client_signer)
    made = PodCertificateRequest(
        metadata=ObjectMeta(name="req-1", namespace="ci", uid="u"), spec=spec
    )
    settled = made.settled(outcome, "Because", "", datetime.now(UTC))
    await here.put(made)
    await here.put(settled)
    await here.put(settled.with_meta(labels={"later": "yes"}))

    assert metrics.certificates.value(ORCH.pod_client_signer, outcome.lower()) == 1


async def test_signers_that_are_not_ours_are_one(here: World, metrics: IssuanceMetrics) -> None:
    """Names that a client may invent make no series."""
    for number in range(3):
        new = asked_of(f"example.com/signer-{number}", f"request-{number}")
        await here.put(new.with_certificate(b"pem"))

    samples = list(metrics.certificates.family().samples)

    assert [(dict(each.labels), each.value) for each in samples] == [
        ({"signer": "other", "outcome": "issued"}, 3)
    ]


async def test_signers_of_authorities_have_their_names(
    here: World, metrics: IssuanceMetrics
) -> None:
    """An authority that exists is one that somebody with the right has made."""
    own = CertificateAuthority(
        metadata=ObjectMeta(name="web", uid="uid-web"),
        spec=CertificateAuthoritySpec(signer_name="example.com/web"),
    )
    await here.put(own)
    await here.put(asked_of("example.com/web").with_condition(DENIED, "No"))
    await here.put(asked_of("example.com/not", "bob").with_condition(DENIED, "No"))
    await here.delete(own)
    await here.put(asked_of("example.com/web", "carol").with_condition(DENIED, "No"))

    assert metrics.certificates.value("example.com/web", "denied") == 2
    assert metrics.certificates.value("other", "denied") == 1


async def test_names_of_authorities_are_bounded(here: World, metrics: IssuanceMetrics) -> None:
    """Creating and deleting many authorities does not add series without limit."""
    for number in range(MOST_NAMED + 1):
        own = CertificateAuthority(
            metadata=ObjectMeta(name="a", uid="uid-a"),
            spec=CertificateAuthoritySpec(signer_name=f"example.com/{number}"),
        )
        await here.put(own)
        asked = asked_of(f"example.com/{number}", f"r{number}")
        await here.put(asked.with_condition(DENIED, "No"))

    assert metrics.certificates.value(f"example.com/{MOST_NAMED - 1}", "denied") == 1
    assert metrics.certificates.value("other", "denied") == 1


async def test_words_in_an_annotation_are_no_outcome(here: World, metrics: IssuanceMetrics) -> None:
    """Bytes that look like a condition are decoded."""
    await here.put(asked_of(ORCH.client_signer).with_meta(annotations={"type": "Denied"}))

    assert list(metrics.certificates.family().samples) == []


async def ask(
    here: World, metrics: IssuanceMetrics, namespace: str, spec: TokenRequestSpec
) -> None:
    issuer = TokenIssuer(IssuingSettings(API), lambda: SIGNER, here.feed, Repeatable())
    endpoint = metrics.counting(token_request.declare(ORCH, issuer))
    target = Target(
        "create", is_resource=True, resource="serviceaccounts", namespace=namespace,
        name="builder", subresource="token",
    )  # fmt: skip
    assert endpoint.kind is not None
    assert endpoint.kind.acts is not None
    await endpoint.kind.acts.create(
        TokenRequest(spec=spec), Request(target, UserInfo("admin"), here.clock.now())
    )


async def test_tokens_are_counted_by_account_and_bond(
    here: World, metrics: IssuanceMetrics
) -> None:
    """Accounts of the system apart from all others; what a token is bound to by its kind."""
    for namespace in ("ci", ORCH.system_namespace):
        meta = ObjectMeta(name="builder", namespace=namespace, uid="uid-sa")
        await here.put(ServiceAccount(metadata=meta))
    pod = ObjectMeta(name="p", namespace="ci", uid="uid-pod")
    await here.put(Pod(metadata=pod, spec={"serviceAccountName": "builder"}))

    await ask(here, metrics, ORCH.system_namespace, TokenRequestSpec())
    reference = BoundObjectReference(kind="Pod", api_version="v1", name="p")
    await ask(here, metrics, "ci", TokenRequestSpec(bound_object_ref=reference))

    assert metrics.tokens.value("system", "nothing", "issued") == 1
    assert metrics.tokens.value("other", "pod", "issued") == 1


async def test_refused_token_is_counted_and_still_refused(
    here: World, metrics: IssuanceMetrics
) -> None:
    """Counting changes nothing about the answer; a kind that is none makes no series."""
    reference = BoundObjectReference(kind="Invented", api_version="v1", name="x")

    with pytest.raises(NotFound):
        await ask(here, metrics, "ci", TokenRequestSpec(bound_object_ref=reference))

    assert metrics.tokens.value("other", "other", "refused") == 1
