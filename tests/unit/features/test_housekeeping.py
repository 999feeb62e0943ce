"""Namespaces that finish, dependents that follow, roles that gather, bundles and Events."""

from datetime import timedelta

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.event import Event
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.objects.kinds.secret import Secret
from orchid.features.rights.kinds.role import ClusterRole
from orchid.features.trust_bundles.controllers.publish_trust_bundles import bundle_name
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.kernel.client.client import ListSelection
from orchid.kernel.runtime.expiring import Cleaner
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside

COLLECTOR = "garbagecollector"


async def config(
    world: Beside, name: str, *owners: ConfigMap, blocks: bool = True, **meta: object
) -> ConfigMap:
    references = tuple(
        OwnerReference(
            api_version="v1",
            kind="ConfigMap",
            name=owner.name,
            uid=owner.metadata.uid,
            block_owner_deletion=blocks,
        )
        for owner in owners
    )
    made = ObjectMeta(name=name, namespace="default", owner_references=references)
    return await world.admin.create(ConfigMap(metadata=replace(made, **meta)))


# --- namespaces -------------------------------------------------------------------------------


async def test_deleted_namespace_is_emptied_and_goes(world: Beside) -> None:
    """Everything in it goes first, of whatever kind."""
    await world.namespace("team")
    await world.account("app", "team")
    meta = ObjectMeta(name="s", namespace="team")
    await world.admin.create(Secret(metadata=meta))
    async with world.running("namespace"):
        await world.admin.delete(Namespace, "team")
        await world.until_gone(Namespace, "team")

    assert await world.admin.find(ServiceAccount, "app", "team") is None
    assert await world.admin.find(Secret, "s", "team") is None


async def test_namespace_waits_for_what_has_a_finalizer_and_says_so(world: Beside) -> None:
    """Somebody else's finalizer is theirs to remove; then the namespace goes."""
    await world.namespace("team")
    meta = ObjectMeta(name="held", namespace="team", finalizers=("example.com/hold",))
    await world.admin.create(ConfigMap(metadata=meta))
    async with world.running("namespace"):
        await world.admin.delete(Namespace, "team")
        waiting = await world.until_like(
            Namespace, "team", condition=lambda found: bool(found.status.conditions)
        )
        held = await world.admin.get(ConfigMap, "held", "team")
        await world.admin.update(held.with_meta(finalizers=()))
        await world.until_gone(Namespace, "team")

    assert waiting.status.phase == "Terminating"
    assert waiting.status.conditions[0].message == "Some resources are remaining: configmaps"


# --- dependents -------------------------------------------------------------------------------


async def test_dependents_of_a_deleted_owner_go_all_the_way_down(world: Beside) -> None:
    """In the background: the owner goes at once, then its dependents, then theirs."""
    owner = await config(world, "owner")
    child = await config(world, "child", owner)
    await config(world, "grandchild", child)
    await config(world, "stranger")
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default")
        await world.until_gone(ConfigMap, "grandchild", "default")

    assert await world.admin.find(ConfigMap, "child", "default") is None
    assert await world.admin.find(ConfigMap, "stranger", "default")


async def test_dependent_of_an_owner_deleted_before_the_start_goes(world: Beside) -> None:
    """Objects left behind while no controller ran are found."""
    owner = await config(world, "owner")
    await config(world, "child", owner)
    await world.admin.delete(ConfigMap, "owner", "default")

    async with world.running(COLLECTOR):
        await world.until_gone(ConfigMap, "child", "default")


async def test_dependent_with_another_owner_stays_without_the_reference(world: Beside) -> None:
    """One owner that is there is enough."""
    first, second = await config(world, "first"), await config(world, "second")
    await config(world, "child", first, second)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "first", "default")
        left = await world.until_like(
            ConfigMap,
            "child",
            "default",
            condition=lambda found: len(found.metadata.owner_references) == 1,
        )

    assert left.metadata.owner_references[0].name == "second"


async def test_owner_deleted_in_the_foreground_goes_last(world: Beside) -> None:
    """It waits for its dependents, and a dependent that is held holds it too."""
    owner = await config(world, "owner")
    await config(world, "child", owner, finalizers=("example.com/hold",))
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default", propagation="Foreground")
        held = await world.until_like(
            ConfigMap,
            "child",
            "default",
            condition=lambda found: found.metadata.deletion_timestamp is not None,
        )
        waiting = await world.admin.get(ConfigMap, "owner", "default")
        await world.admin.update(held.with_meta(finalizers=()))
        await world.until_gone(ConfigMap, "owner", "default")

    assert waiting.metadata.finalizers == ("foregroundDeletion",)


async def circle(world: Beside) -> list[ConfigMap]:
    """Three objects, each of which the next one owns, and the first the last."""
    first = await config(world, "first")
    second = await config(world, "second", first)
    third = await config(world, "third", second)
    owner = OwnerReference(
        api_version="v1",
        kind="ConfigMap",
        name="third",
        uid=third.metadata.uid,
        block_owner_deletion=True,
    )
    await world.admin.update(first.with_meta(owner_references=(owner,)))
    return [first, second, third]


async def test_owners_in_a_circle_go_when_one_is_deleted_in_the_foreground(world: Beside) -> None:
    """They would wait for each other for ever; so one of them goes first."""
    objects = await circle(world)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "first", "default", propagation="Foreground")
        for one in objects:
            await world.until_gone(ConfigMap, one.name, "default")


async def test_owners_in_a_circle_go_when_all_were_deleted_in_the_foreground(
    world: Beside,
) -> None:
    """Even if all of them waited before anyone looked."""
    objects = await circle(world)
    for one in objects:
        await world.admin.delete(ConfigMap, one.name, "default", propagation="Foreground")
    async with world.running(COLLECTOR):
        for one in objects:
            await world.until_gone(ConfigMap, one.name, "default")


async def test_a_circle_waits_for_what_hangs_on_it(world: Beside) -> None:
    """A dependent outside the circle still holds up its own owner."""
    first, *_ = await circle(world)
    await config(world, "held", first, finalizers=("example.com/hold",))
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "first", "default", propagation="Foreground")
        await world.until_gone(ConfigMap, "third", "default")
        waiting = await world.admin.get(ConfigMap, "first", "default")
        held = await world.admin.get(ConfigMap, "held", "default")
        await world.admin.update(held.with_meta(finalizers=()))
        await world.until_gone(ConfigMap, "first", "default")

    assert waiting.metadata.finalizers == ("foregroundDeletion",)


async def test_owner_that_waits_lets_go_of_a_dependent_with_another_owner(world: Beside) -> None:
    """Such a dependent stays, without the reference, and the owner waits no longer."""
    first, second = await config(world, "first"), await config(world, "second")
    await config(world, "child", first, second)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "first", "default", propagation="Foreground")
        await world.until_gone(ConfigMap, "first", "default")

    child = await world.admin.get(ConfigMap, "child", "default")
    assert [owner.name for owner in child.metadata.owner_references] == ["second"]


async def test_orphaned_dependents_stay_and_forget_their_owner(world: Beside) -> None:
    """The owner goes once nobody refers to it."""
    owner = await config(world, "owner")
    await config(world, "child", owner)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default", propagation="Orphan")
        await world.until_gone(ConfigMap, "owner", "default")

    child = await world.admin.get(ConfigMap, "child", "default")
    assert child.metadata.owner_references == ()


async def test_owner_of_an_unknown_kind_protects_its_dependent(world: Beside) -> None:
    """It is unknown whether such an owner exists, so nothing is deleted."""
    reference = OwnerReference(api_version="example.com/v1", kind="Thing", name="x", uid="u")
    meta = ObjectMeta(name="kept", namespace="default", owner_references=(reference,))
    await world.admin.create(ConfigMap(metadata=meta))
    owner = await config(world, "owner")
    await config(world, "child", owner)
    async with world.running(COLLECTOR):
        await world.admin.delete(ConfigMap, "owner", "default")
        await world.until_gone(ConfigMap, "child", "default")

    assert await world.admin.find(ConfigMap, "kept", "default")


# --- roles ------------------------------------------------------------------------------------


async def test_aggregated_role_shows_the_rules_of_the_roles_it_selects(world: Beside) -> None:
    """New ones are added, and taken away with the role that brought them."""
    rule = PolicyRule(verbs=("get",), api_groups=("example.com",), resources=("things",))
    label = {f"{ORCH.rbac}/aggregate-to-view": "true"}
    async with world.running("clusterrole-aggregation"):
        await world.until_like(ClusterRole, "view", condition=lambda role: bool(role.rules))
        await world.admin.create(
            ClusterRole(metadata=ObjectMeta(name="things", labels=label), rules=(rule,))
        )
        await world.until_like(
            ClusterRole, "admin", condition=lambda role: rule in (role.rules or ())
        )
        await world.admin.delete(ClusterRole, "things")
        await world.until_like(
            ClusterRole, "view", condition=lambda role: rule not in (role.rules or ())
        )


# --- trust bundles ----------------------------------------------------------------------------


async def test_serving_authority_and_every_signers_are_published(world: Beside) -> None:
    """One bundle each, under the signer's name."""
    authority = world.server.files.ca_certificate.read_text()
    signers = (*ORCH.issuing_signers, ORCH.server_serving_signer)
    async with world.running("trust-bundle-publisher", "certificate-authority"):
        for signer in signers:
            bundle = await world.until_like(ClusterTrustBundle, bundle_name(signer, authority))
            assert bundle.spec.signer_name == signer
            assert bundle.spec.trust_bundle == authority

    assert len(signers) == 6


async def test_published_bundle_comes_back_and_strangers_under_its_signer_go(
    world: Beside,
) -> None:
    """For the serving signer there is exactly one truth."""
    authority = world.server.files.ca_certificate.read_text()
    signer = ORCH.server_serving_signer
    name = bundle_name(signer, authority)
    forged = ClusterTrustBundle(
        metadata=ObjectMeta(name=signer.replace("/", ":") + ":forged"),
        spec=ClusterTrustBundleSpec(signer_name=signer, trust_bundle=authority),
    )
    await world.admin.create(forged)
    async with world.running("trust-bundle-publisher"):
        await world.until_gone(ClusterTrustBundle, forged.name)
        first = await world.until_like(ClusterTrustBundle, name)
        await world.admin.delete(ClusterTrustBundle, name)
        second = await world.until_like(ClusterTrustBundle, name)

    assert first.metadata.uid != second.metadata.uid


# --- events -----------------------------------------------------------------------------------


async def test_the_same_thing_said_twice_is_one_event_with_a_higher_count(world: Beside) -> None:
    """`describe` shows how often, not a long list."""
    about = await world.account("app")
    async with world.running():
        for _ in range(3):
            world.events.record("tester", about, "Tried", "It did not work.", type_="Warning")

        async def counted() -> Event | None:
            page = await world.admin.page(ListSelection(Event, "default"))
            return next((one for one in page.items if one.count == 3), None)

        event = await world.until(counted)

    assert event.involved_object.uid == about.metadata.uid
    assert len((await world.admin.page(ListSelection(Event, "default"))).items) == 1


async def test_more_events_than_the_budget_are_left_out(world: Beside) -> None:
    """A busy controller does not fill the store with courtesies, and never waits."""
    about = await world.account("app")

    for number in range(5000):
        world.events.record("tester", about, "Did", f"Number {number}.")

    assert world.events.waiting <= 200


async def test_old_events_are_removed(world: Beside) -> None:
    """After an hour nobody asks any more."""
    about = await world.account("app")
    async with world.running():
        world.events.record("tester", about, "Did", "Something.")

        async def any_event() -> Event | None:
            page = await world.admin.page(ListSelection(Event, "default"))
            return page.items[0] if page.items else None

        event = await world.until(any_event)
    (controller,) = world.made("event-cleaner")
    assert isinstance(controller, Cleaner)
    await controller.sweep()
    assert await world.admin.find(Event, event.name, "default")

    world.clock.ahead = timedelta(hours=1, minutes=1)
    await controller.sweep()

    assert await world.admin.find(Event, event.name, "default") is None


@pytest.mark.parametrize("name", ["Upper", "with:colon"])
async def test_event_about_an_oddly_named_object_is_named_by_its_uid(
    world: Beside, name: str
) -> None:
    """Not every name of an object is fit to begin the name of an Event."""
    role = await world.admin.create(ClusterRole(metadata=ObjectMeta(name=name)))
    async with world.running():
        world.events.record("tester", role, "Did", "Something.")

        async def any_event() -> Event | None:
            page = await world.admin.page(ListSelection(Event, "default"))
            return page.items[0] if page.items else None

        event = await world.until(any_event)

    assert event.name.startswith(role.metadata.uid)
