"""approve, sign and attest: asked of the right signer, at the right moments."""

from typing import Any

import pytest

from orchid.features.approval.terms import ApprovalPolicySpec
from orchid.features.approving.kinds import approval_policy
from orchid.features.approving.kinds.approval_policy import ApprovalPolicy
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.certificates.kinds import pod_certificate_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
    PodCertificateRequestStatus,
)
from orchid.features.certificates.policies.signer_permission import SignerPermission
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.request_conditions import CertificateSigningRequestCondition
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import BUNDLES, SIGNING_REQUESTS, Rights, a_request
from tests.unit.features.rights.policy_world import (
    a_cluster_role,
    ask,
    bound,
    policy_world,
    rule,
    user,
)

CUSTOM = "example.com/custom"
POLICIES = approval_policy.declare(ORCH)
CSR = CertificateSigningRequest(
    metadata=ObjectMeta(name="csr1"), spec=CertificateSigningRequestSpec(signer_name=CUSTOM)
)
ISSUED = replace(CSR, status=CertificateSigningRequestStatus(certificate=b"x"))
DECIDED = replace(
    CSR,
    status=CertificateSigningRequestStatus(
        conditions=(CertificateSigningRequestCondition(type="Failed"),)
    ),
)
BUNDLE = ClusterTrustBundle(
    metadata=ObjectMeta(name="example.com:custom:a", resource_version="5"),
    spec=ClusterTrustBundleSpec(signer_name=CUSTOM, trust_bundle="a"),
)

AUTHORITIES = KindCache(certificate_authority.declare(ORCH))
OWN = "example.org/web"
AUTHORITIES.load(
    {
        AUTHORITIES.kind.key("", "web"): Entry.unsaved(
            AUTHORITIES.kind,
            CertificateAuthority(
                metadata=ObjectMeta(name="web"), spec=CertificateAuthoritySpec(signer_name=OWN)
            ),
        )
    },
    oldest=0,
)


async def judge(rights: Any, endpoint: str, new: Any, old: Any, kind: Any) -> None:
    resource = f"{kind.plural}/{endpoint}" if endpoint else kind.plural
    verb = "update" if old is not None else "create"
    request = a_request(ask(verb, resource, name="x", group=kind.group))
    authorities = SignerAuthorities(AUTHORITIES, ORCH)
    await SignerPermission(ORCH, rights, authorities.of).review(request, kind, new, old)


@pytest.mark.parametrize(
    ("endpoint", "new", "verb", "text"),
    [
        ("approval", CSR, "approve", "user not permitted to approve requests with signerName"),
        ("status", ISSUED, "sign", "user not permitted to sign requests with signerName"),
        ("status", DECIDED, "sign", "user not permitted to sign requests with signerName"),
    ],
)
async def test_deciding_and_signing_take_the_right_for_that_signer(
    endpoint: str, new: Any, verb: str, text: str
) -> None:
    """Without the verb on the signer, or on its domain, the write is refused."""
    rights = Rights()

    with pytest.raises(Forbidden) as caught:
        await judge(rights, endpoint, new, CSR, SIGNING_REQUESTS)

    assert caught.value.message == (
        f'certificatesigningrequests.certificates.orch.io "csr1" is forbidden: {text} "{CUSTOM}"'
    )
    assert [(t.verb, t.group, t.version, t.resource, t.name) for t in rights.asked] == [
        (verb, "certificates.orch.io", "*", "signers", CUSTOM),
        (verb, "certificates.orch.io", "*", "signers", "example.com/*"),
    ]
    for name in (CUSTOM, "example.com/*"):
        await judge(Rights((verb, "signers", name)), endpoint, new, CSR, SIGNING_REQUESTS)


async def test_the_stored_signer_counts_not_the_one_that_was_sent() -> None:
    """Naming another signer in the body does not move the question."""
    sent = replace(CSR, spec=replace(CSR.spec, signer_name="own.io/x"))

    with pytest.raises(Forbidden, match=CUSTOM):
        await judge(
            Rights(("approve", "signers", "own.io/x")), "approval", sent, CSR, SIGNING_REQUESTS
        )


@pytest.mark.parametrize(
    ("endpoint", "new", "old"),
    [
        ("status", CSR.with_meta(labels={"a": "b"}), CSR),
        ("status", ISSUED, ISSUED),
        ("", CSR.with_meta(labels={"a": "b"}), CSR),
        ("", CSR, None),
        ("", None, CSR),
    ],
)
async def test_other_writes_to_requests_need_no_signer_right(
    endpoint: str, new: Any, old: Any
) -> None:
    """Asking, labelling and deleting are ordinary writes."""
    rights = Rights()

    await judge(rights, endpoint, new, old, SIGNING_REQUESTS)

    assert rights.asked == []


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (BUNDLE, None),
        (replace(BUNDLE, spec=replace(BUNDLE.spec, trust_bundle="b")), BUNDLE),
        (BUNDLE.with_meta(labels={"a": "b"}), BUNDLE),
    ],
)
async def test_attesting_takes_the_right_for_the_signer(new: Any, old: Any) -> None:
    """Creating a signer's bundle and any real change to it need the verb attest."""
    with pytest.raises(Forbidden) as caught:
        await judge(Rights(), "", new, old, BUNDLES)

    assert caught.value.message == (
        'clustertrustbundles.certificates.orch.io "example.com:custom:a" is forbidden: '
        f'user not permitted to attest for signerName "{CUSTOM}"'
    )
    await judge(Rights(("attest", "signers", "example.com/*")), "", new, old, BUNDLES)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (replace(BUNDLE, spec=ClusterTrustBundleSpec(trust_bundle="a")), None),
        (BUNDLE, BUNDLE),
        (BUNDLE.with_meta(finalizers=("a/b",), resource_version=""), BUNDLE),
        (None, BUNDLE),
    ],
)
async def test_unlinked_bundles_upkeep_and_deletion_need_no_attest(new: Any, old: Any) -> None:
    """A bundle without a signer needs no right of a signer."""
    rights = Rights()

    await judge(rights, "", new, old, BUNDLES)

    assert rights.asked == []


@pytest.mark.parametrize("verb", ["approve", "sign", "attest"])
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([CUSTOM], {CUSTOM}),
        (["example.com/*"], {CUSTOM, "example.com/other"}),
        (["*"], set()),
        (["example.com/cus*"], set()),
        (["example.com"], set()),
        ([], {CUSTOM, "example.com/other", "other.io/custom"}),
    ],
)
async def test_rights_by_signer_name(verb: str, named: list[str], expected: set[str]) -> None:
    """Verb by verb: a name, a whole domain, or no names at all; a star alone is only a name."""
    async with policy_world() as here:
        await here.put(a_cluster_role("r", rule(verb, "signers", ORCH.certificates, named)))
        await here.put(bound("b", "r", user("eve")))
        rbac, passed = RBAC(ORCH, here.feed, here.offload), set()

        for signer in (CUSTOM, "example.com/other", "other.io/custom"):
            csr = replace(CSR, spec=replace(CSR.spec, signer_name=signer))
            bundle = replace(BUNDLE, spec=replace(BUNDLE.spec, signer_name=signer))
            attempts = {
                "approve": ("approval", csr, csr, SIGNING_REQUESTS),
                "sign": ("status", replace(csr, status=ISSUED.status), csr, SIGNING_REQUESTS),
                "attest": ("", bundle, None, BUNDLES),
            }
            for word, attempt in attempts.items():
                try:
                    await judge(rbac, *attempt)
                except Forbidden:
                    continue
                passed.add((word, signer))

    assert passed == {(verb, signer) for signer in expected}


@pytest.mark.parametrize("signer", [OWN, CUSTOM])
async def test_the_right_for_an_authority_is_one_for_its_signer_alone(signer: str) -> None:
    """`sign` on a CertificateAuthority signs for its signer, and for no signer without one."""
    rights = Rights(("sign", "certificateauthorities", "web"))
    old = replace(CSR, spec=CertificateSigningRequestSpec(signer_name=signer))
    new = replace(old, status=ISSUED.status)

    if signer == OWN:
        await judge(rights, "status", new, old, SIGNING_REQUESTS)
    else:
        with pytest.raises(Forbidden):
            await judge(rights, "status", new, old, SIGNING_REQUESTS)


async def test_the_right_for_an_authority_approves_nothing() -> None:
    """The right to sign does not include approval."""
    rights = Rights(("approve", "certificateauthorities", "web"))
    old = replace(CSR, spec=CertificateSigningRequestSpec(signer_name=OWN))

    with pytest.raises(Forbidden):
        await judge(rights, "approval", old, old, SIGNING_REQUESTS)


def policy(*signers: str, **more: Any) -> ApprovalPolicy:
    return ApprovalPolicy(
        metadata=ObjectMeta(name="p"), spec=ApprovalPolicySpec(signer_names=signers, **more)
    )


@pytest.mark.parametrize(
    ("signers", "right", "allowed"),
    [
        ((CUSTOM,), CUSTOM, True),
        ((CUSTOM,), "example.com/*", True),
        (("example.com/*",), "example.com/*", True),
        (("example.com/*",), CUSTOM, False),
        (("example.com/c*",), CUSTOM, False),
        ((CUSTOM, "other.com/x"), CUSTOM, False),
        ((), CUSTOM, False),
        ((), "*", True),
        (("*",), "example.com/*", False),
    ],
)
async def test_who_writes_a_policy_may_approve_what_it_approves(
    signers: tuple[str, ...], right: str, allowed: bool
) -> None:
    """Otherwise the right to write policies would be the right to approve everything."""
    rights = Rights(("approve", "signers", right))

    if allowed:
        await judge(rights, "", policy(*signers), None, POLICIES)
    else:
        with pytest.raises(Forbidden, match="user not permitted to approve requests"):
            await judge(rights, "", policy(*signers), None, POLICIES)


async def test_a_policy_whose_terms_stay_takes_no_right() -> None:
    """A label, or a condition in its status, approves nothing."""
    old = policy(CUSTOM)
    labelled = old.with_meta(labels={"a": "b"})

    await judge(Rights(), "", labelled, old, POLICIES)

    with pytest.raises(Forbidden):
        await judge(Rights(), "", policy(CUSTOM, otherwise="deny"), old, POLICIES)


async def test_the_outcome_of_a_pod_certificate_request_takes_the_right_to_sign() -> None:
    """Kubernetes answers 422 here, with the field that names the signer."""
    kind = pod_certificate_request.declare(ORCH)
    old = PodCertificateRequest(
        metadata=ObjectMeta(name="req-1", namespace="ci"),
        spec=PodCertificateRequestSpec(signer_name=CUSTOM),
    )
    denied = Condition(type="Denied", status="True")
    new = replace(old, status=PodCertificateRequestStatus(conditions=(denied,)))

    with pytest.raises(Invalid) as caught:
        await judge(Rights(), "status", new, old, kind)

    assert caught.value.message == (
        'PodCertificateRequest.certificates.orch.io "req-1" is invalid: spec.signerName: '
        'Forbidden: User "eve" is not permitted to "sign" for signer "example.com/custom"'
    )
    await judge(Rights(("sign", "signers", "example.com/*")), "status", new, old, kind)
    await judge(Rights(), "status", old, old, kind)
