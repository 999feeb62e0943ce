"""An object belongs to an owner by kind, name and uid, and never because a name fits."""

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.references import belongs_to, controller_of, is_owned_by, owner_reference
from orchid.kernel.wire.struct import replace

OWNER = CertificateAuthority(metadata=ObjectMeta(name="web", uid="one"))
REFERENCE = owner_reference(OWNER, "identity.orch.io/v1beta1")


def dependent(*owners: OwnerReference) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="dependent", owner_references=owners))


def test_a_dependent_belongs_to_the_owner_of_its_reference() -> None:
    """The reference names the owner completely, and has its uid."""
    assert REFERENCE.controller
    assert belongs_to(dependent(REFERENCE), OWNER)
    assert controller_of(dependent(REFERENCE).metadata) == REFERENCE


@pytest.mark.parametrize(
    "other",
    [
        {"uid": "two"},
        {"name": "other"},
        {"kind": "PublishedBundle"},
        {"controller": None},
        {"controller": False},
    ],
    ids=str,
)
def test_a_reference_that_differs_is_to_another_owner(other: dict[str, object]) -> None:
    """Each part counts: the uid of an earlier object of that name does not fit."""
    assert not belongs_to(dependent(replace(REFERENCE, **other)), OWNER)


def test_only_the_controlling_reference_counts() -> None:
    """So nobody makes an object the dependent of two owners of one kind."""
    plain, controlling = replace(REFERENCE, controller=False), replace(REFERENCE, uid="two")

    assert not belongs_to(dependent(plain, controlling), OWNER)
    assert belongs_to(dependent(replace(plain, uid="two"), REFERENCE), OWNER)


@pytest.mark.parametrize("controller", [True, False, None])
def test_every_owner_of_an_object_is_one_of_its_owners(controller: bool | None) -> None:
    """By kind, name and uid, as its controller."""
    own, other = replace(REFERENCE, controller=controller), replace(REFERENCE, uid="two")

    assert is_owned_by(dependent(other, own), OWNER)
    for part in ({"uid": "two"}, {"name": "other"}, {"kind": "PublishedBundle"}, {"uid": ""}):
        assert not is_owned_by(dependent(other, replace(own, **part)), OWNER)
    assert not is_owned_by(dependent(), OWNER)


def test_an_owner_of_another_kind_is_another_owner() -> None:
    """Even with the same uid."""
    assert not belongs_to(dependent(REFERENCE), PublishedBundle(metadata=OWNER.metadata))


def test_objects_without_owner_or_uid_belong_to_nobody() -> None:
    """An object that was not stored has no uid, and owns nothing."""
    unsaved = replace(OWNER, metadata=ObjectMeta(name="web"))

    assert not belongs_to(dependent(), OWNER)
    assert not belongs_to(dependent(owner_reference(unsaved, "v1")), unsaved)
    assert not is_owned_by(dependent(owner_reference(unsaved, "v1")), unsaved)
