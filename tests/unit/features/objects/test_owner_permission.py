"""Owner references that block: which right they need, and on what."""

from typing import Any

import pytest

from orchid.features.objects.kinds import config_map, node
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.policies.owner_permission import OwnerPermission
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.asking import Rights, a_request

MAPS: Any = config_map.declare(ORCH)
CATALOG = Catalog([MAPS, node.declare(ORCH)])
UPDATE = Target(
    verb="update", is_resource=True, resource="configmaps", namespace="default", name="mine"
)
DELETE = ("delete", "configmaps", "mine")


def owned(*, blocks: bool) -> ConfigMap:
    owner = OwnerReference(
        api_version="v1", kind="Node", name="worker", uid="u", block_owner_deletion=blocks
    )
    meta = ObjectMeta(name="mine", namespace="default", owner_references=(owner,))
    return ConfigMap(metadata=meta)


async def test_a_reference_that_begins_to_block_needs_the_right() -> None:
    """Also if it was there before, without holding anything up."""
    rights = Rights(DELETE)

    with pytest.raises(Forbidden, match="you can't set finalizers on"):
        await OwnerPermission(rights, CATALOG).review(
            a_request(UPDATE), MAPS, owned(blocks=True), owned(blocks=False)
        )


async def test_the_right_on_an_owner_without_a_namespace_is_asked_without_one() -> None:
    """A right inside a namespace says nothing about a node."""
    rights = Rights(DELETE, ("update", "nodes", "worker"))

    await OwnerPermission(rights, CATALOG).review(
        a_request(UPDATE), MAPS, owned(blocks=True), owned(blocks=False)
    )

    assert [(one.resource, one.namespace) for one in rights.asked] == [
        ("configmaps", "default"),
        ("nodes", ""),
    ]
