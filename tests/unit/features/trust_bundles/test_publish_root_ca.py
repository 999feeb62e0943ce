"""The CA of the server in every namespace: what is created, corrected, and left alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.namespace import ACTIVE, Namespace, NamespaceStatus
from orchid.features.trust_bundles.controllers.publish_root_ca import (
    PublishRootCA,
    build,
    namespace_of,
)
from orchid.kernel.client.client import LISTED
from orchid.kernel.wire.errors import AlreadyExists, ErrorSubject, Forbidden, NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials.samples import NOW

NAME, MARK = ORCH.root_ca_config_map, ORCH.description_annotation
ABOUT = ErrorSubject("", "configmaps", NAME)
TERMINATING = StatusCause(reason="NamespaceTerminating")


def publisher(*stored: ConfigMap, ca: str = "the CA") -> tuple[PublishRootCA, SmallClient]:
    client = SmallClient(*stored)
    parts: Any = client, lambda: ca, ORCH, FakeClock()
    return PublishRootCA(*parts), client


def namespace(name: str = "team") -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name), status=NamespaceStatus(phase=ACTIVE))


def config(place: str = "team", ca: str = "the CA", **marks: str) -> ConfigMap:
    meta = ObjectMeta(name=NAME, namespace=place, annotations={MARK: "ours", **marks})
    return ConfigMap(metadata=meta, data={"ca.crt": ca})


async def test_each_namespace_gets_a_map_of_its_own() -> None:
    controller, client = publisher(config("other"))

    await controller.reconcile(namespace())

    (made,) = client.written("create")
    assert (made.namespace, made.name, made.data) == ("team", NAME, {"ca.crt": "the CA"})
    assert made.metadata.annotations == {MARK: ORCH.root_ca_description}


@pytest.mark.parametrize(
    "found",
    [
        Namespace(metadata=ObjectMeta(name="team"), status=NamespaceStatus(phase="Terminating")),
        replace(namespace(), metadata=ObjectMeta(name="team", deletion_timestamp=NOW)),
    ],
)
async def test_a_namespace_that_is_being_deleted_gets_none(found: Namespace) -> None:
    controller, client = publisher()

    await controller.reconcile(found)

    assert client.writes == []


async def test_a_map_that_is_right_is_not_written() -> None:
    """The description is for its reader, who may have changed it."""
    controller, client = publisher(config(more="of the user"))

    await controller.reconcile(namespace())

    assert client.writes == []


@pytest.mark.parametrize(
    "wrong",
    [
        config(ca="another CA"),
        replace(config(), data={"ca.crt": "the CA", "more": "x"}),
        replace(config(), data={}),
        replace(config(), binary_data={"more": b"x"}),
        config(**{MARK: ""}),
    ],
)
async def test_every_part_of_a_map_that_is_wrong_is_corrected(wrong: ConfigMap) -> None:
    """Its version is that which was read, so that a change made meanwhile is seen."""
    there = wrong.with_meta(
        resource_version="7", annotations={**wrong.metadata.annotations, "a": "b"}
    )
    controller, client = publisher(there)

    await controller.reconcile(namespace())

    (right,) = client.written("update")
    assert (right.data, right.binary_data) == ({"ca.crt": "the CA"}, {})
    assert right.metadata.annotations == {MARK: ORCH.root_ca_description, "a": "b"}
    assert right.metadata.resource_version == "7"


@pytest.mark.parametrize("stored", [(), (config(ca="an earlier CA"),)])
async def test_an_unknown_ca_replaces_none(stored: tuple[ConfigMap, ...]) -> None:
    """A renewed chain of the server may end before its CA: clients keep the one they have."""
    controller, client = publisher(*stored, ca="")

    await controller.reconcile(namespace())

    assert client.writes == []


@pytest.mark.parametrize(
    ("verb", "refusal"),
    [
        ("create", AlreadyExists(ABOUT)),
        ("create", NotFound(ABOUT)),
        ("create", Forbidden(ABOUT, "it ends", TERMINATING)),
        ("update", NotFound(ABOUT)),
    ],
)
async def test_another_client_that_was_faster_is_no_failure(verb: str, refusal: Any) -> None:
    controller, client = publisher(*([config(ca="old")] if verb == "update" else []))
    client.refuses[verb] = refusal

    await controller.reconcile(namespace())

    assert client.writes == []


async def test_a_missing_right_is_a_failure() -> None:
    controller, client = publisher()
    client.refuses["create"] = Forbidden(ABOUT, "no right")

    with pytest.raises(Forbidden):
        await controller.reconcile(namespace())


def test_all_maps_are_compared_again_when_the_ca_changes() -> None:
    controllers = [publisher(ca=text)[0] for text in ("one", "two")]

    assert [one.rests_on() for one in controllers] == ["one", "two"]


async def test_a_changed_or_deleted_map_concerns_its_namespace() -> None:
    """Maps that existed before are read with their namespaces."""
    found = {
        type_: [key async for key in namespace_of(change(config("b"), type_))]
        for type_ in (LISTED, "ADDED", "MODIFIED", "DELETED")
    }

    here = [("", "b")]
    assert found == {LISTED: [], "ADDED": here, "MODIFIED": here, "DELETED": here}


@pytest.mark.parametrize("ca", ["", "the CA"])
def test_without_a_ca_nothing_is_published(ca: str) -> None:
    context: Any = SimpleNamespace(root_ca=lambda: ca, naming=ORCH, clock=FakeClock())
    parts: Any = None, context, None

    assert (build(*parts) is not None) is bool(ca)
