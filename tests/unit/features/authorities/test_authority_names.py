"""What has the name of an authority belongs to it: keys, lists and the bundle."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.controllers.authority_conditions import (
    BUNDLE_TAKEN,
    bundle_problem,
    of_relations,
)
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.policies.authority_names import AuthorityNames
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.trust_bundles.kinds import published_bundle
from orchid.features.trust_bundles.kinds.published_bundle import (
    BundleSource,
    PublishedBundle,
    PublishedBundleSpec,
)
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.authority_status import CertificateAuthorityStatus
from orchid.kernel.wire.conditions import FALSE, TRUE, Condition
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import NOW, a_request
from tests.unit.kernel.access.world import World, world_of

SIGNER = "example.com/web"
KIND: Any = certificate_authority.declare(ORCH)
BUNDLES: Any = published_bundle.declare(ORCH)
TARGET = Target(verb="create", is_resource=True, resource="certificateauthorities", name="web")
WEB = CertificateAuthority(
    metadata=ObjectMeta(name="web", uid="w"), spec=CertificateAuthoritySpec(signer_name=SIGNER)
)
EARLIER = WEB.with_meta(uid="earlier")
PLATFORM = CertificateAuthority(
    metadata=ObjectMeta(name="cluster", uid="c"),
    spec=CertificateAuthoritySpec(signer_names=("orch.io/a", "orch.io/b")),
)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    kinds = certificate_authority, published_bundle, signing_key
    async with world_of(*(one.declare(ORCH) for one in kinds)) as made:
        yield made


def key(name: str, owner: CertificateAuthority | None, authority: str = "web") -> SigningKey:
    owners = (owner_reference(owner, "v1"),) if owner else ()
    meta = ObjectMeta(name=name, uid=f"uid-{name}", owner_references=owners)
    return SigningKey(metadata=meta, spec=SigningKeySpec(authority=authority))


def bundle(owner: CertificateAuthority | None, *signers: str, name: str = "web") -> PublishedBundle:
    owners = (owner_reference(owner, "v1"),) if owner else ()
    sources = tuple(BundleSource(signer_name=one) for one in signers or (SIGNER,))
    return PublishedBundle(
        metadata=ObjectMeta(name=name, uid="b", owner_references=owners),
        spec=PublishedBundleSpec(sources=sources),
    )


def index(here: World) -> AuthorityKeyIndex:
    return AuthorityKeyIndex(here.feed.of(SigningKey), here.feed.of(CertificateAuthority), ORCH)


async def refusal(here: World, new: Object | None, old: Object | None = None) -> str:
    policy = AuthorityNames(here.feed, index(here).named)
    kind = BUNDLES if isinstance(new, PublishedBundle) else KIND
    try:
        await policy.review(a_request(TARGET), kind, new, old)
    except Invalid as problem:
        return str(problem)
    return ""


async def test_a_key_belongs_to_the_authority_of_its_owner_reference(here: World) -> None:
    """Neither the name of the authority in its spec nor a missing owner suffices."""
    keys = index(here)
    await here.put(key("web-1", EARLIER))
    await here.put(key("web-2", None))
    assert keys.of("web") == []
    await here.put(WEB)
    await here.put(key("web-3", WEB))

    assert [one.name for one in keys.of("web")] == ["web-3"]
    assert sorted(one.name for one in keys.named("web")) == ["web-1", "web-2", "web-3"]
    await here.put(EARLIER)  # as after a restore
    assert [one.name for one in keys.of("web")] == ["web-1"]


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ([key("web", None, authority="")], "a SigningKey has this name"),
        ([key("web-1", EARLIER), key("web-2", None)], "left keys, delete them: web-1, web-2"),
        ([key(f"web-{n}", None) for n in range(1, 8)], "web-4, web-5 and 2 more"),
        ([bundle(EARLIER)], "a PublishedBundle has this name; delete it first"),
        ([bundle(None)], "a PublishedBundle has this name; delete it first"),
        ([key("other-1", None, authority="other"), bundle(None, name="other")], ""),
        ([], ""),
    ],
    ids=["list", "keys", "many keys", "bundle", "own bundle", "others", "nothing"],
)
async def test_a_name_is_free_without_keys_and_bundle(
    here: World, left: list[Object], says: str
) -> None:
    """A refusal names what there is."""
    for one in left:
        await here.put(one)

    found = await refusal(here, WEB)

    assert says in found
    assert bool(found) == bool(says)


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ("web-1", "its keys have such names as the authority web-1"),
        ("we", ""),
        ("web-one", ""),
        ("web-1-1", ""),
        ("webs-1", ""),
    ],
)
async def test_no_authority_has_the_name_of_a_key_of_another(
    here: World, there: str, says: str
) -> None:
    """Whichever is created first; only names that keys can get are refused."""
    await here.put(WEB.with_meta(name=there, uid="there"))

    assert bool(found := await refusal(here, WEB)) == bool(says)
    assert says in found


async def test_no_authority_has_the_name_of_a_key_that_is_not_there_yet(here: World) -> None:
    """The revocation list of that key would be its own."""
    await here.put(WEB)

    found = await refusal(here, WEB.with_meta(name="web-7", uid="seven"))
    assert "keys of the authority web have such names" in found
    assert await refusal(here, WEB.with_meta(name="web-7-1", uid="seven")) == ""


async def test_only_creation_is_refused(here: World) -> None:
    """An authority is changed and deleted whatever is there; so is a bundle."""
    await here.put(key("web-1", None))
    await here.put(WEB)

    assert await refusal(here, WEB, WEB) == await refusal(here, None, WEB) == ""
    assert await refusal(here, bundle(None, "x.io/y"), bundle(WEB)) == ""
    assert await refusal(here, None, bundle(WEB)) == ""


@pytest.mark.parametrize(
    ("new", "is_refused"),
    [
        (bundle(WEB), False),
        (bundle(EARLIER), True),
        (bundle(None), True),
        (bundle(WEB, "example.com/other"), True),
        (bundle(WEB, SIGNER, "example.com/other"), True),
        (bundle(None, "orch.io/a", "orch.io/b", name="cluster"), False),
        (bundle(None, "orch.io/a", SIGNER, name="cluster"), True),
        (bundle(None, "example.com/other", name="other"), False),
    ],
    ids=["own", "of another", "of nobody", "other signer", "more signers", "platform",
         "not the platform", "other name"],
)  # fmt: skip
async def test_the_bundle_of_an_authority_is_its_own(
    here: World, new: PublishedBundle, *, is_refused: bool
) -> None:
    """By owner and sources; the bundles of the platform have no owner."""
    await here.put(WEB)
    await here.put(PLATFORM)

    assert ("an authority has this name" in await refusal(here, new)) == is_refused


@pytest.mark.parametrize(
    ("authority", "found", "is_problem"),
    [
        (WEB, None, False),
        (WEB, bundle(WEB), False),
        (WEB, bundle(EARLIER), True),
        (WEB, bundle(None), True),
        (PLATFORM, bundle(None, name="cluster"), False),
    ],
    ids=["none", "own", "of another", "of nobody", "platform"],
)
def test_a_bundle_of_another_is_a_condition(
    authority: CertificateAuthority, found: PublishedBundle | None, *, is_problem: bool
) -> None:
    """It says which bundle that is."""
    text = bundle_problem(authority, found)

    assert bool(text) == is_problem
    assert not text or "The PublishedBundle web belongs to somebody else" in text


def test_a_problem_that_ended_is_reported_as_resolved() -> None:
    """One that never was is not reported at all."""
    taken = Condition(
        type=BUNDLE_TAKEN, status=TRUE, reason=BUNDLE_TAKEN, last_transition_time=NOW - timedelta(1)
    )
    reported = replace(WEB, status=CertificateAuthorityStatus(conditions=(taken,)))

    assert of_relations(WEB, {BUNDLE_TAKEN: ""}) == []
    (now,) = of_relations(WEB, {BUNDLE_TAKEN: "text"})
    assert (now.type, now.status, now.message) == (BUNDLE_TAKEN, TRUE, "text")
    (ended,) = of_relations(reported, {BUNDLE_TAKEN: ""})
    assert (ended.status, ended.reason) == (FALSE, "Resolved")
