"""Dependents of an authority are counted, and none of another signer."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.authorities.authority_spec import AuthorityParent, CertificateAuthoritySpec
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    parent_reference,
)
from orchid.features.authorities.policies.dependents import AuthorityDependents
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.trust_bundles.kinds import cluster_trust_bundle
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import a_request
from tests.unit.kernel.access.world import World, world_of

SIGNER, OTHER = "example.com/web", "example.com/web2"
KIND: Any = certificate_authority.declare(ORCH)
WEB = CertificateAuthority(
    metadata=ObjectMeta(name="web", uid="w"), spec=CertificateAuthoritySpec(signer_name=SIGNER)
)
CHANGED = replace(WEB, spec=replace(WEB.spec, duration="48h"))
TARGET = Target(verb="update", is_resource=True, resource="certificateauthorities", name="web")


@pytest.fixture
async def here() -> AsyncIterator[World]:
    kinds = (certificate_authority, certificate_signing_request, cluster_trust_bundle)
    async with world_of(*(one.declare(ORCH) for one in kinds)) as made:
        yield made


async def warnings(here: World, new: Any, old: Any, live: int = 0) -> list[str]:
    policy = AuthorityDependents(here.feed, lambda signer: live if signer == SIGNER else 99)
    request = a_request(TARGET)
    await policy.review(request, KIND, new, old)
    return request.warnings


def asked(name: str, signer: str = SIGNER, **meta: Any) -> CertificateSigningRequest:
    return CertificateSigningRequest(
        metadata=ObjectMeta(name=name, uid=name, **meta),
        spec=CertificateSigningRequestSpec(request=b"pem", signer_name=signer),
    )


async def bundle(here: World, name: str, signer: str) -> None:
    spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle="pem")
    await here.put(ClusterTrustBundle(metadata=ObjectMeta(name=name, uid=name), spec=spec))


async def test_open_requests_and_bundles_of_the_signer_are_counted(here: World) -> None:
    """Not those that have an outcome, nor those of a signer whose name begins alike."""
    await here.put(asked("waits"))
    await here.put(asked("approved").with_condition("Approved", "r", "m"))
    await here.put(asked("denied").with_condition("Denied", "r", "m"))
    await here.put(asked("failed").with_condition("Failed", "r", "m"))
    await here.put(asked("issued").with_certificate(b"pem"))
    await here.put(asked("other", OTHER, annotations={"a": f'"signerName":"{SIGNER}"'}))
    await bundle(here, "example.com:web:a", SIGNER)
    await bundle(here, "example.com:web2:a", OTHER)

    found = await warnings(here, None, WEB, live=1)

    assert found == [
        f"the authority of {SIGNER} is deleted, on which depend 1 live certificate, "
        "2 open requests and 1 trust bundle"
    ]


async def test_a_change_of_terms_warns_too(here: World) -> None:
    """Open requests may get a different certificate."""
    (found,) = await warnings(here, CHANGED, WEB, live=2)

    assert "is changed, on which depend 2 live certificates, 0 open requests" in found


@pytest.mark.parametrize(
    ("new", "old"),
    [(WEB, None), (WEB.with_meta(labels={"a": "b"}), WEB), (None, WEB)],
    ids=["created", "labelled", "nothing depends on it"],
)
async def test_otherwise_nothing_is_said(here: World, new: Any, old: Any) -> None:
    """A new authority, other metadata, or an authority that nobody uses."""
    assert await warnings(here, new, old) == []


async def below(here: World, name: str, parent: str, remembered: CertificateAuthority) -> None:
    spec = CertificateAuthoritySpec(
        signer_name=f"example.com/{name}", parent=AuthorityParent(authority=parent)
    )
    new = CertificateAuthority(metadata=ObjectMeta(name=name, uid=name), spec=spec)
    await here.put(replace(new, status=replace(new.status, parent=parent_reference(remembered))))


async def test_an_authority_with_others_below_it_stays(here: World) -> None:
    """The message names five of them."""
    for number in range(7):
        await below(here, f"low-{number}", "web", WEB)

    with pytest.raises(Forbidden) as refused:
        await warnings(here, None, WEB)

    assert "low-0, low-1, low-2, low-3, low-4 and 2 more" in str(refused.value)
    assert await warnings(here, CHANGED, WEB) == []


@pytest.mark.parametrize(
    ("parent", "uid"), [("web2", "w"), ("web", "of-the-one-before")], ids=["name", "uid"]
)
async def test_an_authority_that_is_not_the_parent_is_deleted(
    here: World, parent: str, uid: str
) -> None:
    await below(here, "low", parent, WEB.with_meta(uid=uid))

    assert await warnings(here, None, WEB) == []
