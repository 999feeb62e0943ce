"""Published bundles: an edition for each change, and none that would break its clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.event import Event
from orchid.features.trust_bundles import stored_edition
from orchid.features.trust_bundles.controllers import publish_bundles
from orchid.features.trust_bundles.controllers.publish_bundles import (
    PublishBundles,
    bundle_of_signers,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.features.trust_bundles.kinds.published_bundle import BundleSource, PublishedBundle
from orchid.features.trust_bundles.stored_edition import ConsumerList, SeenConsumer
from orchid.kernel.client.client import ListSelection
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509.trust import anchor_set
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import AlreadyExists, Forbidden
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.authorities.test_keep_authorities import KEEPER, create
from tests.unit.features.beside import Beside

PUBLISHER = "bundle-publisher"
HOME = ORCH.system_namespace
DAY = timedelta(days=1)


def root(world: Beside, name: str = "Root", lifetime: timedelta = 30 * DAY) -> str:
    made = Authority.create(name, now=world.clock.now(), lifetime=lifetime)
    return made.certificate_pem.decode()


async def trust(world: Beside, name: str, text: str, **labels: str) -> ClusterTrustBundle:
    """Write a ClusterTrustBundle without a signer, in the place of what is there."""
    there = await world.admin.find(ClusterTrustBundle, name)
    spec = ClusterTrustBundleSpec(trust_bundle=text)
    if there is None:
        meta = ObjectMeta(name=name, labels=labels)
        return await world.admin.create(ClusterTrustBundle(metadata=meta, spec=spec))
    await world.admin.update(replace(there, spec=spec))
    return there


async def publish(world: Beside, *sources: dict[str, Any], name: str = "pay") -> PublishedBundle:
    plain = {"metadata": {"name": name}, "spec": {"sources": sources}}
    return await world.admin.create(convert(plain, PublishedBundle))


async def edition(world: Beside, count: int, name: str = "pay") -> PublishedBundle:
    """Wait until the current edition has so many certificates."""

    def has(found: PublishedBundle) -> bool:
        return found.is_ready and found.status.certificates == count

    return await world.until_like(PublishedBundle, name, condition=has)


async def not_ready(world: Beside, reason: str, name: str = "pay") -> PublishedBundle:
    def says(found: PublishedBundle) -> bool:
        return any(one.reason == reason for one in found.status.conditions)

    return await world.until_like(PublishedBundle, name, condition=says)


async def stored(world: Beside, bundle: PublishedBundle, sequence: int = 0) -> str:
    name = stored_edition.edition_name(bundle.name, sequence or bundle.status.sequence)
    return (await world.admin.get(ConfigMap, name, HOME)).data[stored_edition.PEM]


async def owned_maps(world: Beside) -> set[str]:
    wanted = ListSelection(ConfigMap, HOME, labels=stored_edition.label(ORCH))
    return {one.name async for one in world.admin.scan(wanted)}


@asynccontextmanager
async def publisher(world: Beside) -> AsyncIterator[PublishBundles]:
    """A controller that follows, but works only when a test says so."""
    (controller,) = world.made(PUBLISHER)
    assert isinstance(controller, PublishBundles)
    followers: list[asyncio.Task[None]] = []
    await controller.follow(lambda each: followers.append(asyncio.create_task(each)))
    async with asyncio.timeout(10):
        await controller.all_indexed.wait()
    try:
        yield controller
    finally:
        for each in followers:
            each.cancel()
        await asyncio.wait(followers)


async def computed(world: Beside, name: str = "pay") -> PublishedBundle:
    """Have a controller that has just started compute a bundle once."""
    async with publisher(world) as controller:
        await controller.reconcile(await world.admin.get(PublishedBundle, name))
    return await world.admin.get(PublishedBundle, name)


async def test_a_change_of_any_source_is_a_new_edition(world: Beside) -> None:
    """With a greater sequence; the earlier one stays, and certificates appear once."""
    one, two = root(world, "one"), root(world, "two")
    await trust(world, "named", one)
    async with world.running(PUBLISHER):
        await publish(world, {"name": "named"}, {"labelSelector": {"matchLabels": {"a": "b"}}})
        first = await edition(world, 1)
        await trust(world, "labelled", one + two, a="b")
        second = await edition(world, 2)
        await world.admin.delete(ClusterTrustBundle, "labelled")
        third = await edition(world, 1)

    assert first.status.sequence < second.status.sequence < third.status.sequence
    assert await stored(world, first) == await stored(world, third) == one
    assert set(await stored(world, second)) <= set(one + two)
    assert [each.sequence for each in third.status.editions] == [
        third.status.sequence, second.status.sequence, first.status.sequence,
    ]  # fmt: skip


async def test_the_server_publishes_its_own_authorities(world: Beside) -> None:
    """`cluster` for the platform signers, one for each CertificateAuthority; created again."""
    async with world.running(PUBLISHER, KEEPER, "trust-bundle-publisher", "garbagecollector"):
        platform = await edition(world, 1, "cluster")
        authority = await create(world, "web")
        web = await edition(world, 1, "web")
        await world.admin.delete(PublishedBundle, "web")
        again = await world.until_like(
            PublishedBundle, "web", condition=lambda one: one.metadata.uid != web.metadata.uid
        )
        await edition(world, 1, "web")
        await world.admin.delete(CertificateAuthority, "web")
        await world.until_gone(PublishedBundle, "web")
        for name in await owned_maps(world):
            if ".web." in name:
                await world.until_gone(ConfigMap, name, HOME)

    ca = world.server.files.ca_certificate.read_text()
    assert await stored(world, platform) == ca
    assert again.metadata.owner_references[0].uid == authority.metadata.uid
    assert web.spec.sources[0].signer_name == authority.spec.signer_name


async def test_an_empty_bundle_is_never_published(world: Beside) -> None:
    """The last edition remains, and Ready says why."""
    await trust(world, "roots", root(world))
    async with world.running(PUBLISHER):
        await publish(world, {"name": "roots"})
        before = await edition(world, 1)
        await world.admin.delete(ClusterTrustBundle, "roots")
        after = await not_ready(world, "Empty")

    assert after.status.sequence == before.status.sequence
    assert await stored(world, after)
    assert f"edition {before.status.sequence} remains" in after.status.conditions[0].message


@pytest.mark.parametrize(("limit", "value"), [("MOST_CERTIFICATES", 1), ("LARGEST", 1000)])
async def test_a_bundle_beyond_a_limit_is_not_published(
    world: Beside, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """The last edition remains."""
    monkeypatch.setattr(publish_bundles, limit, value)
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    first = await computed(world)
    await trust(world, "roots", root(world, "a") + root(world, "b"))
    second = await computed(world)

    assert first.is_ready
    assert not second.is_ready
    assert second.status.conditions[0].reason == "TooLarge"
    assert second.status.sequence == first.status.sequence


async def test_expired_certificates_leave_the_bundle_by_themselves(world: Beside) -> None:
    """The controller computes the bundle again when the next certificate expires."""
    await trust(world, "roots", root(world, "short", 2 * DAY) + root(world, "long"))
    await publish(world, {"name": "roots"})
    async with publisher(world) as controller:
        found = await world.admin.get(PublishedBundle, "pay")
        world.clock.ahead = 2 * DAY - timedelta(minutes=10)
        pause = await controller.reconcile(found)
        world.clock.ahead = 2 * DAY
        await controller.reconcile(await world.admin.get(PublishedBundle, "pay"))
    after = await world.admin.get(PublishedBundle, "pay")

    assert pause is not None
    assert 0 < pause <= 600
    assert after.status.certificates == 1
    assert [one.certificates for one in after.status.editions] == [1, 2]


async def test_nothing_changes_when_the_controller_starts_again(world: Beside) -> None:
    """Content that is published keeps its sequence."""
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    first = await computed(world)
    world.clock.ahead = DAY
    second = await computed(world)

    assert first.status.sequence > 0
    assert second.metadata.resource_version == first.metadata.resource_version


async def test_the_sequence_grows_although_the_clock_was_ahead(world: Beside) -> None:
    """A client that has seen a later one would ignore the bundle."""
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    world.clock.ahead = DAY
    first = await computed(world)
    world.clock.ahead = timedelta()
    await trust(world, "roots", root(world))
    second = await computed(world)

    assert second.status.sequence == first.status.sequence + 1


async def test_an_edition_that_is_gone_gets_a_new_sequence(world: Beside) -> None:
    """As after a restore, which drops the editions: clients may have seen later ones."""
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    first = await computed(world)
    name = stored_edition.edition_name("pay", first.status.sequence)
    await world.admin.delete(ConfigMap, name, HOME)
    second = await computed(world)

    assert second.status.sequence > first.status.sequence
    assert second.status.sha256 == first.status.sha256
    assert [one.sequence for one in second.status.editions] == [second.status.sequence]
    assert stored_edition.is_edition(name)
    assert not stored_edition.is_edition("trust.notes")


async def test_eight_editions_remain_and_what_a_crash_left_is_removed(world: Beside) -> None:
    """An edition that was stored before its status is deleted with the next one."""
    made = await publish(world, {"name": "roots"})
    kind = world.server.catalog.of(PublishedBundle)
    left = stored_edition.owned_map(made, kind.api_version, ORCH, "trust.pay.1000000000")
    await world.admin.create(left)
    async with publisher(world) as controller:
        for number in range(10):
            await trust(world, "roots", root(world, str(number)))
            await world.until(lambda: indexed(world, controller, "roots"))
            await controller.reconcile(await world.admin.get(PublishedBundle, "pay"))
    found = await world.admin.get(PublishedBundle, "pay")

    numbers = [one.sequence for one in found.status.editions]
    assert len(numbers) == 8
    assert numbers == sorted(numbers, reverse=True)
    assert await owned_maps(world) == {stored_edition.edition_name("pay", n) for n in numbers}


async def indexed(
    world: Beside, controller: PublishBundles, name: str
) -> ClusterTrustBundle | None:
    """The trust bundle, once the controller has its current text."""
    found = await world.admin.get(ClusterTrustBundle, name)
    known = controller.index.named(name)
    texts = anchor_set.join(known.anchors if known else (), world.clock.now()).pem
    return found if texts.decode() == found.spec.trust_bundle else None


async def test_editions_are_in_the_ledger_and_in_events(world: Beside) -> None:
    """bundle.changed is recorded by the kind; the Event says what was published."""
    await trust(world, "roots", root(world))
    async with world.running(PUBLISHER):
        await publish(world, {"name": "roots"}, {"name": "missing"})
        await edition(world, 1)

        async def look() -> Event | None:
            wanted = ListSelection(Event, "default", fields="involvedObject.name=pay")
            return next(iter((await world.admin.page(wanted)).items), None)

        event = await world.until(look)

    assert (event.reason, event.type) == ("Published", "Normal")
    assert event.message == "1 certificate; no trust bundle for sources[1]"


async def test_an_edition_cannot_be_changed(world: Beside) -> None:
    """Its ConfigMap is immutable."""
    await trust(world, "roots", root(world))
    await publish(world, {"name": "roots"})
    found = await computed(world)
    name = stored_edition.edition_name("pay", found.status.sequence)
    there = await world.admin.get(ConfigMap, name, HOME)

    with pytest.raises(Exception, match="immutable"):
        await world.admin.update(replace(there, data={stored_edition.PEM: "other"}))


async def test_the_controller_has_no_more_rights_than_it_needs(world: Beside) -> None:
    """It changes no bundle's spec, no trust bundle, and no ConfigMap elsewhere."""
    client = world.server.clients(PUBLISHER)
    made = await publish(world, {"name": "roots"})

    with pytest.raises(Forbidden):
        await client.update(made)
    with pytest.raises(Forbidden):
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
    with pytest.raises(Forbidden):
        await client.delete(ClusterTrustBundle, "roots")


def test_a_list_of_consumers_is_bounded_and_forgets(world: Beside) -> None:
    """1,000 names, none of which is pushed out by another; 30 days."""
    now = world.clock.now()
    seen = int(now.timestamp())
    old = {"gone": SeenConsumer(5, seen - 31 * 86400), "late": SeenConsumer(5, seen - 86400)}
    new = {f"c{number}": SeenConsumer(7, seen) for number in range(1200)}
    merged = ConsumerList(old, {3: 1, 5: 2}).merged(ConsumerList(new, {7: 4}), now, {5, 7})

    summary = merged.summary(7, now)

    assert len(merged.named) == 1000
    assert "late" in merged.named
    assert "gone" not in merged.named
    assert merged.others == {5: 2, 7: 4 + 201}
    assert (summary.current, summary.behind, summary.others) == (999, 1, 205)
    assert [one.name for one in summary.longest] == ["late"]


@pytest.mark.parametrize("same", [True, False])
async def test_a_bundle_created_meanwhile_counts_with_the_same_owner_and_sources(
    world: Beside, *, same: bool
) -> None:
    """That of the previous leader does; one of somebody else is never taken for it."""
    source = BundleSource(signer_name="example.com/web")
    owner = OwnerReference(
        api_version="v1", kind="CertificateAuthority", name="pay", uid="u", controller=True
    )
    own = bundle_of_signers("pay", [source.signer_name], owner)
    there = own if same else own.with_meta(owner_references=())
    there = await world.admin.create(there)
    others = bundle_of_signers("pay", ["example.com/other"], owner)

    async with publisher(world) as controller:
        if same:
            assert (await controller._create(own)).metadata.uid == there.metadata.uid
        else:
            with pytest.raises(TryAgain, match="there is another PublishedBundle pay"):
                await controller._create(own)
        with pytest.raises(TryAgain, match="there is another PublishedBundle pay"):
            await controller._create(others)


class Maps:
    """A client of ConfigMaps: one is there already."""

    def __init__(self, world: Beside, there: ConfigMap | None) -> None:
        self.catalog = world.server.catalog
        self.there = there

    async def create(self, new: ConfigMap) -> ConfigMap:
        raise AlreadyExists(self.catalog.of(ConfigMap).about(new.name))

    async def find(self, _type: object, _name: str, _namespace: str) -> ConfigMap | None:
        return self.there


BUNDLE = PublishedBundle(metadata=ObjectMeta(name="pay", uid="b1"))


def edition_map(text: str, owner: PublishedBundle = BUNDLE) -> ConfigMap:
    name = stored_edition.edition_name("pay", 7)
    data = {stored_edition.PEM: text}
    return stored_edition.owned_map(owner, "v1", ORCH, name, data=data)


def with_maps(world: Beside, there: ConfigMap | None) -> PublishBundles:
    client: Any = Maps(world, there)
    return PublishBundles(client, {}, ORCH, world.clock, world.events)


async def test_an_edition_that_is_there_counts_with_its_content_and_owner(world: Beside) -> None:
    """One that the previous leader stored in this second, and none of somebody else."""
    content = anchor_set.join(anchor_set.read(root(world)), world.clock.now())
    text = content.pem.decode()

    await with_maps(world, edition_map(text))._store(BUNDLE, content, 7)
    for there in (None, edition_map("other"), edition_map(text, BUNDLE.with_meta(uid="b0"))):
        with pytest.raises(TryAgain, match=r"there is another ConfigMap trust\.pay\.7"):
            await with_maps(world, there)._store(BUNDLE, content, 7)


async def test_an_edition_with_other_content_gets_a_new_sequence(world: Beside) -> None:
    """Somebody replaced what clients fetch: nobody would be served any more."""
    await trust(world, "roots", root(world))
    async with world.running(PUBLISHER):
        await publish(world, {"name": "roots"})
        first = await edition(world, 1)
        name = stored_edition.edition_name("pay", first.status.sequence)
        there = await world.admin.get(ConfigMap, name, HOME)
        await world.admin.delete(ConfigMap, name, HOME)
        planted = replace(there, data={stored_edition.PEM: "planted"})
        await world.admin.create(planted.with_meta(resource_version="", uid=""))
        again = await world.until_like(
            PublishedBundle,
            "pay",
            condition=lambda one: one.status.sequence > first.status.sequence,
        )

    assert again.status.sha256 == first.status.sha256
    assert "planted" not in await stored(world, again)


@pytest.mark.parametrize("own", [True, False])
async def test_the_consumers_of_an_earlier_bundle_are_not_shown(
    world: Beside, *, own: bool
) -> None:
    """They are deleted: the bundle of that name has clients of its own."""
    made = await publish(world, {"name": "roots"})
    seen = ConsumerList({"client": SeenConsumer(1, int(world.clock.now().timestamp()))})
    data = {stored_edition.CONSUMERS: stored_edition.write_consumers(seen)}
    name, owner = stored_edition.consumers_name("pay"), made if own else made.with_meta(uid="b0")
    await world.admin.create(stored_edition.owned_map(owner, "v1", ORCH, name, data=data))

    async with publisher(world) as controller:
        status = await controller._with_consumers(made, made.status, world.clock.now())

    assert (status.consumers is not None) is own
    assert (await world.admin.find(ConfigMap, name, HOME) is not None) is own
