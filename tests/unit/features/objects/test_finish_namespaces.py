"""The end of a namespace: what is deleted in it, what holds it, and one that was created again."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.objects.controllers.finish_namespaces import REMAINING, FinishNamespaces
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.namespace import Namespace, NamespaceSpec
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.errors import ErrorSubject, NotFound
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

OURS = ORCH.namespace_finalizer


class Kind:
    """A kind as the catalog of a client has it."""

    def __init__(
        self, type_: type[Object], plural: str, *verbs: str, namespaced: bool = True
    ) -> None:
        self.type, self.plural, self.group, self.namespaced = type_, plural, "", namespaced
        self.verbs = verbs or ("list", "deletecollection")


class Emptying(SmallClient):
    """Empties collections, but for the objects that have a finalizer."""

    def __init__(self, *stored: Object) -> None:
        super().__init__(*stored)
        self.emptied: list[tuple[type[Object], str]] = []

    async def delete_collection(self, type_: type[Object], namespace: str) -> None:
        self.emptied.append((type_, namespace))
        for where, one in list(self.stored.items()):
            if where[:2] == (type_, namespace) and not one.metadata.finalizers:
                del self.stored[where]


def finisher(*stored: Object, kinds: tuple[Kind, ...] = ()) -> tuple[FinishNamespaces, Emptying]:
    client: Any = Emptying(*stored)
    made = kinds or (Kind(ConfigMap, "configmaps"), Kind(Secret, "secrets"))
    client.catalog = SimpleNamespace(stored=made)
    return FinishNamespaces(client, FakeClock(NOW), ORCH), client


def ending(uid: str = "u1", *finalizers: str, **meta: Any) -> Namespace:
    made = ObjectMeta(
        name="team", uid=uid, resource_version="7", **{"deletion_timestamp": NOW, **meta}
    )
    return Namespace(metadata=made, spec=NamespaceSpec(finalizers=finalizers or (OURS,)))


def config(place: str = "team", *finalizers: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="c", namespace=place, finalizers=finalizers))


async def test_everything_in_it_is_deleted_and_nothing_elsewhere() -> None:
    elsewhere = config("other")
    controller, client = finisher(ending(), config(), elsewhere)

    await controller.reconcile(ending())

    assert client.emptied == [(ConfigMap, "team"), (Secret, "team")]
    assert await client.find(ConfigMap, "c", "other") == elsewhere
    assert client.written("finalize") == [replace(ending(), spec=NamespaceSpec(finalizers=()))]


@pytest.mark.parametrize(
    "found",
    [ending(deletion_timestamp=None), ending("u1", "example.com/hold")],
)
async def test_a_namespace_that_is_not_ours_to_empty_stays_as_it_is(found: Namespace) -> None:
    """One that is not being deleted, or that is done."""
    controller, client = finisher(found, config())

    await controller.reconcile(found)

    assert (client.emptied, client.writes) == ([], [])


async def test_the_finalizers_of_others_stay() -> None:
    found = ending("u1", "example.com/hold", OURS, "example.com/more")
    controller, client = finisher(found)

    await controller.reconcile(found)

    (empty,) = client.written("finalize")
    assert empty.spec.finalizers == ("example.com/hold", "example.com/more")


@pytest.mark.parametrize("now", [(), (ending("u2", deletion_timestamp=None),), (ending("u2"),)])
async def test_a_namespace_that_was_created_again_keeps_its_objects(now: Any) -> None:
    """Another server may have finished the earlier one, whose event is still in work here."""
    controller, client = finisher(*now, config())

    await controller.reconcile(ending("u1"))

    assert (client.emptied, client.writes) == ([], [])


async def test_a_namespace_that_is_created_again_meanwhile_keeps_what_is_left() -> None:
    controller, client = finisher(ending("u1"), config())
    empty = client.delete_collection

    async def replaced(type_: type[Object], namespace: str) -> None:
        await empty(type_, namespace)
        client.stored[Namespace, "", "team"] = ending("u2", deletion_timestamp=None)

    client.delete_collection = replaced

    await controller.reconcile(ending("u1"))

    assert client.emptied == [(ConfigMap, "team")]
    assert client.writes == []


@pytest.mark.parametrize(
    "kind",
    [
        Kind(ConfigMap, "configmaps", "list"),
        Kind(ConfigMap, "configmaps", "deletecollection"),
        Kind(ConfigMap, "configmaps", namespaced=False),
    ],
)
async def test_kinds_that_cannot_be_emptied_are_left_out(kind: Kind) -> None:
    controller, client = finisher(ending(), config("team", "x"), kinds=(kind,))

    await controller.reconcile(ending())

    assert client.emptied == []
    assert client.written("finalize")


async def test_an_object_with_a_finalizer_holds_the_namespace() -> None:
    controller, client = finisher(ending(), config("team", "example.com/hold"))

    with pytest.raises(TryAgain, match=r"still there: configmaps$"):
        await controller.reconcile(ending())

    (reported,) = client.written("status")
    (said,) = reported.status.conditions
    assert (said.type, said.status, said.last_transition_time) == (REMAINING, "True", NOW)
    assert said.message == "Some resources are remaining: configmaps"
    assert client.written("finalize") == []


async def test_the_report_is_written_when_it_changes() -> None:
    """Its time is that of the first one, and the conditions of others stay."""
    controller, client = finisher(ending(), config("team", "example.com/hold"))
    with pytest.raises(TryAgain):
        await controller.reconcile(ending())
    (first,) = client.written("status")
    foreign = replace(first.status.conditions[0], type="Foreign")
    first = replace(
        first, status=replace(first.status, conditions=(foreign, *first.status.conditions))
    )
    client.stored[Secret, "team", "s"] = Secret(
        metadata=ObjectMeta(name="s", namespace="team", finalizers=("x",))
    )
    controller._clock.advance(60)

    with pytest.raises(TryAgain):
        await controller.reconcile(first)
    second = client.written("status")[1]
    with pytest.raises(TryAgain):
        await controller.reconcile(second)

    assert len(client.written("status")) == 2
    assert second.status.conditions[0] == foreign
    assert second.status.conditions[1].message.endswith("configmaps, secrets")
    assert second.status.conditions[1].last_transition_time == NOW


async def test_a_namespace_that_another_server_finished_is_no_failure() -> None:
    controller, client = finisher(ending())
    client.refuses["finalize"] = NotFound(ErrorSubject("", "namespaces", "team"))

    await controller.reconcile(ending())

    assert client.writes == []
